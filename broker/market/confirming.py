"""A person believes a reading that the market doubts. Pure.

Nothing more is kept than the price itself: it is the price now from then on, and the market doubts no price that it
believes already, whatever that GPU can cost (`broker.market.quarantine.judge`).
"""

from broker.core.errors import Refused
from broker.core.gpu import GPUS
from broker.core.offer import Quote
from broker.market.quarantine import price_of
from broker.store.doubts import Quarantined

CONFIRMED = "+confirmed"


def confirmed(entry: Quarantined, before: Quote | None) -> Quote:
    """The reading as a quote, as old as it is.

    Args:
        entry: In quarantine.
        before: The price now.

    Raises:
        Refused: no word of a person makes it a price.
    """
    raw = entry.raw
    price = price_of(raw)
    why = price if isinstance(price, str) else ""
    if not why and raw.offer.gpu not in GPUS:
        why = f"unknown GPU {raw.offer.gpu!r}"
    if not why and raw.offer.gpus < 1:
        why = f"{raw.offer.gpus} GPUs"
    if why:
        raise Refused(f"{raw.offer.key} cannot be believed: {why}")
    assert isinstance(price, int)
    since_ms = entry.first_seen_ms if raw.effective_at_ms is None else raw.effective_at_ms
    # As with any price now: one that claims to be older than the one it replaces holds since we saw it.
    if before is not None and since_ms <= before.effective_at_ms:
        since_ms = entry.last_seen_ms
    return Quote(
        raw.offer, price, min(since_ms, entry.last_seen_ms), entry.last_seen_ms, raw.source + CONFIRMED
    )
