"""`broker pause`, `broker resume`: one command stops all that costs new money."""

from typing import Annotated

import typer

from broker.cli.audit import unasked_parts
from broker.cli.output import say


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
            help="Also clear the report-only latch: you have looked, and this database is the one to go on with.",
        ),
    ] = False,
) -> None:
    """Rent again."""
    from broker.cli.client import Client

    # Clearing asks every cloud and reads every HEAD.
    with Client(timeout_s=180) as daemon:
        if report_only:
            audit = daemon.call("POST", "/report-only/clear", {"reason": "broker resume --report-only"})
            for name in unasked_parts(audit):
                say(
                    f"{name} could not be asked; if it runs nodes newer than this database, report-only comes back"
                )
        daemon.call("POST", "/resume")
    say("resumed")
