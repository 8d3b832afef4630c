"""Markets that could have been: a recorded market's days, put together anew. Pure; chance is a hash of seed and name.

Whole days are drawn, of all offers together: what a day did to one price it did to the others, and the hours of a day keep
their place in it. Within a day prices are taken at an even pace.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from heapq import nsmallest
from typing import Final

from broker.core.offer import SPOT_PRIOR_LIFE_S, Market, Offer, Quote
from broker.core.spec import JobSpec
from broker.core.time import DAY_S, HOUR_S, MS
from broker.decision.fit import speed_tflops
from broker.paper.run import EMPTY_POOL_S

_DAY_MS: Final = DAY_S * MS
# What only time changes, such as the slack before a deadline, is seen this often.
_PACE_MS: Final = 3 * HOUR_S * MS
_SOURCE: Final = "resampled"
_WORD: Final = 2**64


def chance(seed: int, *names: object) -> float:
    """Evenly in [0, 1): the same for the same seed and names."""
    told = "/".join(str(name) for name in (seed, *names))
    return int.from_bytes(blake2b(told.encode(), digest_size=8).digest()) / _WORD


@dataclass(frozen=True)
class Asking:
    """When a policy is asked, by slots of a history.

    Attributes:
        slots: At their start.
        again: And once more, `again_ms` after their start: a wish to move must have lasted.
    """

    slots: frozenset[int]
    again: frozenset[int] = frozenset()
    again_ms: int = 0

    def __len__(self) -> int:
        return len(self.slots) + len(self.again)


@dataclass(frozen=True)
class Days:
    """A history cut into slots.

    Attributes:
        offers: That have a price in one of them.
        prices: One row a slot, in order: micro-USD an hour by offer; None where none is known.
        slot_ms: Length of one; a day has a whole number of them.
        count: Whole days.
        shown: One row a slot: numbers of the offers that a policy sees; empty: all of them.
    """

    offers: tuple[Offer, ...]
    prices: tuple[tuple[int | None, ...], ...]
    slot_ms: int
    count: int
    shown: tuple[tuple[int, ...], ...] = ()

    @cached_property
    def news(self) -> frozenset[int]:
        """Slots in which a price in sight is another one than in the slot before; the first of each day may be."""
        rows, a_day = [self.in_sight(n) for n in range(len(self.prices))], self.slots_a_day
        return frozenset(n for n in range(len(rows)) if n % a_day == 0 or rows[n] != rows[n - 1])

    def asking(self, again_ms: int) -> "Asking":
        """Asked where there is news, so much later again, and every few hours."""
        slots = self.news | self.rarely.slots
        if again_ms < self.slot_ms:
            return Asking(slots, self.news if again_ms else frozenset(), again_ms)
        again, a_day = -(-again_ms // self.slot_ms), self.slots_a_day
        return Asking(slots | {n + again for n in self.news if n % a_day + again < a_day})

    @cached_property
    def rarely(self) -> "Asking":
        """Asked every few hours, whatever the news: enough where nothing moves."""
        return Asking(frozenset(range(0, len(self.prices), max(1, _PACE_MS // self.slot_ms))))

    def in_sight(self, slot: int) -> dict[int, int]:
        """Prices that a policy sees then, by number of the offer."""
        row = self.prices[slot]
        numbers = self.shown[slot] if self.shown else range(len(row))
        return {number: price for number in numbers if (price := row[number]) is not None}

    @property
    def slots_a_day(self) -> int:
        """Slots of one."""
        return _DAY_MS // self.slot_ms


def cut(points: Mapping[Offer, Sequence[Quote]], from_ms: int, until_ms: int, slot_ms: int) -> Days:
    """Whole days from `from_ms` on; what is left over at the end is no day.

    Args:
        points: By offer, by the time that they took effect.
        slot_ms: Must divide a day.
    """
    assert _DAY_MS % slot_ms == 0, "slots fill a day"
    count = max(0, until_ms - from_ms) // _DAY_MS
    offers = tuple(offer for offer, held in sorted(points.items(), key=lambda item: item[0].key) if held)
    columns = []
    for offer in offers:
        held = points[offer]
        starts = [quote.effective_at_ms for quote in held]
        times = range(from_ms, from_ms + count * _DAY_MS, slot_ms)
        found = (bisect_right(starts, at_ms) - 1 for at_ms in times)
        columns.append([held[index].price_micro_usd_h if index >= 0 else None for index in found])
    return Days(offers, tuple(zip(*columns, strict=True)) if columns else (), slot_ms, count)


def cheapest_of(days: Days, spec: JobSpec, most: int) -> Days:
    """The same, of which a slot shows only the `most` cheapest of the offers that are equally fast, market by market.

    A policy chooses among the cheapest, or the fastest; the others only take time to weigh.
    """
    alike: dict[tuple[Market, float], list[int]] = {}
    for number, offer in enumerate(days.offers):
        alike.setdefault((offer.market, speed_tflops(offer, spec)), []).append(number)

    def cheapest(row: tuple[int | None, ...]) -> tuple[int, ...]:
        found: list[int] = []
        for numbers in alike.values():
            priced = ((price, n) for n in numbers if (price := row[n]) is not None)
            found += [number for _, number in nsmallest(most, priced)]
        return tuple(sorted(found))

    known = {row: cheapest(row) for row in dict.fromkeys(days.prices)}
    return replace(days, shown=tuple(known[row] for row in days.prices))


class Resampled:
    """One market that could have been. Satisfies `broker.paper.market.PaperMarket`.

    What the job was ever to be launched on stays in sight. Spot is taken back by chance, as often as the expected life of its pool says, each pool for itself; then it is empty for
    as long as a daemon leaves it alone.

    Args:
        days: There is a day, and an offer.
        asking: When a policy is asked.
        lives_s: Expected life by ``cloud/zone/instance_type``; a pool that is not there has the prior.
        seed, run: Which of all that could have been.
    """

    def __init__(
        self,
        days: Days,
        from_ms: int,
        until_ms: int,
        *,
        asking: Asking,
        lives_s: Mapping[str, float],
        seed: int,
        run: int,
    ) -> None:
        assert days.count > 0, "there is a day to draw"
        assert days.offers, "there is something to rent"
        self._days = days
        self._from_ms = from_ms
        self._until_ms = until_ms
        self._asking = asking
        self._lives_s = lives_s
        self._seed, self._run = seed, run
        drawn = -(-(until_ms - from_ms) // _DAY_MS)
        self._drawn = [int(chance(seed, run, "day", number) * days.count) for number in range(drawn)]
        self._taken: dict[str, list[int]] = {}
        self._numbers = {offer.key: number for number, offer in enumerate(days.offers)}
        self._asked_for: set[int] = set()
        self._shown: tuple[tuple[int, int], Mapping[str, Quote]] = ((-1, 0), {})

    def next_poll_ms(self, after_ms: int) -> int | None:
        """See `PaperMarket.next_poll_ms`."""
        asking, slot = self._asking, max(0, (after_ms - self._from_ms) // self._days.slot_ms)
        while (at_ms := self._from_ms + slot * self._days.slot_ms) < self._until_ms:
            history_slot = self._history_slot(slot)
            if at_ms > after_ms and (slot == 0 or history_slot in asking.slots):
                return at_ms
            again_ms = at_ms + asking.again_ms
            if again_ms > after_ms and history_slot in asking.again:
                return again_ms if again_ms < self._until_ms else None
            slot += 1
        return None

    def quotes(self, now_ms: int) -> Mapping[str, Quote]:
        """See `PaperMarket.quotes`: all prices of the slot, as of when the policy was to be asked last."""
        slot = (min(now_ms, self._until_ms - 1) - self._from_ms) // self._days.slot_ms
        at_ms = self._from_ms + slot * self._days.slot_ms
        if now_ms >= at_ms + self._asking.again_ms:
            at_ms += self._asking.again_ms
        if (at_ms, len(self._asked_for)) != self._shown[0]:
            history_slot = self._history_slot(slot)
            seen = self._days.in_sight(history_slot)
            for number in self._asked_for:
                price = self._days.prices[history_slot][number]
                if price is not None:
                    seen[number] = price
            offers = self._days.offers
            quotes = (Quote(offers[n], price, at_ms, at_ms, _SOURCE) for n, price in seen.items())
            self._shown = (at_ms, len(self._asked_for)), {quote.offer.key: quote for quote in quotes}
        return self._shown[1]

    def spot_failure_share(self, now_ms: int) -> float | None:
        """See `PaperMarket.spot_failure_share`: by the job's own launches."""
        return None

    def spot_life_s(self, now_ms: int) -> Mapping[str, float]:
        """See `PaperMarket.spot_life_s`."""
        return self._lives_s

    def stock(self, offer: Offer, now_ms: int) -> int | None:
        """See `PaperMarket.stock`."""
        self._asked_for.add(self._numbers[offer.key])
        if offer.market is not Market.SPOT:
            return None
        taken = self._taken_ms(offer, now_ms)
        index = bisect_right(taken, now_ms) - 1
        return 0 if index >= 0 and now_ms < taken[index] + EMPTY_POOL_S * MS else None

    def next_shortage_ms(self, offer: Offer, nodes: int, after_ms: int) -> int | None:
        """See `PaperMarket.next_shortage_ms`."""
        if offer.market is not Market.SPOT:
            return None
        taken = self._taken_ms(offer, after_ms)
        at_ms = taken[bisect_right(taken, after_ms)]
        return at_ms if at_ms < self._until_ms else None

    def points(self, offer: Offer) -> Sequence[Quote]:
        """See `PaperMarket.points`."""
        number = self._numbers[offer.key]
        found: list[Quote] = []
        for slot in range(-(-(self._until_ms - self._from_ms) // self._days.slot_ms)):
            price = self._row(slot)[number]
            if price is not None and (not found or found[-1].price_micro_usd_h != price):
                at_ms = self._from_ms + slot * self._days.slot_ms
                found.append(Quote(offer, price, at_ms, at_ms, _SOURCE))
        return found

    def _history_slot(self, slot: int) -> int:
        day, rest = divmod(slot, self._days.slots_a_day)
        return self._drawn[day] * self._days.slots_a_day + rest

    def _row(self, slot: int) -> tuple[int | None, ...]:
        return self._days.prices[self._history_slot(slot)]

    def _taken_ms(self, offer: Offer, after_ms: int) -> list[int]:
        """When the pool is taken back, until one that is later than that."""
        taken = self._taken.setdefault(offer.key, [])
        last_ms = taken[-1] if taken else self._from_ms
        life_s = self._lives_s.get(f"{offer.cloud}/{offer.zone}/{offer.instance_type}", SPOT_PRIOR_LIFE_S)
        while not taken or last_ms <= after_ms:
            drawn = chance(self._seed, self._run, offer.key, len(taken))
            # Never twice within the time that it is empty for.
            wait_s = max(-math.log(1.0 - drawn) * life_s, float(EMPTY_POOL_S))
            last_ms += round(wait_s * MS)
            taken.append(last_ms)
        return taken


def percentiles(values: Iterable[float], shares: Sequence[float] = (0.1, 0.5, 0.9)) -> list[float]:
    """The smallest value that so large a share of them does not exceed; there must be one."""
    ordered = sorted(values)
    return [ordered[max(0, math.ceil(share * len(ordered)) - 1)] for share in shares]
