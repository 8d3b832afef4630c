"""For how long a reading that looks wrong must hold before it is believed. Pure.

What counts is the time over which a price was watched to stay, not how often somebody looked: restarts and polls on
demand, seconds apart, add seconds. Of a stretch in which nobody looked three hours count at most.

    another price between two usual polls, far away     half an hour
    a list with two meters (Azure):
        back by the licence                              at once
        by the licence                                   never; a second source, or a person
        a step of the kind that its prices take          half an hour
        anything else                                    twelve hours

`docs/decisions/0006-two-meters.md` says why.
"""

from dataclasses import dataclass

from broker.core.money import format_usd
from broker.core.offer import Market, Offer
from broker.core.time import HOUR_S, MS, format_duration
from broker.market.flips import is_ordinary, meter_flip

SHORT_MS = 30 * 60 * MS
# Of 155 false rises by no known amount, the longest were read over six hours and gone after nine and a half.
LONG_MS = 12 * HOUR_S * MS
# The usual distance of the polls that this was measured on: who looks again later than that has seen no more.
LONGEST_GAP_MS = 3 * HOUR_S * MS
SAME_SHARE = 0.01


@dataclass(frozen=True)
class Pending:
    """A reading that waits for others that say the same.

    Attributes:
        price_micro_usd_h: What it said; 0 when that is no price.
        seen_at_ms: Start of the newest poll that read it.
        times: How many polls in a row have.
        held_ms: For how long it has been watched to stay.
        counts: Whether that proves anything.
        first_seen_ms: Start of the first poll that read it.
        source: Which call said so.
    """

    price_micro_usd_h: int
    seen_at_ms: int
    times: int = 1
    held_ms: int = 0
    counts: bool = True
    first_seen_ms: int | None = None
    source: str = ""

    def says(self, price_micro_usd_h: int, same_share: float = SAME_SHARE) -> bool:
        """Whether it is about that price."""
        return abs(price_micro_usd_h - self.price_micro_usd_h) <= same_share * self.price_micro_usd_h

    def since_ms(self, price_micro_usd_h: int, observed_at_ms: int) -> int:
        """Since when this very price has been read without a break."""
        if self.first_seen_ms is None or price_micro_usd_h != self.price_micro_usd_h:
            return observed_at_ms
        return min(self.first_seen_ms, observed_at_ms)


@dataclass(frozen=True)
class Wait:
    """What a reading waits for.

    Attributes:
        reason: For people; the same from poll to poll.
        needed_ms: For how long it must be watched to stay; None when no time proves anything.
        held_ms: For how long it has been.
        times: Polls in a row that say so, this one among them.
    """

    reason: str
    needed_ms: int | None
    held_ms: int = 0
    times: int = 1

    def after(
        self, pending: Pending | None, price_micro_usd_h: int, observed_at_ms: int, same_share: float
    ) -> "Wait | None":
        """What is left to wait for at a poll that began then; None when it has held for long enough.

        Args:
            pending: The reading before, if it was not believed.
            price_micro_usd_h: This reading.
            same_share: Two prices are the same when they differ by no more.
        """
        if pending is None or not pending.says(price_micro_usd_h, same_share):
            return self
        gap_ms = max(0, observed_at_ms - pending.seen_at_ms)
        held_ms = pending.held_ms + min(gap_ms, LONGEST_GAP_MS) if pending.counts else 0
        if self.needed_ms is not None and held_ms >= self.needed_ms:
            return None
        return Wait(self.reason, self.needed_ms, held_ms, pending.times + (gap_ms > 0))


def two_meters(
    offer: Offer, price_micro_usd_h: int, last_micro_usd_h: int, on_demand_micro_usd_h: int | None
) -> Wait | None:
    """What a change on a list with two meters waits for; None when it is believed at once.

    Args:
        last_micro_usd_h: The price that holds.
        on_demand_micro_usd_h: Of the same machine.
    """
    flip = meter_flip(offer, last_micro_usd_h, price_micro_usd_h, on_demand_micro_usd_h)
    if flip < 0:
        return None
    was, now = format_usd(last_micro_usd_h), format_usd(price_micro_usd_h)
    if flip:
        on_demand = offer.market is Market.ON_DEMAND
        amount = "what the Windows licence costs" if on_demand else "the Windows meter's share"
        return Wait(f"rose from {was}/h to {now}/h, by {amount}: repetition proves nothing", None)
    ordinary = is_ordinary(offer, last_micro_usd_h, price_micro_usd_h, on_demand_micro_usd_h)
    needed_ms = SHORT_MS if ordinary else LONG_MS
    return Wait(
        f"changed from {was}/h to {now}/h on a list that may say one meter for another; believed when it has held for "
        f"{format_duration(needed_ms / MS)}",
        needed_ms,
    )
