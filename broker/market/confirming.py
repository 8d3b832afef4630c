"""A person believes a reading that the market doubts, or has it forgotten. Pure.

Nothing more is kept than the price itself: it is the price now from then on, and the market doubts no price that it
believes already, whatever that GPU can cost (`broker.market.quarantine.judge`).
"""

from broker.core.errors import Refused
from broker.core.gpu import GPUS
from broker.core.money import format_usd
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


def check_droppable(entry: Quarantined, current: Quote | None) -> None:
    """Whether a reading may be forgotten.

    Where the price now is believed with reserve, the row in quarantine *is* the reserve: without it the price would
    count as settled, and move jobs.

    Args:
        entry: In quarantine.
        current: The price now.

    Raises:
        Refused: it may not.
    """
    if current is None or entry.before_micro_usd_h in (None, current.price_micro_usd_h):
        return
    assert entry.before_micro_usd_h is not None
    now, before = format_usd(current.price_micro_usd_h), format_usd(entry.before_micro_usd_h)
    needed = "" if entry.polls_needed is None else f" of {entry.polls_needed}"
    raise Refused(
        f"{entry.raw.offer.key} is {now}/h already, with reserve, and was {before}/h: to forget the reading would settle "
        f"it. {entry.times_seen}{needed} polls have read {entry.raw.price_text}: wait for more, or confirm it"
    )
