"""The judge of a rehearsal: `build/demo/report.json` (`demo/1`), and whether every promise of it held.

Money is taken from two sides that share no code: `paid_usd` from the broker's ledger, `lab_bill_usd` and `stay_usd`
from the lab's own truth. Weights are taken from the checkpoint store itself.
"""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from broker.wire.commit import restore
from broker.wire.messages import StoreAccess
from broker.wire.store_client import open_store
from lab.demo.director import Story, offer_key
from lab.demo.play import FIRST, GCP
from lab.demo.reference import Weights, digest
from lab.demo.stage import DemoFailed, Stage

SAVE_EVERY_STEPS = 20
EARLIEST_RESUME = 0.20
CENT = 0.01


@dataclass(frozen=True)
class Handover:
    """One change of place. Times are ms on the broker's clock, `pause_s` its seconds.

    Attributes:
        decided_at: The decision's time; ready_at: the new node was verified and prepared; cutover_at: HEAD fenced.
        pause_s: From the last training there to the first training here.
    """

    source: str
    target: str
    decided_at: int
    ready_at: int
    cutover_at: int
    pause_s: float
    resumed_step: int
    steps_redone: int
    reason: str

    def document(self) -> dict[str, Any]:
        """As it stands in the report."""
        row = asdict(self)
        return {"from": row.pop("source"), "to": row.pop("target"), **row}


def report(stage: Stage, story: Story, script: Path, reference: Weights, wall_s: float) -> dict[str, Any]:
    """Everything that was measured."""
    truth = stage.lab.truth()
    moves: list[dict[str, Any]] = []
    interruptions: list[dict[str, Any]] = []
    for handover, purpose in _handovers(story):
        (moves if purpose == "move" else interruptions).append(handover.document())
    weights = digest(script, _last_checkpoint(stage, story))
    state = stage.lab.state()
    bills = stage.get("/ledger", job=story.job_id)["items"]
    probes = [
        probe for p in story.placements for probe in stage.get(f"/placements/{p['id']}/probes")["items"]
    ]
    return {
        "schema": "demo/1",
        "seed": stage.play.seed,
        "clock_rate": state["rate"],
        "final_weights_sha256": weights.sha256,
        "uninterrupted_weights_sha256": reference.sha256,
        "steps": weights.step,
        "migrations": moves,
        "interruptions": interruptions,
        "ledger": {
            "paid_usd": round(sum(bill["paid_micro_usd"] for bill in bills) / 1e6, 6),
            "stay_usd": round(_stay_micro_usd(stage, truth) / 1e6, 6),
            "stay_usd_h": state["pools"][FIRST]["price_micro_usd_h"] / 1e6,
            "here_usd_h": story.placements[-1]["price_micro_usd_h"] / 1e6,
            "lab_bill_usd": round(truth["total_micro_usd"] / 1e6, 6),
        },
        "nodes_created": len(state["machines"]),
        "nodes_left": sum(m["state"] not in ("terminated", "gone") for m in state["machines"]),
        "price_points": _price_points(stage),
        "prices": _prices(stage, story),
        "probe_reports": probes,
        "placements": [_line(p) for p in story.placements],
        "isolation": stage.lab.info["isolation"],
        "wall_s": round(wall_s, 1),
    }


def _price_points(stage: Stage) -> int:
    """Rows that the daemon has written, counted in its file."""
    return int(_history(stage, "SELECT count(*) FROM price_point")[0][0])


def _prices(stage: Stage, story: Story) -> dict[str, list[list[int]]]:
    """Change points of the offers that had a placement: [effective at, ms; micro-USD an hour]."""
    asked = (
        "SELECT effective_at_ms, price_micro_usd_h FROM price_point JOIN offer ON offer.id = offer_id WHERE key = ? "
        "ORDER BY effective_at_ms, observed_at_ms"
    )
    keys = sorted({offer_key(p["offer"]) for p in story.placements})
    return {key: [list(point) for point in _history(stage, asked, key)] for key in keys}


def _history(stage: Stage, sql: str, *values: str) -> list[tuple[int, ...]]:
    with sqlite3.connect(f"file:{stage.folder}/state/history.db?mode=ro", uri=True) as history:
        return history.execute(sql, values).fetchall()


def _line(placement: dict[str, Any]) -> dict[str, Any]:
    names = ("id", "purpose", "state", "reason", "created_at_ms", "ready_at_ms", "active_at_ms", "training_at_ms",
             "stopped_at_ms", "gone_at_ms", "resumed_step", "last_step", "verdict")  # fmt: skip
    return {"offer": offer_key(placement["offer"])} | {name: placement[name] for name in names}


