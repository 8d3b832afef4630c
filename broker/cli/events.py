"""`broker events`: what has happened, from the log that every change is written to, and what happens now."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.output import show_line, show_table
from broker.core.errors import UsageError
from broker.core.time import HOUR_S, parse_duration, to_iso

if TYPE_CHECKING:
    from broker.cli.client import Client

_COLUMNS = ("EVENT", "WHEN", "KIND", "SUBJECT", "BY", "DETAIL")
_AGAIN_AFTER_S = 1.0
# Tries in a row without an answer, as for `broker logs -f`: a reboot of the daemon's machine takes minutes.
_MISSED_MAX = 300


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(events)


def events(
    job: Annotated[
        str | None, typer.Argument(metavar="JOB", help="Only of this job; id or name.", show_default=False)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Then those to come, until Ctrl-C.")] = False,
    since: Annotated[
        str | None,
        typer.Option(help="Not older than this: 30m, 2d. Default: all of a job, else the last hour."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document a line.")] = False,
) -> None:
    """Events, oldest first: every change of jobs, placements and nodes, and every switch that somebody has turned.

    SUBJECT is the node, else the placement, else the job. A connection that is lost is made again where it was cut.
    """
    from broker.cli.client import Client

    since_s = _seconds(since) if since else None if job else HOUR_S
    with Client() as daemon:
        job_id = daemon.get(_path(job))["job"]["id"] if job else None
        found = _read(daemon, job_id, since_s, follow)
        if as_json:
            for event in found:
                print(json.dumps(event, separators=(",", ":")), flush=True)
        elif follow:
            for event in found:
                show_line(_cells(event))
        else:
            show_table(_COLUMNS, (_cells(event) for event in found), empty="no events; try a longer --since")


def _read(
    daemon: "Client", job_id: str | None, since_s: int | None, follow: bool
) -> Iterator[Mapping[str, Any]]:
    from broker.cli.client import DaemonDown

    last: int | None = None
    missed = 0
    query = {"job": job_id, "follow": str(follow).lower(), "since_s": since_s}
    if since_s is None:
        query["after"] = 0
    while True:
        try:
            for event in daemon.events(query, last):
                last, missed = event["seq"], 0
                yield event
            if not follow:
                return
        except DaemonDown:
            # At the first try it is told that nobody is there; later it is a restart.
            if not follow or (last is None and not missed) or missed >= _MISSED_MAX:
                raise
        missed += 1
        time.sleep(_AGAIN_AFTER_S)


def _seconds(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--since: {error}") from None


def _cells(event: Mapping[str, Any]) -> tuple[object, ...]:
    subject = event["node_token"] or event["placement_id"] or event["job_id"]
    detail = " ".join(f"{key}={_plain(value)}" for key, value in event["data"].items() if value is not None)
    return event["seq"], to_iso(event["at_ms"]), event["kind"], subject, event["actor"], detail


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _path(job: str) -> str:
    from urllib.parse import quote

    return f"/jobs/{quote(job, safe='')}"
