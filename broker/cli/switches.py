"""`broker pause`, `broker resume`: one command stops all that costs new money. Two switches, each ended by its own."""

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from broker.cli.audit import unasked_parts
from broker.cli.output import say
from broker.core.audit import Act


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(pause)
    app.command()(resume)


def pause(
    reason: Annotated[str, typer.Option("--reason", "-m", help="For the log and your colleagues.")] = "",
) -> None:
    """Rent nothing new: no placements, moves or recoveries. What runs goes on, and can still be released."""
    from broker.cli.client import Client

    with Client() as daemon:
        daemon.call("POST", "/pause", {"reason": reason})
    say("paused: nothing new is rented until `broker resume`; what runs goes on")


def resume(
    report_only: Annotated[
        bool,
        typer.Option(
            "--report-only",
            help="Clear the report-only latch instead: you have looked, and this database is the one to go on with. "
            "A pause stays.",
        ),
    ] = False,
) -> None:
    """End the pause: rent again. With --report-only, clear that latch, and leave a pause as it is."""
    from broker.cli.client import Client

    # Clearing asks every cloud and reads every HEAD.
    with Client(timeout_s=180) as daemon:
        if report_only:
            _say_cleared(daemon.call("POST", "/report-only/clear", {"reason": "broker resume --report-only"}))
        else:
            _say_resumed(daemon.call("POST", "/resume"))


def _say_resumed(done: Mapping[str, Any]) -> None:
    say("the pause has ended" if done["ended"] else "was not paused: nothing has changed")
    if done["report_only"]:
        say("report-only is latched: nothing is rented until `broker resume --report-only`; look first")


def _say_cleared(done: Mapping[str, Any]) -> None:
    if not done["cleared"]:
        say("report-only was not latched: nothing has changed")
    else:
        audit = done["audit"]
        say("report-only is cleared: the rows have caught up")
        acts = Counter(Act(item["act"]) for item in audit["discrepancies"])
        say(
            f"machines that no row wants: {acts[Act.END]} will be ended now, {acts[Act.WAIT]} once past their grace; "
            "`broker audit` names them"
        )
        for name in unasked_parts(audit):
            say(
                f"{name} could not be asked; if it runs nodes newer than this database, report-only comes back"
            )
    if done["paused"]:
        say("still paused: nothing is rented until `broker resume`")
