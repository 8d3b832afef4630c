"""`broker jobs`: list them, check a job file, write a first one."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from broker.cli.output import AsJson, ago, rate, say, show_json, show_table
from broker.core.errors import Conflict, Refused
from broker.core.ids import slug
from broker.core.money import format_usd
from broker.core.time import format_duration

_SHOWN_OFFERS = 10
_SHOWN_REFUSALS = 8
# Offers that a decision keeps at most.
_KEPT = 20
# What differs between offers that are refused for the same reason: prices and durations.
_OF_ONE_OFFER = re.compile(r"\$[0-9.]+|\b(?:[0-9]+[smhdw])+\b")

_TEMPLATE = """\
name: {name}
resources:
  gpus: {{type: H100, count: 1}}          # any of several: [{{type: H100, count: 1}}, {{type: A100, count: 1}}]
source: .                               # travels to the node; .git and .venv stay here
# Once on each node, before run. A distribution's own Python refuses `pip install` (PEP 668): use a virtual environment,
# and start its Python in run: .venv/bin/python train.py ...
# setup: python3 -m venv .venv && .venv/bin/pip install -r requirements.txt
run: python train.py --output "$BROKER_CHECKPOINT_DIR"
checkpoint:
  dir: checkpoints                      # what a move resumes from
"""

app = typer.Typer(rich_markup_mode=None)


def register(parent: typer.Typer) -> None:
    """Add the commands."""
    parent.add_typer(app, name="jobs", help="List jobs; check a job file; write a first one.")


@app.callback(invoke_without_command=True)
def jobs(
    context: typer.Context,
    all_jobs: Annotated[bool, typer.Option("--all", "-a", help="Also those that are over.")] = False,
    as_json: AsJson = False,
) -> None:
    """List jobs; check a job file; write a first one."""
    if context.invoked_subcommand is None:
        list_jobs(all_jobs, as_json)


@app.command("list")
def list_jobs(
    all_jobs: Annotated[bool, typer.Option("--all", "-a", help="Also those that are over.")] = False,
    as_json: AsJson = False,
) -> None:
    """Jobs of your project, oldest first."""
    from broker.cli.client import Client

    with Client() as daemon:
        answer = daemon.get("/jobs", all=str(all_jobs).lower())
    if as_json:
        show_json(answer)
        return
    show_table(
        ("JOB", "GPU", "PLACE", "$/H", "STATE", "FOR", "STEP", "RESTARTS", "REASON"),
        (
            (
                item["id"],
                item["gpu"] if item["nodes"] == 1 else f"{item['nodes']} nodes, each {item['gpu']}",
                item["place"],
                rate(item["price_micro_usd_h"]),
                item["state"],
                ago(item["state_since_ms"], answer["at_ms"]),
                _steps(item),
                item["restarts"],
                item["reason"],
            )
            for item in answer["items"]
        ),
        empty="no jobs; `broker jobs init` writes a first job file, `broker jobs --all` lists those that are over",
    )


def _steps(item: dict[str, Any]) -> str:
    if item["step"] is None:
        return ""
    return str(item["step"]) if item["total_steps"] is None else f"{item['step']}/{item['total_steps']}"


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="Name of the job; the file is NAME.yaml.")] = "train",
) -> None:
    """Write a short job file to start from."""
    file = Path(f"{slug(name)}.yaml")
    try:
        with file.open("x") as out:
            out.write(_TEMPLATE.format(name=slug(name)))
    except FileExistsError:
        raise Conflict(f"{file} exists; choose another name") from None
    say(f"wrote {file}; next: `broker jobs check {file}`, then `broker submit {file}`")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="The job file.")],
    as_json: AsJson = False,
) -> None:
    """Check a job file, and ask what its policy would do now: offers with cost, and the best ones refused with why."""
    from broker.cli.client import Client
    from broker.core.plain import to_plain
    from broker.jobs.spec import load_job

    spec, _ = load_job(file)
    with Client() as daemon:
        decision = daemon.call("POST", "/jobs/check", {"spec": to_plain(spec)})
    if as_json:
        show_json(decision)
    else:
        show_plan(decision)
    if decision["kind"] != "place":
        raise Refused(decision["summary"])


def show_plan(decision: dict[str, Any]) -> None:
    """What could be rented for a job, and the best of what was refused."""
    chosen = (decision["target"] or {}).get("offer")
    possible = [a for a in decision["alternatives"] if a["cost_micro_usd"] is not None]
    refused = [a for a in decision["alternatives"] if a["cost_micro_usd"] is None]
    possible.sort(key=lambda a: a["cost_micro_usd"])
    refused.sort(key=lambda a: a["price_micro_usd_h"] / a["offer"]["gpus"])
    say(f"policy {decision['policy']}: {decision['summary']}")
    show_table(
        ("#", "OFFER", "GPU", "$/H", "SEEN", "HOURS", "COST", ""),
        [
            (
                number,
                _key(a["offer"]),
                f"{a['offer']['gpus']}x {a['offer']['gpu']}",
                rate(a["price_micro_usd_h"]),
                format_duration(a["quote_age_s"]),
                None if a["hours"] is None else f"{a['hours']:.1f}",
                format_usd(a["cost_micro_usd"]),
                "<- chosen" if a["offer"] == chosen else "",
            )
            for number, a in enumerate(possible[:_SHOWN_OFFERS], start=1)
        ],
        empty="no offer can run this job now",
    )
    if possible:
        low, high = possible[0]["cost_micro_usd"], possible[-1]["cost_micro_usd"]
        shown = min(len(possible), _SHOWN_OFFERS)
        say(f"{shown} of {len(possible)} offers; cost to finish {format_usd(low)} to {format_usd(high)}")
    _say_refused(refused)
    if len(decision["alternatives"]) >= _KEPT:
        say(f"{_KEPT} of the nearest misses are kept; more may have been refused")


def _say_refused(refused: Iterable[dict[str, Any]]) -> None:
    """A line for each cloud and reason, with the cheapest of those offers."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for a in refused:
        reason = _OF_ONE_OFFER.sub("#", a["refused"])
        groups.setdefault((a["offer"]["cloud"], reason), []).append(a)
    for (cloud, _), (first, *others) in list(groups.items())[:_SHOWN_REFUSALS]:
        more = f" and {len(others)} more of {cloud}" if others else ""
        price = format_usd(first["price_micro_usd_h"])
        say(f"refused {_key(first['offer'])} at {price}/h{more}: {first['refused']}")
    if len(groups) > _SHOWN_REFUSALS:
        say(f"refused for {len(groups) - _SHOWN_REFUSALS} other reasons; `--json` has them")


def _key(offer: dict[str, Any]) -> str:
    return f"{offer['cloud']}/{offer['zone']}/{offer['instance_type']}/{offer['market']}"
