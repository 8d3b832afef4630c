"""Finding the cheapest offers in a market of a hundred thousand without looking at each of them.

Offers that differ only in place, machine and price share a cell: one cloud, GPU, number of GPUs and market. There are a
few hundred cells, and in each the offers lie in order of price, which is the order of every cost as well. A filter is a
few ANDs over the cells, and the cheapest of them are merged. Every cell has its cheapest offer at hand, so that only
offers that are found are looked at.

More of a search's time goes into waiting for memory than into working anything out. So the prices of a cell are integers
side by side, and not objects, and a quote is known by its number, and not by its key.

A poll changes few prices: telling which ones costs a comparison an offer (bench/README.md has the times).
"""

import re
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, MutableSequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import translate
from functools import lru_cache
from heapq import heapify, heappop, heapreplace
from itertools import compress
from operator import ne
from threading import Lock

from broker.core.offer import Market, Offer, Quote

_Integers = MutableSequence[int]
# Of one cell: cost and key of the offer that is next, which one that is, what prices are divided by; prices and numbers.
_Run = tuple[float, str, int, float, _Integers, _Integers]


class Order(StrEnum):
    """What the cheapest is."""

    GPU = "gpu"
    """Dollars an hour of one GPU."""
    FLOP = "flop"
    """Dollars an hour of a PFLOPS (`broker.core.gpu.GpuModel.speed`)."""


@dataclass(frozen=True)
class Wanted:
    """A filter; what is None lets everything through.

    Attributes:
        gpu: Family or exact SKU, upper and lower case aside.
        gpus_min, gpus_max: GPUs of one instance.
        gpu_memory_gib_min: Of one GPU.
        vram_gib_min: Of all GPUs of one instance.
        cloud: Upper and lower case aside.
        region: Pattern with ``*`` and ``?``, upper and lower case aside.
        price_micro_usd_h_max: Of one instance.
    """

    gpu: str | None = None
    gpus_min: int | None = None
    gpus_max: int | None = None
    gpu_memory_gib_min: int | None = None
    vram_gib_min: int | None = None
    market: Market | None = None
    cloud: str | None = None
    region: str | None = None
    price_micro_usd_h_max: int | None = None

    def admits(self, quote: Quote) -> bool:
        """Whether a quote passes: what the index must agree with."""
        offer = quote.offer
        return (
            (self.gpu is None or self.gpu.lower() in (offer.gpu.lower(), offer.model.family.lower()))
            and (self.gpus_min is None or offer.gpus >= self.gpus_min)
            and (self.gpus_max is None or offer.gpus <= self.gpus_max)
            and (self.gpu_memory_gib_min is None or offer.model.memory_gib >= self.gpu_memory_gib_min)
            and (self.vram_gib_min is None or _vram_gib(offer) >= self.vram_gib_min)
            and self.market in (None, offer.market)
            and (self.cloud is None or self.cloud.lower() == offer.cloud)
            and (self.region is None or _pattern(self.region).match(offer.region) is not None)
            and (self.price_micro_usd_h_max is None or quote.price_micro_usd_h <= self.price_micro_usd_h_max)
        )


def micro_usd_per_gpu_h(quote: Quote) -> float:
    """Of one GPU with its share of the machine."""
    return quote.price_micro_usd_h / _PER[Order.GPU](quote.offer)


def micro_usd_per_pflop_h(quote: Quote) -> float:
    """Of 10^15 floating point operations a second for an hour, at the speed that we rank GPUs by."""
    return quote.price_micro_usd_h / _PER[Order.FLOP](quote.offer)


def _vram_gib(offer: Offer) -> int:
    return offer.gpus * offer.model.memory_gib


# What a cell has one value of.
_ATTRIBUTES: Mapping[str, Callable[[Offer], Hashable]] = {
    "sku": lambda offer: offer.gpu.lower(),
    "family": lambda offer: offer.model.family.lower(),
    "gpus": lambda offer: offer.gpus,
    "gpu_memory_gib": lambda offer: offer.model.memory_gib,
    "vram_gib": _vram_gib,
    "market": lambda offer: offer.market,
    "cloud": lambda offer: offer.cloud,
}
# What a price is divided by: the same for all offers of a cell.
_PER: Mapping[Order, Callable[[Offer], float]] = {
    Order.GPU: lambda offer: offer.gpus,
    Order.FLOP: lambda offer: offer.gpus * offer.model.speed / 1000,
}


