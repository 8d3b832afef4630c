"""`broker prices`: what could be rented now."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from broker.cli import obtainability
from broker.cli.options import GIB_MAX, market_word, whole
from broker.cli.output import AsJson, ago, rate, say, show_json, show_table
from broker.core.errors import UsageError
from broker.core.money import MICRO_PER_USD, format_usd, micro_usd
from broker.core.time import format_duration, from_iso

_COUNT = re.compile(r"(?P<least>[0-9]{1,4})(?P<range>\+|-(?P<most>[0-9]{1,4}))?")

_MOST_MICRO_USD = 10**15
# Quotes: that people are shown unless they ask for more, and that the API gives at once.
_SHOWN, _MOST = 50, 10_000


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(prices)


def prices(
    gpu: Annotated[str | None, typer.Option(help="Family (H100) or exact SKU (H100-SXM5-80GB).")] = None,
    count: Annotated[str | None, typer.Option(help="GPUs per instance: 8, 4-8 or 4+.")] = None,
    market: Annotated[
        str | None,
        typer.Option(metavar="MARKET", parser=market_word, help="owned, spot, on_demand or reserved."),
    ] = None,
    cloud: Annotated[str | None, typer.Option(help="aws, gcp, azure, lambda, coreweave or local.")] = None,
    region: Annotated[
        str | None,
        typer.Option(
            help="Pattern: 'us-*', upper and lower case aside. Each cloud names its regions itself: us-east-1, us-east4, eastus, "
            "US-EAST."
        ),
    ] = None,
    gpu_memory: Annotated[
        int | None,
        typer.Option(
            metavar="GIB", parser=whole("--gpu-memory", 1, GIB_MAX), help="GiB of one GPU, at least."
        ),
    ] = None,
    vram: Annotated[
        int | None,
        typer.Option(
            metavar="GIB",
            parser=whole("--vram", 1, GIB_MAX),
            help="GiB of all GPUs of an instance, at least.",
        ),
    ] = None,
    max_usd: Annotated[str | None, typer.Option(help="Dollars an hour of an instance, at most.")] = None,
    per_flop: Annotated[
        bool,
        typer.Option(
            "--per-flop",
            help="Dollars per PFLOP-hour, and cheapest by that first: price / (GPUs x speed). Speed is a GPU's measured bf16 "
            "matmul rate where one has been published, else 70 % of its datasheet's dense rate; for comparing GPUs, no "
            "promise about your job.",
        ),
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            metavar="N",
            parser=whole("--limit", 1, _MOST),
            help=f"At most so many.  [default: {_SHOWN}; with --json {_MOST:,}]",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The market now: accepted quotes with age, source, and what the cloud says about obtaining them, cheapest per GPU first.

    OFFER is cloud, zone, machine and market. A narrow terminal leaves out SOURCE, REGION and LINK; a pipe and --json have them.
    AGE counts from the poll that last saw a price; `30s, list 71d` is read from a list of that age. With --per-flop, `~` marks
    an estimated speed. OBTAIN is the cloud's own word: AWS `score 8/10`, GCP `70 %` that a request succeeds and `preempted 25 %` of those
    that stopped, Azure `evicted 5–10 %/h`, Lambda and CoreWeave `listed` or `none listed`. LIST is the cloud's price where
    your overlay has made another one of it. NOTE says why a quote will not be used: in quarantine, prices only, refused a
    launch. What is missing is said on stderr, in a pipe, too: quotes beyond --limit, clouds that are not read as they should
    be, and those that the pattern of regions keeps out.
    """
    from broker.cli.client import Client

    least, most = (None, None) if count is None else parse_count(count)
    most_micro_usd_h = None if max_usd is None else _dollars(max_usd)
    with Client() as daemon:
        answer = daemon.get(
            "/prices",
            gpu=gpu,
            min_count=least,
            max_count=most,
            market=market,
            cloud=cloud,
            region=region,
            min_gpu_memory_gib=gpu_memory,
            min_vram_gib=vram,
            max_price_micro_usd_h=most_micro_usd_h,
            order="flop" if per_flop else None,
            limit=limit or (_MOST if as_json else _SHOWN),
        )
    if answer["truncated"]:
        say(f"{len(answer['items'])} of {answer['total']} shown; -n N for more")
    if as_json:
        show_json(answer)
        return
    items, now_ms = answer["items"], answer["at_ms"]
    show_table(
        tuple(_columns(per_flop)),
        (tuple(_cells(item, now_ms, per_flop)) for item in items),
        spare=("SOURCE", "REGION", "LINK"),
        empty=f"no accepted quote matches: {'; '.join(answer['why_none'])}"
        if answer["why_none"]
        else "no accepted quote matches; `broker market` tells when each cloud was last read",
    )
    if per_flop and not all(item["speed_measured"] for item in items):
        say("~ by an estimated speed, 70 % of the datasheet's; the others have been measured")
    for line in _missing(answer, region):
        say(line)


