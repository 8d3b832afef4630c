"""Different filters over a market right after a poll: our index beside gpuhunt, which looks at every row.

Both hold the same rows in memory, and every filter has to find the same offers at the same prices on both sides. The
broker's side begins with the database: prices of a poll are taken in, read again as a snapshot is, and asked.
"""

import hashlib
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import catalogue
from bench.measure import Row, cpu, interleave, say
from bench.outside import BUILD, GPUHUNT, Outside
from broker.core.offer import Market, Quote
from broker.market.index import MarketIndex, Wanted
from broker.store.history import HistoryStore

SHOWN = 20
CHANGED_SHARE = 0.02
NOW_MS = 1_790_000_000_000
POLL_MS = 300_000


@dataclass(frozen=True)
class Filter:
    """One filter, as each side is asked."""

    ours: Wanted
    gpuhunt: Mapping[str, Any]


def draw_filters(count: int, seed: int) -> list[Filter]:
    """Different filters as people write them: mostly a GPU, how many of it, a market, sometimes a cloud or a price."""
    rng = random.Random(seed)
    found: dict[Wanted, Filter] = {}
    while len(found) < count:
        drawn = _draw(rng)
        if drawn.ours != Wanted():
            found.setdefault(drawn.ours, drawn)
    return list(found.values())


def _draw(rng: random.Random) -> Filter:
    ours: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    if rng.random() < 0.8:
        ours["gpu"] = theirs["gpu_name"] = rng.choice(
            ("H100", "H100", "H200", "A100", "A100", "B200", "L4", "T4", "V100", "MI300X")
        )
    else:
        ours["gpu_memory_gib_min"] = theirs["min_gpu_memory"] = rng.choice((24, 48, 80, 141))
    if rng.random() < 0.7:
        gpus = rng.choice((1, 2, 4, 8, 8))
        ours["gpus_min"] = theirs["min_gpu_count"] = gpus
        if rng.random() < 0.7:
            ours["gpus_max"] = theirs["max_gpu_count"] = gpus
    elif rng.random() < 0.5:
        ours["vram_gib_min"] = theirs["min_total_gpu_memory"] = rng.choice((160, 320, 640))
    if rng.random() < 0.7:
        ours["market"] = rng.choice((Market.SPOT, Market.ON_DEMAND))
        theirs["spot"] = ours["market"] is Market.SPOT
    if rng.random() < 0.5:
        ours["cloud"] = rng.choice(list(catalogue.PROVIDERS))
    theirs["provider"] = (
        [catalogue.PROVIDERS[ours["cloud"]]] if "cloud" in ours else [*catalogue.PROVIDERS.values()]
    )
    if rng.random() < 0.3:
        usd = rng.choice((2, 5, 10, 20, 40))
        ours["price_micro_usd_h_max"], theirs["max_price"] = usd * 1_000_000, float(usd)
    return Filter(Wanted(**ours), theirs)


def fingerprint(quotes: Iterable[Quote]) -> list[Any]:
    """How many offers, and a hash of them with their prices, in the form that the other side makes as well."""
    lines = sorted(
        (
            quote.price_micro_usd_h,
            f"{catalogue.PROVIDERS[quote.offer.cloud]}/{quote.offer.region}/{quote.offer.instance_type}/"
            f"{quote.offer.market is Market.SPOT}",
        )
        for quote in quotes
    )
    return [len(lines), hashlib.sha256(repr(lines).encode()).hexdigest()]


class Ours:
    """The broker's side: a price history on disk, the snapshot's quotes, the index.

    Args:
        listed: The market before the poll, and after it.
    """

    def __init__(self, folder: Path, before: list[catalogue.Listed], after: list[catalogue.Listed]) -> None:
        self.history = HistoryStore.open(folder / "history.db")
        self._markets = (before, after)
        self._polls = 0
        self.quotes: Mapping[str, Quote] = {}
        self.take_in()
        self.take_in()
        self.read()

    def take_in(self) -> None:
        """A poll that finds the other of the two markets."""
        at_ms = NOW_MS + self._polls * POLL_MS
        market = self._markets[self._polls % 2]
        self._polls += 1
        self.history.ingest(
            Quote(entry.offer, entry.price_micro_usd_h, at_ms, at_ms, "bench:file") for entry in market
        )

    @property
    def market(self) -> list[catalogue.Listed]:
        """What the newest poll has found."""
        return self._markets[(self._polls - 1) % 2]

    def read(self) -> None:
        """What a snapshot holds now."""
        self.quotes = self.history.now()


