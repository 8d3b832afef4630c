"""A whole poll taken in, beside gpuhunt reading the same catalogue.

Both read the same files. gpuhunt then has rows in memory. The broker judges each price, compares it with the last one,
writes what changed into SQLite, and only then is done: the more work, measured as it is.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from bench import catalogue
from bench.filters import CHANGED_SHARE, NOW_MS, POLL_MS
from bench.measure import Row, cpu, interleave, say
from bench.outside import BUILD, GPUHUNT, Outside
from broker.core.offer import RawQuote
from broker.market.intake import take_in
from broker.store.history import HistoryStore


class Polls:
    """Polls of a market that keeps changing between two lists, into one database."""

    def __init__(self, path: Path, folders: tuple[Path, Path]) -> None:
        self.history = HistoryStore.open(path)
        self._folders = folders
        self._polls = 0

    def read(self) -> list[RawQuote]:
        """The next list, off the disk."""
        return list(catalogue.read(self._folders[self._polls % 2]))

    def take_in(self, raws: list[RawQuote]) -> int:
        """Judge it and write it down; how many prices changed."""
        at_ms = NOW_MS + self._polls * POLL_MS
        self._polls += 1
        taken = take_in(self.history, raws, at_ms)
        assert not taken.sifted.doubts, f"{len(taken.sifted.doubts)} made-up prices are doubted"
        return taken.changes


def compare(offers: int, repetitions: int, seed: int) -> list[Row]:
    """Rows of the table.

    Raises:
        Skipped: gpuhunt cannot be installed.
    """
    before = catalogue.draw(offers, seed)
    markets = before, catalogue.redraw(before, CHANGED_SHARE, seed + 1)
    folders = BUILD / f"polls-{offers}-{seed}" / "0", BUILD / f"polls-{offers}-{seed}" / "1"
    for market, folder in zip(markets, folders, strict=True):
        catalogue.write(market, folder)
    with TemporaryDirectory() as there, Outside(GPUHUNT, "gpuhunt_client.py") as gpuhunt:
        polls = Polls(Path(there) / "history.db", folders)
        polls.take_in(polls.read())
        changes = polls.take_in(polls.read())
        rows = gpuhunt.ask("load", folder=str(folders[1]))["rows"]
        checked = f"{rows:,} rows read there, {check_equal(polls, markets[1]):,} prices kept here"
        say(f"  {checked}; {changes:,} changes a poll")
        numbers = iter(range(10_000))

        def first() -> float:
            fresh = Polls(Path(there) / f"first-{next(numbers)}.db", folders)
            seconds, _ = cpu(lambda: fresh.take_in(fresh.read()))
            fresh.history.close()
            return seconds

        def later() -> float:
            return cpu(lambda: polls.take_in(polls.read()))[0]

        def later_raw() -> float:
            raws = polls.read()
            return cpu(lambda: polls.take_in(raws))[0]

        took = interleave(
            {
                "gpuhunt": lambda: float(gpuhunt.ask("load", folder=str(folders[1]))["cpu_s"]),
                "later": later,
                "later, raw": later_raw,
                "first": first,
            },
            repetitions,
        )
        polls.history.close()
    theirs = took["gpuhunt"]
    share = f"{changes / offers:.0%} of prices changed"
    return [
        Row(f"a poll of {offers:,} offers off a file into history.db, {share}", took["later"], gpuhunt.name, theirs, checked),
        Row("… from the quotes that a cloud's client has made of it", took["later, raw"], gpuhunt.name, theirs, checked),
        Row("… the very first poll, into an empty database", took["first"], gpuhunt.name, theirs, checked),
    ]  # fmt: skip


def check_equal(polls: Polls, market: list[catalogue.Listed]) -> int:
    """How many prices the database holds; they must be the market's.

    Raises:
        AssertionError: they are not.
    """
    held = {key: (quote.offer, quote.price_micro_usd_h) for key, quote in polls.history.now().items()}
    listed = {entry.offer.key: (entry.offer, entry.price_micro_usd_h) for entry in market}
    assert held == listed, f"{len(held.items() ^ listed.items()):,} prices"
    return len(held)
