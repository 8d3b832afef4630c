"""A pool: one thing the lab sells, with its price series and its stock. Times are whole seconds since 1970."""

from bisect import bisect_right
from dataclasses import dataclass, field
from random import Random

from lab.listing import Listing

HISTORY_S = 3 * 86_400
STEP_S = 6 * 3600


@dataclass(frozen=True)
class PriceChange:
    """From `at_s` on, the price is this."""

    at_s: int
    price_micro_usd_h: int


@dataclass
class Pool:
    """One listing, live.

    Attributes:
        changes: Change points, ascending, never empty; the first lies before the start of the lab.
        stock: Machines that may exist at once; None is unlimited.
    """

    listing: Listing
    changes: list[PriceChange]
    stock: int | None = None
    _times: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._times = [change.at_s for change in self.changes]

    @property
    def key(self) -> str:
        """The offer key."""
        return self.listing.key

    def at(self, at_s: int) -> PriceChange:
        """The change in force at a moment; the first one also before it."""
        return self.changes[max(0, bisect_right(self._times, at_s) - 1)]

    def change(self, at_s: int, price_micro_usd_h: int) -> bool:
        """Set the price from a moment on; False when it is that already. Time never runs backwards here."""
        assert at_s >= self._times[-1], "a price change in the past would rewrite bills"
        assert price_micro_usd_h > 0, price_micro_usd_h
        if self.changes[-1].price_micro_usd_h == price_micro_usd_h:
            return False
        if self._times[-1] == at_s:  # two changes within a second: the later one is the price of that second
            self.changes.pop()
            self._times.pop()
        self.changes.append(PriceChange(at_s, price_micro_usd_h))
        self._times.append(at_s)
        return True

    def micro_usd_seconds(self, from_s: int, to_s: int) -> int:
        """The integral of the price over ``[from_s, to_s)``, in micro-USD an hour times seconds. Exact."""
        total = 0
        for index, change in enumerate(self.changes):
            start = from_s if index == 0 else max(from_s, change.at_s)
            end = to_s if index + 1 == len(self.changes) else min(to_s, self._times[index + 1])
            total += max(0, end - start) * change.price_micro_usd_h
        return total

    def micro_usd_seconds_by_the_hour(self, from_s: int, to_s: int) -> int:
        """The same where every hour since `from_s` costs what the price was when it began."""
        return sum(
            (min(hour_s + 3600, to_s) - hour_s) * self.at(hour_s).price_micro_usd_h
            for hour_s in range(from_s, to_s, 3600)
        )


def opened(listing: Listing, start_s: int, price_micro_usd_h: int, stock: int | None, seed: int) -> Pool:
    """A pool at the start of the lab. AWS spot has three days of small changes behind it; they end in the price given."""
    changes = [PriceChange(start_s - HISTORY_S, price_micro_usd_h)]
    if listing.zone.cloud == "aws" and listing.market == "spot":
        random = Random(f"{seed}/{listing.key}")
        first = start_s - HISTORY_S
        steps = [first + n * STEP_S + random.randrange(STEP_S // 2) for n in range(HISTORY_S // STEP_S)]
        changes = [PriceChange(at, _nudged(random, price_micro_usd_h)) for at in steps[:-1]]
        changes.append(PriceChange(steps[-1], price_micro_usd_h))
    return Pool(listing, changes, stock)


def _nudged(random: Random, price: int) -> int:
    """Within one per cent, to the hundredth of a cent that AWS quotes."""
    return max(100, round(price * (1 + random.uniform(-0.01, 0.01)) / 100) * 100)