@dataclass
class _All:
    """All quotes by their numbers, which count them in the order of their mapping."""

    quotes: list[Quote] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    offers: list[Offer] = field(default_factory=list)
    prices: list[int] = field(default_factory=list)


class _Cell:
    """Offers of one cloud, GPU, number of GPUs and market, cheapest first; of equal ones the first by key.

    Attributes:
        runs: By order: all of them, the cheapest one next. Nothing where there are none.
    """

    def __init__(self, like: Offer, everything: _All) -> None:
        self._per = {order.value: per(like) for order, per in _PER.items()}
        self._all = everything
        self._prices = array("q")
        self._numbers = array("q")
        self.runs: dict[str, _Run] = {}

    def take_out(self, number: int) -> None:
        at = self._numbers.index(number, bisect_left(self._prices, self._all.prices[number]))
        del self._prices[at], self._numbers[at]

    def put_in(self, numbers: list[int]) -> None:
        prices, keys = self._all.prices, self._all.keys
        if len(numbers) > len(self._numbers):
            every = sorted([*self._numbers, *numbers], key=lambda number: (prices[number], keys[number]))
            self._prices, self._numbers = array("q", map(prices.__getitem__, every)), array("q", every)
            return
        for number in numbers:
            low, high = bisect_left(self._prices, prices[number]), bisect_right(self._prices, prices[number])
            at = bisect_left(self._numbers, keys[number], low, high, key=keys.__getitem__)
            self._prices.insert(at, prices[number])
            self._numbers.insert(at, number)

    def settle(self) -> None:
        """To be called after changes, before anything is asked."""
        self.runs = {
            order: self._run(order, self._prices, self._numbers) for order in self._per if self._numbers
        }

    def run(self, order: str, regions: Collection[str] | None) -> _Run | None:
        """What lies in some regions, or in any; None for nothing."""
        if regions is None:
            return self.runs.get(order)
        here = [self._all.offers[number].region in regions for number in self._numbers]
        if not any(here):
            return None
        prices, numbers = compress(self._prices, here), compress(self._numbers, here)
        return self._run(order, array("q", prices), array("q", numbers))

    def _run(self, order: str, prices: _Integers, numbers: _Integers) -> _Run:
        per = self._per[order]
        return prices[0] / per, self._all.keys[numbers[0]], 0, per, prices, numbers


