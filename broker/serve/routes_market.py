"""``/api/v1``: the market: prices now, prices over time, and how well each cloud has been read. It is only read, but for
a poll that an operator asks for.
"""

from collections.abc import Collection
from typing import Annotated, Any

from fastapi import APIRouter, Query

from broker.core.errors import Conflict, UsageError
from broker.core.gpu import FAMILIES, GPUS
from broker.core.offer import Market, MarketSnapshot
from broker.core.time import DAY_S, LAST_MS, MS
from broker.core.yaml_text import did_you_mean
from broker.market.index import Order, Wanted
from broker.serve.auth import Broker, Operator, Viewer
from broker.serve.market_views import (
    CurveView,
    FeedView,
    PolledView,
    cheapest_of_each,
    curve_views,
    feed_views,
)
from broker.serve.no_quotes import why_none
from broker.serve.numbers import GIB_MAX, GPUS_MAX, MICRO_USD_MAX, Number
from broker.serve.quotes import Prices, elsewhere, list_dates, quote_views
from broker.serve.services import Services
from broker.serve.unread import Unread, unread
from broker.serve.views import Listing
from broker.settings import CLOUDS

router = APIRouter(prefix="/api/v1", tags=["market"])

_DAYS = 30
_CURVES = 20
_POINTS = 2000


def _gpus(description: str) -> Any:
    return Query(ge=0, le=GPUS_MAX, description=description)


def _gib(description: str) -> Any:
    return Query(ge=0, le=GIB_MAX, description=description)


@router.get("/prices")
def prices(
    _viewer: Viewer,
    broker: Broker,
    gpu: Annotated[str | None, Query(description="Family or exact SKU.")] = None,
    count: Annotated[Number | None, _gpus("GPUs per instance.")] = None,
    min_count: Annotated[Number | None, _gpus("GPUs per instance, at least.")] = None,
    max_count: Annotated[Number | None, _gpus("GPUs per instance, at most.")] = None,
    min_gpu_memory_gib: Annotated[Number | None, _gib("Memory of one GPU, at least.")] = None,
    min_vram_gib: Annotated[Number | None, _gib("Memory of all GPUs together, at least.")] = None,
    market: Market | None = None,
    cloud: str | None = None,
    region: Annotated[str | None, Query(description="Pattern with `*` and `?`.", max_length=100)] = None,
    max_price_micro_usd_h: Annotated[
        Number | None, Query(ge=0, le=MICRO_USD_MAX, description="Of one instance.")
    ] = None,
    order: Annotated[Order, Query(description="Cheapest by the GPU, or by the PFLOPS.")] = Order.GPU,
    limit: Annotated[Number, Query(ge=1, le=10_000)] = 1000,
) -> Prices:
    """Accepted quotes as of now, whatever their age, cheapest first; unknown names are refused.

    `total` counts what passes the filter, beyond the limit, too. `unread` says which clouds are missing or late, `elsewhere`
    which ones the pattern of regions keeps out, and `why_none` what else is in the way of an answer.
    """
    snapshot = broker.snapshot()
    _known_gpu(gpu)
    _known_cloud(cloud)
    wanted = Wanted(
        gpu=gpu,
        gpus_min=count if count is not None else min_count,
        gpus_max=count if count is not None else max_count,
        gpu_memory_gib_min=min_gpu_memory_gib,
        vram_gib_min=min_vram_gib,
        market=market,
        cloud=cloud,
        region=region,
        price_micro_usd_h_max=max_price_micro_usd_h,
    )
    found = broker.index.find(snapshot.quotes, wanted, limit, order)
    total = sum(broker.index.count(snapshot.quotes, wanted).values())
    return Prices(
        at_ms=snapshot.at_ms,
        items=quote_views(snapshot, found),
        total=total,
        truncated=total > len(found),
        why_none=[] if found else why_none(broker.index, snapshot.quotes, wanted),
        unread=_unread(broker, snapshot, cloud),
        elsewhere=elsewhere(broker.index, snapshot.quotes, wanted),
    )


