"""`broker prices`: what could be rented now."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from broker.cli import obtainability
from broker.cli.options import GIB_MAX, whole
from broker.cli.output import AsJson, rate, show_json, show_table
from broker.core.errors import UsageError
from broker.core.money import MICRO_PER_USD, format_usd, micro_usd
from broker.core.time import format_duration

_COUNT = re.compile(r"(?P<least>[0-9]{1,4})(?P<range>\+|-(?P<most>[0-9]{1,4}))?")

_MOST_MICRO_USD = 10**15


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(prices)


def prices(
    gpu: Annotated[str | None, typer.Option(help="Family (H100) or exact SKU (H100-SXM5-80GB).")] = None,
    count: Annotated[str | None, typer.Option(help="GPUs per instance: 8, 4-8 or 4+.")] = None,
    market: Annotated[str | None, typer.Option(help="owned, spot, on_demand or reserved.")] = None,
    cloud: Annotated[str | None, typer.Option(help="aws, gcp, azure, lambda, coreweave or local.")] = None,
    region: Annotated[str | None, typer.Option(help="Pattern: 'us-*'.")] = None,
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
        int,
        typer.Option(
            "--limit",
            "-n",
            metavar="N",
            parser=whole("--limit", 1, 10_000),
            help="Cheapest per GPU first.",
        ),
    ] = 50,
    as_json: AsJson = False,
) -> None:
    """The market now: accepted quotes with age, source, and what the cloud says about obtaining them, cheapest per GPU first.

    OBTAIN is the cloud's own word: AWS `score 8/10`, GCP `70 %` that a request succeeds and `preempted 25 %` of those
    that stopped, Azure `evicted 5–10 %/h`, Lambda and CoreWeave `listed` or `none listed`. LIST is the cloud's price where
    your overlay has made another one of it. NOTE says why a quote will not be used: in quarantine, prices only, refused a
    launch.
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
            limit=limit,
        )
    if as_json:
        show_json(answer)
        return
    show_table(
        tuple(_columns(per_flop)),
        (tuple(_cells(item, per_flop)) for item in answer["items"]),
        empty="no accepted quote matches; `broker market` tells when each cloud was last read",
    )


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
        raise UsageError(f"--max-usd: {error}") from None
    if not 0 <= amount_micro_usd <= _MOST_MICRO_USD:
        raise UsageError(f"--max-usd: {text} is not between 0 and {_MOST_MICRO_USD // MICRO_PER_USD}")
    return amount_micro_usd


def _columns(per_flop: bool) -> Iterator[str]:
    yield from ("OFFER", "GPU", "COUNT", "$/H", "$/GPU/H")
    if per_flop:
        yield "$/PFLOP-H"
    yield from ("LIST", "AGE", "SOURCE", "OBTAIN", "LINK", "REGION", "NOTE")


def _cells(item: Mapping[str, Any], per_flop: bool) -> Iterator[object]:
    offer = item["offer"]
    yield from (item["key"], offer["gpu"], offer["gpus"], rate(item["price_micro_usd_h"]))
    yield rate(item["micro_usd_per_gpu_h"])
    if per_flop:
        yield format_usd(item["micro_usd_per_pflop_h"], 3)
    yield from (rate(item["list_micro_usd_h"]), format_duration(item["age_s"]), item["source"])
    yield obtainability.words(item["hints"])
    yield "/".join(link for link in (offer["interconnect"], offer["fabric"]) if link != "none")
    yield from (offer["region"], item["note"])