class MarketIndex:
    """The quotes of the newest snapshot, by what people filter by. Safe for use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._quotes: Mapping[str, Quote] = {}
        self._forget()

    def _forget(self) -> None:
        self._all = _All()
        self._cells: list[_Cell] = []
        self._cell_of: dict[Hashable, _Cell] = {}
        # By attribute and value: the cells that have it, a byte each, so that the sum is what `compress` takes.
        self._having: dict[str, dict[Hashable, int]] = {name: {} for name in _ATTRIBUTES}
        self._regions: set[str] = set()

    def find(
        self, quotes: Mapping[str, Quote], wanted: Wanted, limit: int, order: Order = Order.GPU
    ) -> list[Quote]:
        """The cheapest quotes that a filter admits; of equal ones the first by key.

        Args:
            quotes: Of a snapshot. Taken in when it is another mapping than the one before; never changed by anybody.
        """
        with self._lock:
            if quotes is not self._quotes:
                self._take_in(quotes)
            numbers = self._cheapest(list(self._runs(wanted, order)), limit, _most(wanted))
            return [self._all.quotes[number] for number in numbers]

    def count(self, quotes: Mapping[str, Quote], wanted: Wanted) -> dict[str, int]:
        """How many quotes a filter admits, by cloud; clouds that have none are left out."""
        with self._lock:
            if quotes is not self._quotes:
                self._take_in(quotes)
            asked = (
                [wanted.cloud.lower()]
                if wanted.cloud is not None
                else sorted(map(str, self._having["cloud"]))
            )
            runs = {cloud: self._runs(replace(wanted, cloud=cloud), Order.GPU) for cloud in asked}
            counts = {
                cloud: sum(bisect_right(prices, _most(wanted)) for *_, prices, _ in found)
                for cloud, found in runs.items()
            }
        return {cloud: offers for cloud, offers in counts.items() if offers}

    def _runs(self, wanted: Wanted, order: Order) -> Iterator[_Run]:
        """What the filter admits of each cell, and behind that what is too dear for it."""
        regions = None
        if wanted.region is not None:
            regions = set(filter(_pattern(wanted.region).match, self._regions))
        most = _most(wanted)
        name = order.value  # the hash of a plain text is kept, that of an Enum is worked out each time
        for cell in compress(self._cells, self._matching(wanted).to_bytes(len(self._cells), "little")):
            run = cell.run(name, regions)
            if run is not None and run[4][0] <= most:  # its lowest price
                yield run

    def _cheapest(self, runs: list[_Run], limit: int, most_micro_usd_h: int) -> list[int]:
        """Numbers of the cheapest offers of all runs, in order."""
        keys = self._all.keys
        heapify(runs)
        found: list[int] = []
        while runs and len(found) < limit:
            _, _, at, per, prices, numbers = runs[0]
            found.append(numbers[at])
            at += 1
            if at < len(prices) and prices[at] <= most_micro_usd_h:
                heapreplace(runs, (prices[at] / per, keys[numbers[at]], at, per, prices, numbers))
            else:
                heappop(runs)
        return found

    def _matching(self, wanted: Wanted) -> int:
        cells = (1 << 8 * len(self._cells)) - 1
        if wanted.gpu is not None:
            name = wanted.gpu.lower()
            cells &= self._of("sku", name) | self._of("family", name)
        if wanted.market is not None:
            cells &= self._of("market", wanted.market)
        if wanted.cloud is not None:
            cells &= self._of("cloud", wanted.cloud.lower())
        for name, least, most in (
            ("gpus", wanted.gpus_min, wanted.gpus_max),
            ("gpu_memory_gib", wanted.gpu_memory_gib_min, None),
            ("vram_gib", wanted.vram_gib_min, None),
        ):
            if least is not None or most is not None:
                cells &= self._between(name, least, most)
        return cells

    def _of(self, attribute: str, value: Hashable) -> int:
        return self._having[attribute].get(value, 0)

    def _between(self, attribute: str, least: int | None, most: int | None) -> int:
        cells = 0
        for value, having in self._having[attribute].items():
            assert isinstance(value, int), f"{attribute} is a number"
            if (least is None or value >= least) and (most is None or value <= most):
                cells |= having
        return cells

    def _take_in(self, quotes: Mapping[str, Quote]) -> None:
        """Move what has another price or shape than before; of the rest only the newest times count."""
        listed = list(quotes.values())
        # Of lists, what is the same object is not compared, and an offer mostly is.
        offers, prices = [quote.offer for quote in listed], [quote.price_micro_usd_h for quote in listed]
        known = len(self._all.offers)
        same = offers[:known] == self._all.offers
        if not same and [offer.key for offer in offers[:known]] != self._all.keys:
            # New offers come last. Where one is gone, all behind it have another number.
            self._forget()
            known = 0
        moved = set(compress(range(known), map(ne, self._all.prices, prices)))
        if not same:
            moved.update(compress(range(known), map(ne, self._all.offers, offers)))
        touched: set[_Cell] = set()
        for number in moved:
            cell = self._cell(self._all.offers[number])
            cell.take_out(number)
            touched.add(cell)
        self._quotes = quotes
        self._all.quotes, self._all.offers, self._all.prices = listed, offers, prices
        self._all.keys += [offer.key for offer in offers[known:]]
        coming: dict[_Cell, list[int]] = defaultdict(list)
        for number in (*moved, *range(known, len(listed))):
            coming[self._cell(offers[number])].append(number)
            self._regions.add(offers[number].region)
        for cell, numbers in coming.items():
            cell.put_in(numbers)
        for cell in touched | coming.keys():
            cell.settle()

    def _cell(self, offer: Offer) -> _Cell:
        shape = offer.cloud, offer.gpu, offer.gpus, offer.market
        cell = self._cell_of.get(shape)
        if cell is None:
            cell = self._cell_of[shape] = _Cell(offer, self._all)
            for name, value_of in _ATTRIBUTES.items():
                value = value_of(offer)
                self._having[name][value] = self._of(name, value) | 0xFF << 8 * len(self._cells)
            self._cells.append(cell)
        return cell


def _most(wanted: Wanted) -> int:
    return sys.maxsize if wanted.price_micro_usd_h_max is None else wanted.price_micro_usd_h_max


@lru_cache(maxsize=256)
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern), re.IGNORECASE)