@router.get("/prices/history")
def history(
    _viewer: Viewer,
    broker: Broker,
    gpu: Annotated[str, Query(description="Family or exact SKU.")],
    since_ms: Annotated[Number | None, Query(ge=0, le=LAST_MS, description="Default: 30 days ago.")] = None,
    cloud: str | None = None,
    market: Market | None = None,
    count: Annotated[Number | None, _gpus("GPUs per instance.")] = None,
    every: Annotated[
        bool, Query(description="Every offer, not only the cheapest now of each cloud and market.")
    ] = False,
    limit: Annotated[
        Number, Query(ge=1, le=200, description="Offers, the cheapest per GPU first.")
    ] = _CURVES,
    points: Annotated[
        Number, Query(ge=1, le=20_000, description="Of one offer; the newest are kept.")
    ] = _POINTS,
) -> Listing[CurveView]:
    """What the clouds have said over time: each change of price, and when we saw it. No overlay."""
    _known_gpu(gpu)
    _known_cloud(cloud)
    now_ms = broker.clock.now_ms()
    from_ms = now_ms - _DAYS * DAY_S * MS if since_ms is None else since_ms
    skus = [sku for sku, model in GPUS.items() if gpu.lower() in (sku.lower(), model.family.lower())]
    offers = broker.history.offers(skus, cloud and cloud.lower(), market, count)
    chosen = (offers if every else cheapest_of_each(offers))[:limit]
    return Listing(
        at_ms=now_ms, items=curve_views(broker.history.curves(chosen, from_ms, now_ms + 1, points), from_ms)
    )


@router.get("/market/polls")
def polls(_viewer: Viewer, broker: Broker) -> Listing[FeedView]:
    """How well each cloud's prices have been read: one line a cloud that is configured or has ever been read."""
    now_ms, snapshot = broker.clock.now_ms(), broker.snapshot()
    dates = list_dates(broker.index, snapshot.quotes)
    items = feed_views(
        broker.history,
        _intervals_s(broker),
        broker.next_polls_ms(),
        snapshot.prices_only,
        dates,
        now_ms,
    )
    return Listing(at_ms=now_ms, items=items)


@router.post("/market/polls/{cloud}")
async def poll(_operator: Operator, broker: Broker, cloud: str) -> PolledView:
    """Read the prices of one cloud now, however recently it was read or failed; refused while it is being read.

    A poll that fails is an answer, too: `ok` is false and `error` says why.
    """
    name = cloud.lower()
    _known_cloud(name)
    if why := broker.closed_clouds.get(name):
        raise Conflict(f"{name} cannot be asked: {why}")
    done = await broker.poll(name)
    took_s = max(0, done.ended_at_ms - done.started_at_ms) / MS
    return PolledView(name, done.ok, done.error, done.offers, done.changes, took_s)


def _intervals_s(broker: Services) -> dict[str, int]:
    return {name: section.poll_interval_s for name, section in broker.settings.open_clouds.items()}


def _unread(broker: Services, snapshot: MarketSnapshot, cloud: str | None) -> list[Unread]:
    """Of the cloud that was asked for, else of all that are configured or have a price."""
    intervals_s = _intervals_s(broker)
    known = broker.index.count(snapshot.quotes, Wanted())
    asked = {*intervals_s, *known} if cloud is None else {cloud.lower()}
    return unread(broker.history, asked, intervals_s, broker.closed_clouds, snapshot.at_ms)


def _known_gpu(gpu: str | None) -> None:
    if gpu is not None:
        _known("gpu", gpu, (*FAMILIES, *GPUS))


def _known_cloud(cloud: str | None) -> None:
    if cloud is not None:
        _known("cloud", cloud, CLOUDS)


def _known(what: str, word: str, names: Collection[str]) -> None:
    if word.lower() not in {name.lower() for name in names}:
        hint = did_you_mean(word, names) or f"known are {', '.join(sorted(names))}"
        raise UsageError(f"{what}: there is no {word!r}", hint=hint)
