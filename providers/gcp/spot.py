"""The spot price of each machine type in each region, from `advice.capacityHistory`. Asked as seldom as it may be.

The price list is read with every poll anyway. So a type is asked about when its price there has moved, and once an hour;
in one poll at most sixty are. Whatever has no answer has the price list's price: nothing is missing then but the date
that the advisor knows better. For the same reason a failure of the advisor does not fail the poll.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from broker.core.errors import ProviderDown, Throttled
from broker.core.ports import Clock
from broker.core.time import DAY_S, HOUR_S, MS
from providers.gcp.advice import HISTORY, Advisor, SpotPrice
from providers.gcp.skus import MachinePrice

SOURCE = "gcp:capacity_history"

Place = tuple[str, str]
"""Region and machine type."""

_EVERY_MS = HOUR_S * MS
_MOST_CALLS = 60
# Data come by the day; an interval that ended before is a gap in them, and says nothing about now.
_LATE_MS = 2 * DAY_S * MS
# A price that is less than this share of the sum of the machine's parts would be that of a machine without its GPUs.
_TOO_CHEAP = Decimal("0.5")


@dataclass(frozen=True)
class _Known:
    """What was answered, and what the price list said then."""

    asked_at_ms: int
    listed: MachinePrice | None
    price: SpotPrice | None


class SpotPrices:
    """Keeps the newest price of each place.

    Attributes:
        failure: Why the advisor failed at the last poll; empty when it did not.
    """

    def __init__(self, advisor: Advisor, clock: Clock) -> None:
        self._advisor = advisor
        self._clock = clock
        self._known: dict[Place, _Known] = {}
        self.failure = ""

    def newest(self, listed: Mapping[Place, MachinePrice | None]) -> dict[Place, SpotPrice]:
        """The price now of every place that has one by the advisor.

        Args:
            listed: Every place that is wanted, with its spot price by the price list.

        Raises:
            ProviderError: what fails for every other call, too: no credentials.
        """
        now_ms = self._clock.now_ms()
        self._known = {place: known for place, known in self._known.items() if place in listed}
        due = [
            place
            for place, price in listed.items()
            if self._is_due(place, price, now_ms)
            and not self._advisor.refusal(HISTORY)
            and not self._advisor.refusal(HISTORY, *place)
        ]
        due.sort(key=lambda place: self._known[place].asked_at_ms if place in self._known else 0)
        self.failure = ""
        for place in due[:_MOST_CALLS]:
            try:
                prices = self._advisor.prices(*place)
            except (ProviderDown, Throttled) as error:
                self.failure = str(error)
                break
            if prices is None:
                self._known.pop(place, None)
                continue
            self._known[place] = _Known(now_ms, listed[place], current(prices, now_ms))
        return {
            place: known.price
            for place, known in self._known.items()
            if known.price is not None and self._is_good(known, listed[place])
        }

    def _is_due(self, place: Place, listed: MachinePrice | None, now_ms: int) -> bool:
        known = self._known.get(place)
        return known is None or known.listed != listed or now_ms - known.asked_at_ms >= _EVERY_MS

    @staticmethod
    def _is_good(known: _Known, listed: MachinePrice | None) -> bool:
        """Whether the answer is still about this price, and one of a whole machine."""
        if known.listed != listed or known.price is None:
            return False
        comparable = listed is not None and listed.currency == known.price.currency
        return not comparable or listed is None or known.price.amount >= _TOO_CHEAP * listed.amount


def current(prices: list[SpotPrice], now_ms: int) -> SpotPrice | None:
    """The newest price that has begun, unless it ended too long ago."""
    begun = [price for price in prices if price.from_ms <= now_ms]
    if not begun:
        return None
    newest = max(begun, key=lambda price: price.from_ms)
    return None if newest.to_ms is not None and newest.to_ms < now_ms - _LATE_MS else newest
