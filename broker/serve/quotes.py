"""Bodies of the API that speak of the market: quotes with all that is known beside their price."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel

from broker.core.availability import Availability
from broker.core.offer import MarketSnapshot, Offer, Quote
from broker.market.index import MarketIndex, Wanted, micro_usd_per_gpu_h, micro_usd_per_pflop_h
from broker.serve.unread import Unread

_DAY = re.compile(r":([0-9]{4}-[0-9]{2}-[0-9]{2})(?:\+|$)")


@dataclass(frozen=True)
class QuoteView:
    """One accepted quote.

    Attributes:
        price_micro_usd_h: Of the instance, as decisions reckon with it: the overlay's price where there is one.
        list_micro_usd_h: What the cloud says, where the overlay has made another price of it; else null.
        micro_usd_per_gpu_h: The price by the GPU.
        micro_usd_per_pflop_h: The price by the PFLOPS, at the speed that GPUs are ranked by: measured bf16 matmul where
            somebody has published one, else 70 % of the datasheet's dense rate.
        speed_tflops: Of one GPU; what that price divides by.
        speed_measured: False where the speed is such a share of the datasheet, and so an estimate.
        age_s: Since we last saw it.
        list_date: Day of the list that it was read from, where its source is one with a date; null where the cloud
            itself was asked. The price is that old, however lately we have read the list.
        hints: What the cloud says about obtaining it, each on the scale of its `signal`; none where it says nothing.
        quarantined: Why its newest reading is doubted; null when it is not.
        prices_only: Nothing can be rented there by this release or configuration.
        refused_until_ms: A launch found nothing there; until then it is left alone. Null when none did.
        note: Why it will not be used as it is, for people; empty when it will.
    """

    key: str
    offer: Offer
    price_micro_usd_h: int
    list_micro_usd_h: int | None
    micro_usd_per_gpu_h: int
    micro_usd_per_pflop_h: int
    speed_tflops: float
    speed_measured: bool
    effective_at_ms: int
    observed_at_ms: int
    age_s: float
    source: str
    list_date: str | None
    hints: tuple[Availability, ...]
    quarantined: str | None
    prices_only: bool
    refused_until_ms: int | None
    note: str


@dataclass(frozen=True)
class Elsewhere:
    """A cloud that has no region of the wanted pattern, and offers that pass all else. Each cloud has its own names.

    Attributes:
        region: One of its own.
    """

    cloud: str
    offers: int
    region: str


class Prices(BaseModel):
    """Quotes, and what is not among them.

    Attributes:
        total: Quotes that pass the filter; `items` are the first of them.
        truncated: There are more than `items`.
        why_none: Where there are none: what is in the way, for people; empty where no single part of the filter is.
        unread: Clouds whose prices are missing or late, and why.
        elsewhere: Clouds that the pattern of regions keeps out as a whole.
    """

    at_ms: int
    items: Sequence[QuoteView]
    total: int
    truncated: bool
    why_none: Sequence[str]
    unread: Sequence[Unread]
    elsewhere: Sequence[Elsewhere]


def quote_views(snapshot: MarketSnapshot, quotes: Iterable[Quote]) -> list[QuoteView]:
    """Quotes with their ages and what is the matter with them."""
    return [_view(snapshot, quote) for quote in quotes]


def list_date(source: str) -> str | None:
    """The day in a source such as ``coreweave:price_list:2026-09-20+discount``; None when it names none."""
    named = _DAY.search(source)
    return named and named[1]


def list_dates(index: MarketIndex, quotes: Mapping[str, Quote]) -> dict[str, str]:
    """By cloud, of those whose cheapest quote was read from a list with a date."""
    dates = {}
    for cloud in index.count(quotes, Wanted()):
        (first,) = index.find(quotes, Wanted(cloud=cloud), limit=1)
        if date := list_date(first.source):
            dates[cloud] = date
    return dates


def elsewhere(index: MarketIndex, quotes: Mapping[str, Quote], wanted: Wanted) -> list[Elsewhere]:
    """What a pattern of regions keeps out; nothing without one."""
    if wanted.region is None:
        return []
    anywhere, here = replace(wanted, region=None), index.count(quotes, wanted)
    views = []
    for cloud, offers in index.count(quotes, anywhere).items():
        if cloud not in here:
            (first,) = index.find(quotes, replace(anywhere, cloud=cloud), limit=1)
            views.append(Elsewhere(cloud, offers, first.offer.region))
    return views


def _view(snapshot: MarketSnapshot, quote: Quote) -> QuoteView:
    offer = quote.offer
    return QuoteView(
        key=offer.key,
        offer=offer,
        price_micro_usd_h=quote.price_micro_usd_h,
        list_micro_usd_h=snapshot.list_micro_usd_h.get(offer.key),
        micro_usd_per_gpu_h=round(micro_usd_per_gpu_h(quote)),
        micro_usd_per_pflop_h=round(micro_usd_per_pflop_h(quote)),
        speed_tflops=offer.model.speed,
        speed_measured=offer.model.measured_bf16_tflops is not None,
        effective_at_ms=quote.effective_at_ms,
        observed_at_ms=quote.observed_at_ms,
        age_s=quote.age_s(snapshot.at_ms),
        source=quote.source,
        list_date=list_date(quote.source),
        hints=snapshot.hints.get(offer.key, ()),
        quarantined=snapshot.quarantined.get(offer.key),
        prices_only=offer.cloud in snapshot.prices_only,
        refused_until_ms=snapshot.empty_until_ms[offer.key] if snapshot.is_empty(offer) else None,
        note=_note(snapshot, offer),
    )


def _note(snapshot: MarketSnapshot, offer: Offer) -> str:
    if offer.key in snapshot.quarantined:
        return f"newest reading in quarantine: {snapshot.quarantined[offer.key]}"
    if offer.cloud in snapshot.prices_only:
        return "prices only"
    return "refused a launch a short while ago" if snapshot.is_empty(offer) else ""
