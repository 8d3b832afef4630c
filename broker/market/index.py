"""Finding the cheapest offers in a market of a hundred thousand without looking at each of them.

Offers that differ only in place, machine and price share a cell: one cloud, GPU, number of GPUs and market. There are a
few hundred cells, and in each the offers lie in order of price, which is the order of every cost as well. A filter is a
few ANDs over the cells, and the cheapest of them are merged.

A poll changes few prices: telling which ones costs one comparison an offer. With a hundred thousand offers that takes
40 to 70 ms, and the twenty cheapest of a filter then 25 to 60 microseconds (bench/README.md).
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import translate
from functools import lru_cache
from heapq import heapify, heappop, heapreplace
from itertools import compress
from operator import eq
from threading import Lock

from broker.core.offer import Market, Offer, Quote

_Entry = tuple[int, str, str]  # micro-USD an hour, offer key, region
# Of one cell: cost and key of the entry that is next, its number, what prices are divided by, and the entries.
_Run = tuple[float, str, int, float, list[_Entry]]


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


class _Cell:
    """Offers of one cloud, GPU, number of GPUs and market, cheapest first."""

    def __init__(self, like: Offer) -> None:
        self.per = {order.value: per(like) for order, per in _PER.items()}
        self.entries: list[_Entry] = []

    def remove(self, quote: Quote) -> None:
        del self.entries[bisect_left(self.entries, _entry(quote))]

    def append(self, quote: Quote) -> None:
        """Out of order until `settle`."""
        self.entries.append(_entry(quote))

    def settle(self) -> None:
        """To be called after changes, before anything is asked."""
        self.entries.sort()


class MarketIndex:
    """The quotes of the newest snapshot, by what people filter by. Safe for use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._quotes: Mapping[str, Quote] = {}
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
            keys = _cheapest(self._runs(wanted, order), limit)
        return [quotes[key] for key in keys]

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
        return {cloud: sum(len(run[-1]) for run in found) for cloud, found in runs.items() if found}

    def _runs(self, wanted: Wanted, order: Order) -> list[_Run]:
        """What the filter admits of each cell."""
        regions = end = None
        if wanted.region is not None:
            regions = set(filter(_pattern(wanted.region).match, self._regions))
        if wanted.price_micro_usd_h_max is not None:
            end = (wanted.price_micro_usd_h_max + 1, "", "")
        divisor = order.value  # the hash of a plain text is kept, that of an Enum is worked out each time
        runs = []
        for cell in compress(self._cells, self._matching(wanted).to_bytes(len(self._cells), "little")):
            entries, per = cell.entries, cell.per[divisor]
            if end is not None:
                entries = entries[: bisect_left(entries, end)]
            if regions is not None:
                entries = [entry for entry in entries if entry[2] in regions]
            if entries:
                runs.append((entries[0][0] / per, entries[0][1], 0, per, entries))
        return runs

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
        before = self._quotes
        # Mostly the same offers in the same order: then nothing is looked up.
        same = len(quotes) == len(before) and all(map(eq, quotes, before))
        pairs = zip(before.values() if same else map(before.get, quotes), quotes.values(), strict=True)
        moved = [
            (held, quote)
            for held, quote in pairs
            if held is None
            or held.price_micro_usd_h != quote.price_micro_usd_h
            or (held.offer is not quote.offer and held.offer != quote.offer)
        ]
        touched: set[_Cell] = set()
        for gone in [] if same else [before[key] for key in before.keys() - quotes.keys()]:
            self._remove(gone, touched)
        for held, _ in moved:
            if held is not None:
                self._remove(held, touched)
        for _, quote in moved:
            cell = self._cell(quote.offer)
            cell.append(quote)
            touched.add(cell)
            self._regions.add(quote.offer.region)
        for cell in touched:
            cell.settle()
        self._quotes = quotes

    def _remove(self, quote: Quote, touched: set[_Cell]) -> None:
        cell = self._cell(quote.offer)
        cell.remove(quote)
        touched.add(cell)

    def _cell(self, offer: Offer) -> _Cell:
        shape = offer.cloud, offer.gpu, offer.gpus, offer.market
        cell = self._cell_of.get(shape)
        if cell is None:
            cell = self._cell_of[shape] = _Cell(offer)
            for name, value_of in _ATTRIBUTES.items():
                value = value_of(offer)
                self._having[name][value] = self._of(name, value) | 0xFF << 8 * len(self._cells)
            self._cells.append(cell)
        return cell


def _cheapest(runs: list[_Run], limit: int) -> list[str]:
    """Keys of the cheapest entries of all runs, in order."""
    heapify(runs)
    keys: list[str] = []
    while runs and len(keys) < limit:
        _, key, at, per, entries = runs[0]
        keys.append(key)
        at += 1
        if at < len(entries):
            price, key, _ = entries[at]
            heapreplace(runs, (price / per, key, at, per, entries))
        else:
            heappop(runs)
    return keys


def _entry(quote: Quote) -> _Entry:
    return quote.price_micro_usd_h, quote.offer.key, quote.offer.region


@lru_cache(maxsize=256)
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern), re.IGNORECASE)
