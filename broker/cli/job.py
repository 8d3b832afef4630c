"""One job: `broker submit`, `show`, `logs`, `why`, `cancel`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.options import whole
from broker.cli.output import AsJson, ago, rate, say, show_fields, show_json, show_table
from broker.core.money import format_usd
from broker.core.time import format_duration, to_iso

if TYPE_CHECKING:
    from broker.cli.client import Client

# How `logs -f` ends, as in SkyPilot, so that scripts move over.
OUTCOME_EXIT = {"succeeded": 0, "failed": 100, "cancelled": 103}

_FOLLOW_EVERY_S = 1.0
# Calls in a row without an answer: a restart takes seconds, a reboot of the daemon's machine minutes.
_MISSED_MAX = 300
_SUBMIT_TRIES = 3
_MARK = {True: "yes", False: "no", None: "?"}

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Id or name.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (submit, show, logs, why, cancel):
        app.command()(command)


def submit(
    file: Annotated[Path, typer.Argument(help="The job file.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Then follow its log.")] = False,
    as_json: AsJson = False,
) -> None:
    """Submit a job; prints its id."""
    import time
    from dataclasses import replace

    from broker.cli.client import Client, DaemonDown
    from broker.clock import SystemIds
    from broker.core.plain import to_plain
    from broker.core.spec import Source
    from broker.jobs.source import build_tarball
    from broker.jobs.spec import load_job

    spec, request = load_job(file)
    with Client() as daemon:
        if request is not None:
            tarball = build_tarball(request)
            with tarball.file as content:
                daemon.call(
                    "PUT", f"/sources/{tarball.sha256}", content=iter(lambda: content.read(1 << 20), b"")
                )
            spec = replace(spec, source=Source(tarball.sha256, tarball.size_bytes))
        # One key for all tries: a lost answer must not become a second job.
        key = {"Idempotency-Key": SystemIds().base32(26)}
        for tries_left in reversed(range(_SUBMIT_TRIES)):
            try:
                job = daemon.call("POST", "/jobs", {"spec": to_plain(spec)}, headers=key)
                break
            except DaemonDown:
                if not tries_left:
                    raise
                # A daemon that is started again answers within seconds; 1 s and 2 s.
                time.sleep(_SUBMIT_TRIES - tries_left)
        if as_json:
            show_json(job)
        else:
            print(job["id"])
            say(
                f"{job['spec']['name']} is {job['state']}; `broker logs -f {job['id']}`, `broker why {job['id']}`"
            )
        if follow:
            raise typer.Exit(_follow(daemon, job["id"]))


def show(job: JobArgument, as_json: AsJson = False) -> None:
    """State, progress, money and every placement of a job."""
    from broker.cli.client import Client

    with Client() as daemon:
        detail = daemon.get(_path(job))
        now_ms = daemon.get("/jobs")["at_ms"]
    if as_json:
        show_json(detail)
        return
    row = detail["job"]
    show_fields(_fields(row, detail, now_ms))
    show_table(
        ("ATTEMPT", "OFFER", "PURPOSE", "STATE", "$/H", "PROBE", "RESUMED AT", "LAST STEP", "REASON"),
        (
            (
                p["attempt"],
                "/".join(
                    (
                        p["offer"]["cloud"],
                        p["offer"]["zone"],
                        p["offer"]["instance_type"],
                        p["offer"]["market"],
                    )
                ),
                p["purpose"],
                p["state"],
                rate(p["price_micro_usd_h"]),
                p["verdict"],
                p["resumed_step"],
                p["last_step"],
                p["reason"],
            )
            for p in detail["placements"]
        ),
        empty="no placements yet",
    )


def _fields(row: dict[str, Any], detail: dict[str, Any], now_ms: int) -> list[tuple[str, object]]:
    spec, progress, commit = row["spec"], row["progress"] or {}, row["commit"]
    step = progress.get("step")
    total = progress.get("total_steps")
    speed = progress.get("steps_per_s")
    left_s = (total - step) / speed if step is not None and total and speed else None
    return [
        ("job", row["id"]),
        ("name", spec["name"]),
        ("state", f"{row['state']} for {ago(row['state_since_ms'], now_ms)}: {row['reason']}"),
        ("policy", row["policy"]),
        ("priority", spec["priority"]),
        ("submitted", f"{to_iso(row['created_at_ms'])} by {row['created_by']}"),
        ("deadline", to_iso(spec["deadline_ms"]) if spec["deadline_ms"] else None),
        ("step", None if step is None else f"{step}" + (f" of {total}" if total else "")),
        ("speed", None if speed is None else f"{speed:.3g} steps/s"),
        ("left", None if left_s is None else format_duration(left_s)),
        ("loss", progress.get("loss")),
        (
            "checkpoint",
            None
            if commit is None
            else f"#{commit['seq']} at step {commit['step']}, {ago(commit['at_ms'], now_ms)} ago",
        ),
        ("paid", format_usd(detail["paid_micro_usd"])),
        ("exit code", row["exit_code"]),
    ]


def logs(
    job: JobArgument,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Until the job is over; exit 0 succeeded, 100 failed, 103 cancelled."
        ),
    ] = False,
    node: Annotated[str | None, typer.Option(help="Only this node (any rank); see `broker nodes`.")] = None,
) -> None:
    """What the job prints, over all its placements."""
    from broker.cli.client import Client

    with Client() as daemon:
        raise typer.Exit(_follow(daemon, job, node, until_over=follow))


def _follow(daemon: "Client", job: str, node: str | None = None, until_over: bool = True) -> int:
    import time

    from broker.cli.client import DaemonDown

    offset, state, missed = 0, "", 0
    while True:
        # The state is asked before the bytes: what was written before the end is then read after it.
        over = state in OUTCOME_EXIT
        try:
            data, state = daemon.get_log(_path(job) + "/logs", offset, node)
            missed = 0
        except DaemonDown:
            # The job goes on while the daemon is restarted, and so does whoever watches it.
            missed += 1
            if not until_over or missed > _MISSED_MAX:
                raise
            time.sleep(_FOLLOW_EVERY_S)
            continue
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        offset += len(data)
        if data:
            continue
        if not until_over:
            return 0
        if over:
            say(f"job {state}")
            return OUTCOME_EXIT[state]
        time.sleep(_FOLLOW_EVERY_S)


def why(
    job: JobArgument,
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", metavar="N", parser=whole("--limit", 1, 1000), help="Newest answers."),
    ] = 1,
    kind: Annotated[
        str | None, typer.Option("--kind", help="Only answers of one kind: stay, place, move.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Why the job is where it is: the policy's last answers, line by line, with the quotes they saw."""
    from broker.cli.client import Client

    with Client() as daemon:
        answer = daemon.get(_path(job) + "/decisions", limit=limit, kind=kind)
        row = {} if as_json else daemon.get(_path(job))["job"]
    if as_json:
        show_json(answer)
        return
    if row["state"] in OUTCOME_EXIT:
        print(
            f"{row['id']} {row['state']} {ago(row['state_since_ms'], answer['at_ms'])} ago: {row['reason']}"
        )
    if not answer["items"]:
        say("no policy has been asked yet")
    for decision in answer["items"]:
        _show_answer(decision, answer["at_ms"])