def compare(offers: int, filters: int, repetitions: int, seed: int) -> list[Row]:
    """Rows of the table.

    Raises:
        Skipped: gpuhunt cannot be installed.
    """
    before = catalogue.draw(offers, seed)
    after = catalogue.redraw(before, CHANGED_SHARE, seed + 1)
    asked = draw_filters(filters, seed)
    folder = BUILD / f"catalogue-{offers}-{seed}"
    with TemporaryDirectory() as there, Outside(GPUHUNT, "gpuhunt_client.py") as gpuhunt:
        ours = Ours(Path(there), before, after)
        catalogue.write(ours.market, folder)
        gpuhunt.ask("load", folder=str(folder))
        hits = check_equal(gpuhunt, ours, asked)
        say(f"  {filters} filters find the same {sum(hits):,} offers on both sides")
        checked = f"{filters} filters, {sum(hits):,} hits, median {sorted(hits)[len(hits) // 2]:,}"
        took = interleave(_sides(gpuhunt, ours, asked), repetitions)
        ours.history.close()
    theirs = took["gpuhunt"]
    return [
        Row(
            f"{filters} filters over {offers:,} offers, every hit",
            took["every hit"],
            gpuhunt.name,
            theirs,
            checked,
        ),
        Row(f"… the {SHOWN} cheapest of each", took["cheapest"], gpuhunt.name, theirs, checked),
        Row(
            f"… right after a poll, with bringing the index up to date ({CHANGED_SHARE:.0%} of prices changed)",
            took["after a poll"],
            gpuhunt.name,
            theirs,
            checked,
        ),
        Row("… with building the index from nothing", took["from nothing"], gpuhunt.name, theirs, checked),
        Row("bringing the index up to date after a poll, alone", took["up to date"]),
        Row("building the index from nothing, alone", took["build"]),
        Row("reading the snapshot's prices from history.db after a poll", took["read again"]),
    ]


def check_equal(gpuhunt: Outside, ours: Ours, asked: list[Filter]) -> list[int]:
    """Hits of each filter; both sides must have found the same ones.

    Raises:
        AssertionError: they have not.
    """
    index = MarketIndex()
    theirs = gpuhunt.ask("query", filters=[dict(one.gpuhunt) for one in asked])["found"]
    for one, found in zip(asked, theirs, strict=True):
        mine = fingerprint(index.find(ours.quotes, one.ours, len(ours.quotes)))
        assert mine == found, f"{one.ours}: {mine[0]} offers here, {found[0]} there"
    return [hits for hits, _ in theirs]


def _sides(gpuhunt: Outside, ours: Ours, asked: list[Filter]) -> dict[str, Any]:
    """What is measured. Each side leaves the index `warm` on the snapshot's quotes of the moment."""
    warm = MarketIndex()
    theirs = [dict(one.gpuhunt) for one in asked]

    def ask(index: MarketIndex, most: int) -> None:
        for one in asked:
            index.find(ours.quotes, one.ours, most)

    def settled(most: int) -> float:
        ask(warm, most)
        return cpu(lambda: ask(warm, most))[0]

    def after_a_poll() -> dict[str, float]:
        ask(warm, SHOWN)
        ours.take_in()
        read_s, _ = cpu(ours.read)
        index_s, _ = cpu(lambda: warm.find(ours.quotes, Wanted(), 1))
        ask_s, _ = cpu(lambda: ask(warm, SHOWN))
        return {"read again": read_s, "up to date": index_s, "after a poll": index_s + ask_s}

    def from_nothing() -> dict[str, float]:
        index = MarketIndex()
        build_s, _ = cpu(lambda: index.find(ours.quotes, Wanted(), 1))
        ask_s, _ = cpu(lambda: ask(index, SHOWN))
        return {"build": build_s, "from nothing": build_s + ask_s}

    return {
        "gpuhunt": lambda: float(gpuhunt.ask("query", filters=theirs)["cpu_s"]),
        "every hit": lambda: settled(len(ours.quotes)),
        "cheapest": lambda: settled(SHOWN),
        "a poll": after_a_poll,
        "an index": from_nothing,
    }
