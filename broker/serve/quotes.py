"""Bodies of the API that speak of the market: quotes with all that is known beside their price."""

from collections.abc import Iterable
from dataclasses import dataclass

from broker.core.availability import Availability
from broker.core.offer import MarketSnapshot, Offer, Quote
from broker.market.index import micro_usd_per_gpu_h, micro_usd_per_pflop_h


@dataclass(frozen=True)
class QuoteView:
    """One accepted quote.

    Attributes:
        price_micro_usd_h: Of the instance, as decisions reckon with it: the overlay's price where there is one.
        list_micro_usd_h: What the cloud says, where the overlay has made another price of it; else null.
        micro_usd_per_gpu_h: The price by the GPU.
        micro_usd_per_pflop_h: The price by the PFLOPS, at the speed that GPUs are ranked by: measured bf16 matmul where
            somebody has published one, else 70 % of the datasheet's dense rate.
        age_s: Since we last saw it.
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
    effective_at_ms: int
    observed_at_ms: int
    age_s: float
    source: str
    hints: tuple[Availability, ...]
    quarantined: str | None
    prices_only: bool
    refused_until_ms: int | None
    note: str


def quote_views(snapshot: MarketSnapshot, quotes: Iterable[Quote]) -> list[QuoteView]:
    """Quotes with their ages and what is the matter with them."""
    return [_view(snapshot, quote) for quote in quotes]


def _view(snapshot: MarketSnapshot, quote: Quote) -> QuoteView:
    offer = quote.offer
    return QuoteView(
        key=offer.key,
        offer=offer,
        price_micro_usd_h=quote.price_micro_usd_h,
        list_micro_usd_h=snapshot.list_micro_usd_h.get(offer.key),
        micro_usd_per_gpu_h=round(micro_usd_per_gpu_h(quote)),
        micro_usd_per_pflop_h=round(micro_usd_per_pflop_h(quote)),
        effective_at_ms=quote.effective_at_ms,
        observed_at_ms=quote.observed_at_ms,
        age_s=quote.age_s(snapshot.at_ms),
        source=quote.source,
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
