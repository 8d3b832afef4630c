"""Changes on a list with two meters: which is believed, after how many polls, and from when on it may move a job. Pure.

Base is the price that held last without reserve. What counts is how many polls in a row have said the same:

    the base again                         believed at once: the change was false
    base less the licence                  believed at once: the base was the meter with the licence
    base plus the licence                  never by repetition; by a second source, or a person
    anything else, spot                    believed when it has held for four polls
    anything else, on-demand               believed when it has held for two; moves nobody before it has for four

A price that is believed with reserve is money, and what a job is placed by that has lost its place; it is no reason
to leave a place or to go to one. `docs/decisions/0006-two-meters.md` says why.
"""

from dataclasses import dataclass

from broker.core.money import format_usd
from broker.core.offer import Market, Offer
from broker.market.flips import meter_flip

SETTLED_POLLS = 4
BELIEVED_POLLS = 2
SAME_SHARE = 0.01


@dataclass(frozen=True)
class Pending:
    """A reading that waits for others that say the same.

    Attributes:
        price_micro_usd_h: What it said; 0 when that is no price.
        seen_at_ms: Start of the newest poll that read it.
        polls: How many polls in a row have.
        counts: Whether repetition proves anything.
        first_seen_ms: Start of the first poll that read it.
        source: Which call said so.
        before_micro_usd_h: The base.
    """

    price_micro_usd_h: int
    seen_at_ms: int
    polls: int = 1
    counts: bool = True
    first_seen_ms: int | None = None
    source: str = ""
    before_micro_usd_h: int | None = None

    def says(self, price_micro_usd_h: int, same_share: float = SAME_SHARE) -> bool:
        """Whether it is about that price."""
        return abs(price_micro_usd_h - self.price_micro_usd_h) <= same_share * self.price_micro_usd_h

    def polls_with(self, price_micro_usd_h: int, observed_at_ms: int, same_share: float = SAME_SHARE) -> int:
        """How many polls in a row say about this price now, one that began at `observed_at_ms` among them.

        Twice within one poll is one witness.
        """
        if not self.says(price_micro_usd_h, same_share):
            return 1
        return self.polls + (observed_at_ms > self.seen_at_ms)

    def since_ms(self, price_micro_usd_h: int, observed_at_ms: int) -> int:
        """Since when this very price has been read without a break."""
        if self.first_seen_ms is None or price_micro_usd_h != self.price_micro_usd_h:
            return observed_at_ms
        return min(self.first_seen_ms, observed_at_ms)


@dataclass(frozen=True)
class Reserve:
    """What is held against a reading.

    Attributes:
        reason: For people; the same from poll to poll.
        polls: In a row that say so, this one among them.
        polls_needed: Until nothing is held against it; None when repetition proves nothing.
        is_price: It is believed as a price already.
        before_micro_usd_h: The base.
    """

    reason: str
    polls: int
    polls_needed: int | None
    is_price: bool = False
    before_micro_usd_h: int | None = None


def reserve(
    offer: Offer,
    price_micro_usd_h: int,
    observed_at_ms: int,
    last_micro_usd_h: int,
    pending: Pending | None,
    on_demand_micro_usd_h: int | None,
) -> Reserve | None:
    """What is held against a reading of a list with two meters; None when nothing is.

    Args:
        last_micro_usd_h: The price that is believed, with or without reserve.
        pending: The reading before, if something was held against it.
        on_demand_micro_usd_h: Of the same machine.
    """
    base = last_micro_usd_h
    if pending is not None and pending.before_micro_usd_h is not None:
        base = pending.before_micro_usd_h
    if price_micro_usd_h == base:
        return None
    # A price that is believed with reserve may be the one without the licence, too.
    flips = {
        meter_flip(offer, known, price_micro_usd_h, on_demand_micro_usd_h)
        for known in {base, last_micro_usd_h} - {price_micro_usd_h}
    }
    polls = pending.polls_with(price_micro_usd_h, observed_at_ms) if pending else 1
    if 1 in flips:
        return Reserve(_dearer_meter(offer, base, price_micro_usd_h), polls, None, before_micro_usd_h=base)
    if -1 in flips:
        return None
    if pending is not None and not pending.counts:
        polls = 1
    if polls >= SETTLED_POLLS:
        return None
    is_price = price_micro_usd_h == last_micro_usd_h or (
        offer.market is Market.ON_DEMAND and polls >= BELIEVED_POLLS
    )
    return Reserve(_unsettled(base, price_micro_usd_h), polls, SETTLED_POLLS, is_price, base)


def _dearer_meter(offer: Offer, base: int, price: int) -> str:
    amount = (
        "what the Windows licence costs" if offer.market is Market.ON_DEMAND else "the Windows meter's share"
    )
    return f"rose from {format_usd(base)}/h to {format_usd(price)}/h, by {amount}: repetition proves nothing"


def _unsettled(base: int, price: int) -> str:
    return (
        f"changed from {format_usd(base)}/h to {format_usd(price)}/h on a list that may say one meter for another; "
        f"settled when {SETTLED_POLLS} polls in a row say so"
    )