def _show_answer(decision: dict[str, Any], now_ms: int) -> None:
    # A stay has nothing to carry out.
    done = "" if decision["acted"] or decision["kind"] == "stay" else " (recorded, not carried out)"
    print(f"{to_iso(decision['at_ms'])} ({ago(decision['at_ms'], now_ms)} ago)  {decision['kind']}{done}")
    print(f"{decision['policy']}: {decision['summary']}")
    if decision["degraded_quotes"]:
        print("on quotes older than the policy allows: a recovery does not wait")
    show_table(
        ("HOLDS", "LINE", "VALUES", "WHERE"),
        ((_MARK[r["holds"]], r["line"], r["detail"], r["place"]) for r in decision["reasons"]),
        empty="",
    )
    weighed = sorted(
        decision["alternatives"],
        key=lambda a: (a["cost_micro_usd"] is None, a["cost_micro_usd"] or a["price_micro_usd_h"]),
    )
    show_table(
        ("OFFER", "$/H", "SEEN", "COST", "REFUSED"),
        (
            (
                "/".join(
                    (
                        a["offer"]["cloud"],
                        a["offer"]["zone"],
                        a["offer"]["instance_type"],
                        a["offer"]["market"],
                    )
                ),
                rate(a["price_micro_usd_h"]),
                format_duration(a["quote_age_s"]),
                rate(a["cost_micro_usd"]),
                a["refused"],
            )
            for a in weighed[:10]
        ),
        empty="no offers were weighed",
    )


def cancel(job: JobArgument, as_json: AsJson = False) -> None:
    """End a job; what trains may save first."""
    from broker.cli.client import Client

    with Client() as daemon:
        row = daemon.call("POST", _path(job) + "/cancel")
    if as_json:
        show_json(row)
    else:
        say(f"{row['id']} is {row['state']}")


def _path(job: str) -> str:
    from urllib.parse import quote

    return f"/jobs/{quote(job, safe='')}"