def _missing(answer: Mapping[str, Any], region: str | None) -> Iterator[str]:
    for cloud in answer["unread"]:
        yield f"{cloud['cloud']}: {cloud['why']}"
    for cloud in answer["elsewhere"]:
        offers = f"{cloud['offers']} offers" if cloud["offers"] > 1 else "1 offer"
        yield f"{cloud['cloud']}: {offers}, and no region like {region!r}; its own are named like {cloud['region']}"


def parse_count(text: str) -> tuple[int, int | None]:
    """``8``, ``4-8`` or ``4+`` as the least and the most.

    Raises:
        UsageError: it is none of these.
    """
    found = _COUNT.fullmatch(text.strip())
    least = int(found["least"]) if found else 0
    most = None if found and found["range"] == "+" else int((found and found["most"]) or least)
    if found is None or (most is not None and not 0 < least <= most):
        raise UsageError(f"--count: {text!r} is no number of GPUs", hint="write 8, 4-8 or 4+")
    return least, most


def _dollars(text: str) -> int:
    try:
        amount_micro_usd = micro_usd(text)
    except ValueError as error:
        raise UsageError(f"--max-usd: {error}", hint="write 40 or 2.50") from None
    if not 0 <= amount_micro_usd <= _MOST_MICRO_USD:
        most_usd = _MOST_MICRO_USD // MICRO_PER_USD
        raise UsageError(f"--max-usd: {text} is not between 0 and {most_usd:,}", hint="write 40 or 2.50")
    return amount_micro_usd


def _columns(per_flop: bool) -> Iterator[str]:
    yield from ("OFFER", "GPU", "COUNT", "$/H", "$/GPU/H")
    if per_flop:
        yield "$/PFLOP-H"
    yield from ("LIST", "AGE", "SOURCE", "OBTAIN", "LINK", "REGION", "NOTE")


def _cells(item: Mapping[str, Any], now_ms: int, per_flop: bool) -> Iterator[object]:
    offer = item["offer"]
    yield from (item["key"], offer["gpu"], offer["gpus"], rate(item["price_micro_usd_h"]))
    yield rate(item["micro_usd_per_gpu_h"])
    if per_flop:
        yield ("" if item["speed_measured"] else "~") + format_usd(item["micro_usd_per_pflop_h"], 3)
    yield from (rate(item["list_micro_usd_h"]), _age(item, now_ms), item["source"])
    yield obtainability.words(item["hints"])
    yield "/".join(link for link in (offer["interconnect"], offer["fabric"]) if link != "none")
    yield from (offer["region"], item["note"])


def _age(item: Mapping[str, Any], now_ms: int) -> str:
    seen = format_duration(item["age_s"])
    day = item["list_date"]
    return seen if day is None else f"{seen}, list {ago(from_iso(f'{day}T00:00:00Z'), now_ms)}"
