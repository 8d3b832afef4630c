"""`broker history`: prices over time."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from broker.cli.history_files import moment
from broker.cli.options import GPUS_MAX, market_word, whole
from broker.cli.output import AsJson, ago, rate, say, show_json, show_table
from broker.core.errors import BrokerError
from broker.core.time import to_iso

_EMPTY = "no price of such an offer is known; `broker market` tells how well each cloud has been read"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(history)


def history(
    gpu: Annotated[str, typer.Argument(help="Family (H100) or exact SKU (H100-SXM5-80GB).")],
    since: Annotated[
        str, typer.Option(help="A duration back (30d), or a moment (2026-11-01T00:00:00Z).")
    ] = "30d",
    cloud: Annotated[str | None, typer.Option(help="Only this cloud.")] = None,
    market: Annotated[
        str | None,
        typer.Option(metavar="MARKET", parser=market_word, help="owned, spot, on_demand or reserved."),
    ] = None,
    count: Annotated[
        int | None, typer.Option(metavar="N", parser=whole("--count", 1, GPUS_MAX), help="GPUs per instance.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--every", help="Every offer, not only the cheapest now of each cloud and market.")
    ] = False,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            "-n",
            metavar="N",
            parser=whole("--limit", 1, 200),
            help="Offers, cheapest per GPU first.",
        ),
    ] = 20,
    svg: Annotated[Path | None, typer.Option(help="Draw it into this file, too.")] = None,
    as_json: AsJson = False,
) -> None:
    """How prices of a GPU have changed: what the clouds said, without your overlay.

    On a terminal: a plot of dollars an hour for one GPU, and a line an offer. In a pipe: every change, one a line: offer,
    since when, $/h, $/GPU/h, when we saw it, source. A price holds until the next change, or until it was last seen.
    """
    from broker.cli.client import Client

    with Client() as daemon:
        # The daemon's own clock counts back from its own now.
        at_ms = daemon.get("/whoami")["at_ms"]
        since_ms = moment(since, at_ms)
        answer = daemon.get(
            "/prices/history",
            gpu=gpu,
            since_ms=since_ms,
            cloud=cloud,
            market=market,
            count=count,
            every=str(every).lower(),
            limit=limit,
        )
    if svg is not None:
        _draw(svg, gpu, answer["items"], since_ms, at_ms)
    if as_json:
        show_json(answer)
    elif not sys.stdout.isatty():
        show_table((), _changes(answer["items"]), empty=_EMPTY)
    else:
        _plot(answer["items"], since_ms, at_ms)
    for item in answer["items"]:
        if item["cut"]:
            say(f"{item['key']}: only the newest {len(item['points'])} changes are shown")


def _changes(items: list[Mapping[str, Any]]) -> Iterator[tuple[object, ...]]:
    for item in items:
        for point in item["points"]:
            price = point["price_micro_usd_h"]
            yield (
                item["key"],
                to_iso(point["effective_at_ms"]),
                rate(price),
                rate(price // item["offer"]["gpus"]),
                to_iso(point["observed_at_ms"]),
                point["source"],
            )


def _plot(items: list[Mapping[str, Any]], since_ms: int, now_ms: int) -> None:
    from broker.cli.curve_plots import in_terminal

    if any(item["points"] for item in items):
        print(in_terminal(items, since_ms, now_ms))
    show_table(
        ("", "OFFER", "GPU", "COUNT", "NOW $/GPU/H", "LOWEST", "HIGHEST", "CHANGES", "SEEN"),
        (
            (
                at,
                item["key"],
                item["offer"]["gpu"],
                item["offer"]["gpus"],
                *(
                    rate(price and price // item["offer"]["gpus"])
                    for price in (
                        item["points"][-1]["price_micro_usd_h"] if item["points"] else None,
                        item["low_micro_usd_h"],
                        item["high_micro_usd_h"],
                    )
                ),
                sum(point["effective_at_ms"] >= since_ms for point in item["points"]),
                ago(item["last_seen_ms"], now_ms) or "imported",
            )
            for at, item in enumerate(items, start=1)
        ),
        empty=_EMPTY,
    )


def _draw(file: Path, gpu: str, items: list[Mapping[str, Any]], since_ms: int, now_ms: int) -> None:
    from broker.cli.curve_plots import as_svg

    if not any(item["points"] for item in items):
        say(f"nothing to draw: {file} is not written")
        return
    text = as_svg(f"{gpu}: $ an hour for one GPU", items, since_ms, now_ms)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BrokerError(f"cannot write {file}: {error.strerror}") from None
    say(f"drawn into {file}")
