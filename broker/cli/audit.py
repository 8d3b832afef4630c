"""`broker audit`: what rows, clouds and checkpoint store disagree about, and what would be done."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from broker.cli.output import AsJson, ago, say, show_json, show_table
from broker.core.audit import Act, Kind
from broker.core.errors import ProviderError

# Clouds are asked at once, each with its own time-out; then single nodes are looked up.
_TIMEOUT_S = 180
# Exit code of an audit that has found something: no other command's and no error's (`broker.core.errors`).
FOUND = 8
_WORDS = {
    Act.END: "end it",
    Act.CLOSE: "close its segment",
    Act.WAIT: "wait",
    Act.RECONCILE: "nothing: the next passes do",
    Act.LATCH: "nothing while report-only",
    Act.PERSON: "nothing: you decide",
}
COLUMNS = ("WHAT", "WHERE", "SUBJECT", "CLOUD'S ID", "WOULD", "DETAIL")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(audit)


def audit(
    apply: Annotated[
        bool, typer.Option("--apply", help="End what is shown as `end it`, close what is shown as such.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare the rows with every cloud and with the checkpoint store, both ways, and say what would be done.

    Exit 0: all agree, or nothing but checkpoints of unknown jobs (`stray`) was found: they are yours to keep or to
    delete. 8: something else was found; with --apply, something of that could not be done. 7: a cloud or the store
    could not be asked in full; its part is unknown, and nothing is concluded from its silence. 1: the daemon did not
    answer.
    """
    from broker.cli.client import Client

    with Client(timeout_s=_TIMEOUT_S) as daemon:
        found = daemon.get("/audit")
        if not as_json:
            show_audit(found)
        done: Mapping[str, Any] = {}
        if apply:
            ids = [item["id"] for item in found["discrepancies"] if Act(item["act"]).applies]
            done = daemon.call("POST", "/audit/apply", {"ids": ids})
    if as_json:
        show_json({"audit": found, "applied": done} if apply else found)
    if apply:
        say(f"{len(done['done'])} done, {len(done['failed'])} failed, {len(done['left'])} no longer so")
        for item in done["failed"]:
            say(f"failed: {item['subject']}: {item['detail']}")
    refuse_unknown(found)
    left = done["failed"] if apply else [d for d in found["discrepancies"] if d["kind"] != Kind.STRAY]
    raise typer.Exit(FOUND if left else 0)


def show_audit(found: Mapping[str, Any]) -> None:
    """The table to stdout, how well everybody could be asked to stderr."""
    show_table(
        COLUMNS,
        (
            (
                item["kind"],
                f"{item['cloud']}/{item['place']}" if item["cloud"] else "store",
                item["subject"],
                item["provider_id"],
                _WORDS[Act(item["act"])],
                item["detail"],
            )
            for item in found["discrepancies"]
        ),
        empty="found nothing, but not everybody could be asked"
        if unasked_parts(found)
        else "nothing disagrees",
    )
    for part in found["asked"]:
        if part["unasked"]:
            say(f"{part['name']}: UNKNOWN, could not be asked in full: {part['unasked']}")
        elif part["at_ms"] is not None:
            say(f"{part['name']}: last listed {ago(part['at_ms'], found['at_ms'])} ago")
        elif part["strangers"] is not None:
            say(
                f"{part['name']}: {part['known']} machines of ours, {part['strangers']} of other installations"
            )
        elif part["known"] is not None:
            say(f"{part['name']}: {part['known']} jobs")
    if found["report_only"] is not None:
        say(
            f"report-only is latched: {found['report_only']}; `broker resume --report-only` once you have looked"
        )


def refuse_unknown(found: Mapping[str, Any]) -> None:
    """End the command when a part is unknown.

    Raises:
        ProviderError: names those that could not be asked.
    """
    if unasked := unasked_parts(found):
        raise ProviderError(f"{', '.join(unasked)} could not be asked: that part is unknown")


def unasked_parts(found: Mapping[str, Any]) -> list[str]:
    """Names of clouds, or the store, whose part is unknown."""
    return [part["name"] for part in found["asked"] if part["unasked"]]
