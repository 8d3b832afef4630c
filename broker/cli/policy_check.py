"""`broker policy check`: mistakes and what looks like one, before the daemon sees a file; and what a market leaves of it."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.output import AsJson, rate, say, show_json, show_table
from broker.core.errors import BrokerError, UsageError
from broker.core.offer import Offer, Quote
from broker.core.plain import from_plain

if TYPE_CHECKING:
    from broker.policy.funnel import Funnel

_MOST = 10_000


class Format(StrEnum):
    """How the answer is written."""

    TEXT = "text"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(check)


def check(
    paths: Annotated[list[Path], typer.Argument(help="Policy files, or folders of them.")],
    form: Annotated[Format, typer.Option("--format", help="text or json.")] = Format.TEXT,
    as_json: AsJson = False,
    market: Annotated[
        bool,
        typer.Option(
            "--market", help="Which line takes how many of the offers out that the daemon knows now."
        ),
    ] = False,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            "--state-dir",
            help="The same with the newest prices of the history.db in this folder; no daemon is asked.",
        ),
    ] = None,
) -> None:
    """Print every mistake with file:line:column, the line, a caret and a hint; exit 2 when there is one.

    Warnings are told too, and exit stays 0: numbers that look like cents, percent or MiB, lines that can never hold together. With
    --market, REMOVES counts what a line takes out of what the lines before it have left, ALONE what it takes out of everything. Lines
    that speak of the job take nothing out here.
    """
    from broker.policy.diagnose import check as check_files
    from broker.policy.diagnose import mistakes_as_json
    from broker.policy.funnel import funnel

    checked = check_files(paths)
    funnels: list[Funnel] = []
    if market or state_dir is not None:
        quotes, now_ms = _of_history(state_dir) if state_dir is not None else _of_daemon()
        funnels = [funnel(policy, quotes, now_ms) for policy in checked.policies]
    if as_json or form is Format.JSON:
        answer = {
            "files": [str(file) for file in checked.files],
            "mistakes": mistakes_as_json(checked.errors),
            "warnings": mistakes_as_json(checked.warnings),
        }
        show_json(answer | ({"market": [_plain(found) for found in funnels]} if funnels else {}))
    else:
        for found in (*checked.errors, *checked.warnings):
            say(f"{found}\n")
        _show(funnels)
        say(checked.count)
    if checked.errors:
        raise typer.Exit(UsageError.exit_code)


def _show(funnels: Sequence["Funnel"]) -> None:
    show_table(("POLICY", "LINE", "REMOVES", "ALONE", "LEFT", "AT"), _rows(funnels), empty="")
    for found in funnels:
        if found.cheapest is not None:
            cheapest = found.cheapest
            told = f"the cheapest is {cheapest.offer.key} at {rate(cheapest.price_micro_usd_h)}/h"
            say(f"{found.policy}: {found.left} of {found.total} offers are left; {told}")
        elif found.to_blame is not None:
            say(f"{found.policy}: no offer is left: {found.to_blame.line} takes the last one out")
        else:
            say(f"{found.policy}: there is no offer in this market at all")
    if funnels:
        say("")


def _rows(funnels: Iterable["Funnel"]) -> Iterable[tuple[object, ...]]:
    for found in funnels:
        for step in found.steps:
            counts = (step.removed, step.alone, step.left) if step.judged else ("by the job", None, step.left)
            yield (found.policy, step.line, *counts, step.place)


def _plain(found: "Funnel") -> dict[str, Any]:
    return {
        "policy": found.policy,
        "total": found.total,
        "left": found.left,
        "cheapest": found.cheapest.offer.key if found.cheapest else None,
        "steps": [asdict(step) for step in found.steps],
    }


def _of_daemon() -> tuple[list[Quote], int]:
    """What can be rented as the daemon sees it now: without clouds of which it only reads prices."""
    from broker.cli.client import Client

    with Client() as daemon:
        answer = daemon.get("/prices", limit=_MOST)
    if answer["truncated"]:
        say(f"the market has {answer['total']} offers; the cheapest {_MOST} of them are looked at")
    quotes = [
        Quote(
            from_plain(Offer, item["offer"]),
            item["price_micro_usd_h"],
            item["effective_at_ms"],
            item["observed_at_ms"],
            item["source"],
        )
        for item in answer["items"]
        if not item["prices_only"]
    ]
    return quotes, answer["at_ms"]


def _of_history(state_dir: Path) -> tuple[list[Quote], int]:
    """The newest prices of a history, as of the moment when the last of them was seen."""
    from broker.store.history import HistoryStore
    from broker.store.migrate import is_current

    path = state_dir / "history.db"
    if not path.is_file():
        raise UsageError(f"there is no {path}", hint="name the daemon's state folder, or a copy of it")
    if not is_current(path, "history"):
        raise BrokerError(
            f"{path} is of another release; start this one's daemon once, and it is brought up to date"
        )
    store = HistoryStore.open(path)
    try:
        quotes = list(store.now().values())
    finally:
        store.close()
    return quotes, max((quote.observed_at_ms for quote in quotes), default=0)