def _handovers(story: Story) -> Iterator[tuple[Handover, str]]:
    trained = [p for p in story.placements if p["training_at_ms"] is not None]
    for old, new in pairwise(trained):
        stopped = old["stopped_at_ms"] or new["active_at_ms"]
        resumed = new["resumed_step"] or 0
        yield (
            Handover(
                source=offer_key(old["offer"]),
                target=offer_key(new["offer"]),
                decided_at=new["created_at_ms"],
                ready_at=new["ready_at_ms"],
                cutover_at=new["active_at_ms"],
                pause_s=round((new["training_at_ms"] - stopped) / 1000, 1),
                resumed_step=resumed,
                steps_redone=max(0, (old["last_step"] or 0) - resumed),
                reason=old["reason"] if new["purpose"] == "recover" else _decision(story, new),
            ),
            new["purpose"],
        )


def _decision(story: Story, placement: dict[str, Any]) -> str:
    """What the policy said when this placement was intended."""
    return next(
        (
            text
            for at, text in story.said
            if at == placement["created_at_ms"] and text.startswith("decision: ")
        ),
        placement["reason"],
    ).removeprefix("decision: ")


def _stay_micro_usd(stage: Stage, truth: dict[str, Any]) -> int:
    """The first placement's offer held to the end of the last machine, at its real prices."""
    lines = truth["lines"]
    first = min((line for line in lines if line["offer_key"] == FIRST), key=lambda line: line["from_s"])
    return stage.lab.hold_cost(FIRST, first["from_s"], max(line["to_s"] or truth["now_s"] for line in lines))


def _last_checkpoint(stage: Stage, story: Story) -> Path:
    """What HEAD names, restored from the store into an empty folder."""
    s3 = stage.lab.info["s3"]
    access = StoreAccess(
        kind="s3",
        prefix=f"jobs/{story.job_id}",
        endpoint=stage.lab.info["endpoints"]["s3"],
        bucket=s3["bucket"],
        access_key=s3["access_key"],
        secret_key=s3["secret_key"],
        ca_pem=Path(stage.lab.info["ca_file"]).read_text(),
    )
    folder = stage.folder / "final"
    restore(open_store(access), access.prefix, folder)
    return max(folder.rglob("step-*.pt"))


def judge(found: dict[str, Any]) -> list[str]:
    """What did not hold; empty when all is well."""
    wrong = []

    def must(holds: bool, text: str) -> None:
        if not holds:
            wrong.append(text)

    ledger = found["ledger"]
    must(
        found["final_weights_sha256"] == found["uninterrupted_weights_sha256"],
        "final weights differ from the reference run",
    )
    must(found["nodes_left"] == 0, f"{found['nodes_left']} nodes left")
    must(
        any(m["from"] == FIRST and m["to"] == GCP for m in found["migrations"]),
        f"no migration from {FIRST} to {GCP}",
    )
    must(any(i["from"] == GCP for i in found["interruptions"]), f"no interruption on {GCP}")
    must(
        abs(ledger["paid_usd"] - ledger["lab_bill_usd"]) < CENT,
        f"the ledger says ${ledger['paid_usd']:.4f}, the lab ${ledger['lab_bill_usd']:.4f}",
    )
    for handover in found["migrations"] + found["interruptions"]:
        where = f"{handover['from']} -> {handover['to']}"
        must(
            handover["resumed_step"] >= EARLIEST_RESUME * found["steps"],
            f"{where} resumed at step {handover['resumed_step']}, before {EARLIEST_RESUME:.0%}",
        )
        must(
            handover["steps_redone"] <= SAVE_EVERY_STEPS,
            f"{where} redid {handover['steps_redone']} steps, more than a checkpoint interval",
        )
    must(found["price_points"] > 0, "no price points")
    must(len(found["probe_reports"]) >= 3, "fewer probe reports than landings")
    return wrong


def write(found: dict[str, Any], folder: Path) -> Path:
    """Keep the report.

    Raises:
        DemoFailed: something did not hold.
    """
    file = folder / "report.json"
    file.write_text(json.dumps(found, indent=2) + "\n")
    if wrong := judge(found):
        raise DemoFailed("the rehearsal ran, but:\n  " + "\n  ".join(wrong) + f"\nreport: {file}")
    return file
