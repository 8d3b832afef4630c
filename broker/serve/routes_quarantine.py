"""``/api/v1/quarantine``: readings that are kept and not believed; who believes one, or has it forgotten."""

from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated

from fastapi import APIRouter, Body
from pydantic import Field

from broker.core.errors import Conflict, NotFound
from broker.core.model import Event
from broker.core.money import format_usd
from broker.core.offer import Offer
from broker.core.time import MS
from broker.market.confirming import CONFIRMED, confirmed
from broker.serve.auth import Broker, Operator, Viewer
from broker.serve.services import Services
from broker.serve.views import Listing
from broker.store.doubts import Quarantined, is_gpu_known

router = APIRouter(prefix="/api/v1/quarantine", tags=["market"])

_OFFERS_MAX = 10_000
# Two letters of a key: offers of one machine in two zones differ by one, and most keys of a cloud by a third.
_NEAR = 0.93


@dataclass(frozen=True)
class DoubtView:
    """A reading in quarantine.

    Attributes:
        gpu_known: False where its GPU is one that this release does not know: then nobody can decide on it.
        price_text, currency: As the cloud wrote it.
        reason: Why it is not believed.
        times_seen: Polls in a row that have said the same.
        held_s: For how long they have; of a stretch without a poll three hours count at most.
        needed_s: For how long they must, so that it is believed; null when no time proves anything.
        price_micro_usd_h: The price that holds meanwhile; null when none is known.
    """

    key: str
    offer: Offer
    gpu_known: bool
    price_text: str
    currency: str
    source: str
    reason: str
    first_seen_ms: int
    last_seen_ms: int
    times_seen: int
    held_s: int
    needed_s: int | None
    price_micro_usd_h: int | None


@dataclass(frozen=True)
class Believed:
    """What is the price now, by a person's word."""

    key: str
    price_micro_usd_h: int
    before_micro_usd_h: int | None
    by: str


@dataclass(frozen=True)
class Forgotten:
    """What is no longer in quarantine; it is again when it is read again."""

    key: str
    price_text: str
    by: str


@router.get("")
def quarantine(_viewer: Viewer, broker: Broker, cloud: str | None = None) -> Listing[DoubtView]:
    """What is doubted now, oldest first."""
    now = broker.history.now()
    entries = sorted(broker.history.quarantined().items(), key=lambda item: (item[1].first_seen_ms, item[0]))
    items = [
        DoubtView(
            key,
            entry.raw.offer,
            is_gpu_known(entry),
            entry.raw.price_text,
            entry.raw.currency,
            entry.raw.source,
            entry.reason,
            entry.first_seen_ms,
            entry.last_seen_ms,
            entry.times_seen,
            entry.held_ms // MS,
            None if entry.needed_ms is None else entry.needed_ms // MS,
            now[key].price_micro_usd_h if key in now else None,
        )
        for key, entry in entries
        if cloud is None or cloud.lower() == entry.raw.offer.cloud
    ]
    return Listing(at_ms=broker.clock.now_ms(), items=items[:_OFFERS_MAX])


_Key = Annotated[str, Field(description="Offer key.", min_length=1, max_length=500)]
_Seen = Annotated[
    str | None,
    Body(embed=True, description="The price that was shown; refused when the newest reading is another."),
]


@router.post("/confirm")
def confirm(
    operator: Operator, broker: Broker, offer: Annotated[_Key, Body(embed=True)], price_text: _Seen = None
) -> Believed:
    """Believe the newest reading of an offer now. It stays believed for as long as the cloud says the same."""
    entry = _entry(broker, offer, price_text)
    before = broker.history.now().get(offer)
    quote = confirmed(entry, before)
    now_ms = broker.clock.now_ms()
    # The event is committed only when the price has been: two databases, so a crash in between loses the event.
    with broker.store.write() as tx:
        tx.emit(_event("quote.confirmed", now_ms, operator.name, entry))
        if not broker.history.believe(quote, entry.raw.price_text, now_ms):
            raise Conflict(f"{offer} has just been read anew; look again")
    broker.wake()
    return Believed(
        offer, quote.price_micro_usd_h, before.price_micro_usd_h if before else None, operator.name
    )


@router.post("/drop")
def drop(
    operator: Operator, broker: Broker, offer: Annotated[_Key, Body(embed=True)], price_text: _Seen = None
) -> Forgotten:
    """Forget the newest reading of an offer. It is doubted again when it comes again, as if for the first time."""
    entry = _entry(broker, offer, price_text)
    now_ms = broker.clock.now_ms()
    with broker.store.write() as tx:
        tx.emit(_event("quote.dropped", now_ms, operator.name, entry))
        if not broker.history.release(offer, entry.raw.price_text, now_ms):
            raise Conflict(f"{offer} has just been read anew; look again")
    broker.wake()
    return Forgotten(offer, entry.raw.price_text, operator.name)


def _entry(broker: Services, offer: str, price_text: str | None) -> Quarantined:
    doubted = broker.history.quarantined()
    entry = doubted.get(offer)
    if entry is None:
        raise NotFound(f"nothing of {offer} is in quarantine{_instead(broker, offer, doubted)}")
    if price_text not in (None, entry.raw.price_text):
        raise Conflict(f"{offer} now reads {entry.raw.price_text}, not {price_text}; look again")
    return entry


def _instead(broker: Services, offer: str, doubted: Collection[str]) -> str:
    """What is known of an offer that nobody doubts; a slip only of one that nobody knows."""
    quote = broker.history.now().get(offer)
    if quote is not None:
        was = " was confirmed, and" if quote.source.endswith(CONFIRMED) else ""
        return f": its price{was} is {format_usd(quote.price_micro_usd_h)}/h"
    near = get_close_matches(offer, doubted, n=1, cutoff=_NEAR)
    return f"; did you mean {near[0]}?" if near else "; `broker quarantine list` shows what is"


def _event(kind: str, at_ms: int, actor: str, entry: Quarantined) -> Event:
    raw = entry.raw
    data = {
        "offer": raw.offer.key,
        "price_text": raw.price_text,
        "currency": raw.currency,
        "reason": entry.reason,
    }
    return Event(kind, at_ms, actor=actor, data=data | {"source": raw.source, "times_seen": entry.times_seen})
