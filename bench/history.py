"""Prices of the past in ``history.db``, beside DuckDB, the column store that fits into one process as SQLite does.

Making ten million points takes minutes. They stay below ``build/`` and are used again.
"""

import csv
import hashlib
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import catalogue
from bench.measure import Row, cpu, interleave, say
from bench.outside import BUILD, DUCKDB, Outside
from broker.store.history import HistoryStore, Poll
from broker.store.ingest import OFFER_FIELDS

POINTS_OF_AN_OFFER = 1_000
BEGIN_MS = 1_760_000_000_000
YEAR_MS = 365 * 86_400_000
WEEK_MS = 7 * 86_400_000
_POINT = tuple[int, int, int]


def offers_of(points: int) -> int:
    """How many offers share that many points."""
    return points // POINTS_OF_AN_OFFER


def draw_points(points: int, seed: int) -> Iterator[_POINT]:
    """Offer number, time and price, by offer and time: a year of steps of up to a tenth at random moments."""
    rng = random.Random(seed)
    for number in range(1, offers_of(points) + 1):
        price = rng.randrange(200_000, 40_000_000)
        for at_ms in sorted(rng.sample(range(BEGIN_MS, BEGIN_MS + YEAR_MS), POINTS_OF_AN_OFFER)):
            price = max(100_000, round(price * rng.uniform(0.91, 1.1)))
            yield number, at_ms, price


def built(points: int, seed: int) -> Path:
    """The folder with ``history.db`` and ``points.csv``; made on first use, and anew when offers have other names."""
    offers = catalogue.draw(offers_of(points), seed)
    names = hashlib.sha256(repr(offers).encode()).hexdigest()[:8]
    folder = BUILD / f"history-{points}-{seed}-{names}"
    ready = folder / "ready"
    if not ready.exists():
        say(f"making {points:,} points, once")
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.iterdir():
            left.unlink()
        HistoryStore.open(folder / "history.db").close()
        with (folder / "points.csv").open("w", newline="") as file:
            csv.writer(file).writerows(draw_points(points, seed))
        _fill(folder, offers)
        ready.touch()
    return folder


def compare(points: int, asked: int, repetitions: int, seed: int) -> list[Row]:
    """Rows of the table.

    Args:
        asked: How many questions about one offer are put at a time.

    Raises:
        Skipped: DuckDB cannot be installed.
    """
    folder = built(points, seed)
    ours = Ours(folder, asked, seed)
    (most, seen), *_ = Counter(quote.offer.cloud for quote in ours.history.now().values()).most_common()
    with Outside(DUCKDB, "duckdb_client.py") as duckdb:
        rows = duckdb.ask("open", path=str(folder / "points.duckdb"), points=str(folder / "points.csv"))
        assert rows == points, f"{rows:,} points there"
        say(f"  {check_equal(duckdb, ours):,} answers are the same on both sides")
        took = interleave(
            {
                "latest, one cloud": lambda: ours.latest_after(lambda: ours.see_again(most)),
                "latest, all clouds": lambda: ours.latest_after(ours.see_again),
                "latest, no price": lambda: ours.latest_after(ours.note_a_poll),
                "latest, kept": lambda: cpu(ours.history.now)[0],
                "as of": ours.as_of,
                "window": ours.window,
                "duckdb latest": lambda: float(duckdb.ask("latest")["cpu_s"]),
                "duckdb as of": lambda: float(duckdb.ask("as_of", asked=ours.moments)["cpu_s"]),
                "duckdb window": lambda: float(duckdb.ask("window", asked=ours.windows)["cpu_s"]),
            },
            repetitions,
        )
    ours.history.close()
    name, offers = duckdb.name, f"{offers_of(points):,} offers"
    return [
        Row(f"price now of all {offers}, {points:,} points, after a poll of {most} ({seen:,} of them)", took["latest, one cloud"], name, took["duckdb latest"], offers),
        Row("… after polls of all clouds, which have seen each of them again", took["latest, all clouds"], name, took["duckdb latest"], offers),
        Row("… after something was written that is no price", took["latest, no price"], name, took["duckdb latest"], offers),
        Row("… and as long as nothing is written", took["latest, kept"]),
        Row(f"price of one offer at one moment, {asked:,} times", took["as of"], name, took["duckdb as of"], f"{asked:,} prices"),
        Row(f"a week of one offer, {asked:,} times", took["window"], name, took["duckdb window"], f"{asked:,} series"),
    ]  # fmt: skip


class Ours:
    """The broker's side, and what both sides are asked.

    Attributes:
        moments: Offer number and time.
        windows: Offer number, start and end.
    """

    def __init__(self, folder: Path, asked: int, seed: int) -> None:
        self.history = HistoryStore.open(folder / "history.db")
        with sqlite3.connect(folder / "history.db") as connection:
            self.keys = dict(connection.execute("SELECT id, key FROM offer"))
        rng = random.Random(seed)
        numbers = sorted(self.keys)
        self.moments = [
            [rng.choice(numbers), rng.randrange(BEGIN_MS, BEGIN_MS + YEAR_MS)] for _ in range(asked)
        ]
        self.windows = [[number, at_ms, at_ms + WEEK_MS] for number, at_ms in self.moments]

    def latest_after(self, write: Callable[[], object]) -> float:
        """CPU seconds of reading every price after a write."""
        self.history.now()
        write()
        return cpu(self.history.now)[0]

    def see_again(self, cloud: str | None = None) -> None:
        """A minute later all offers of a cloud, or of all of them, still cost the same."""
        now = self.history.now()
        at_ms = max(quote.observed_at_ms for quote in now.values()) + 60_000
        self.history.ingest(
            replace(quote, observed_at_ms=at_ms)
            for quote in now.values()
            if cloud in (None, quote.offer.cloud)
        )

    def note_a_poll(self) -> None:
        """One that failed."""
        at_ms = max(quote.observed_at_ms for quote in self.history.now().values())
        self.history.record_poll(Poll("aws", at_ms, at_ms, False))

    def as_of(self) -> float:
        """CPU seconds of all moments."""
        return cpu(lambda: [self.price_at(number, at_ms) for number, at_ms in self.moments])[0]

    def window(self) -> float:
        """CPU seconds of all windows."""
        return cpu(lambda: [self.series(*window) for window in self.windows])[0]

    def price_at(self, number: int, at_ms: int) -> int | None:
        """What held then."""
        points = self.history.points(self.keys[number], at_ms, at_ms + 1)
        return points[-1].price_micro_usd_h if points else None

    def series(self, number: int, from_ms: int, to_ms: int) -> list[Any]:
        """What held at the start, and each change."""
        points = self.history.points(self.keys[number], from_ms, to_ms)
        return [[point.effective_at_ms, point.price_micro_usd_h] for point in points]


def check_equal(duckdb: Outside, ours: Ours) -> int:
    """How many answers were compared.

    Raises:
        AssertionError: two differ.
    """
    latest = {ours.keys[number]: price for number, price in duckdb.ask("latest")["found"][0]}
    now = {key: quote.price_micro_usd_h for key, quote in ours.history.now().items()}
    assert latest == now, f"{len(latest.items() ^ now.items()):,} prices now"
    prices = [found[0][1] if found else None for found in duckdb.ask("as_of", asked=ours.moments)["found"]]
    assert prices == [ours.price_at(number, at_ms) for number, at_ms in ours.moments], "prices at a moment"
    series = duckdb.ask("window", asked=ours.windows)["found"]
    assert series == [ours.series(*window) for window in ours.windows], "prices of a week"
    return len(latest) + len(prices) + len(series)


def _fill(folder: Path, offers: list[catalogue.Listed]) -> None:
    """Offers, points and prices now, as `ingest` would have left them, in the order that loads fastest."""
    columns = ("key", *OFFER_FIELDS)
    with sqlite3.connect(folder / "history.db") as connection, (folder / "points.csv").open() as file:
        connection.execute("INSERT INTO source (id, name) VALUES (1, 'bench:file')")
        connection.executemany(
            f"INSERT INTO offer (id, {', '.join(columns)}) VALUES (?, {', '.join('?' * len(columns))})",
            (
                (
                    number,
                    *(str(value) if name == "market" else value for name, value in _columns(listed, columns)),
                )
                for number, listed in enumerate(offers, 1)
            ),
        )
        connection.executemany(
            "INSERT INTO price_point (offer_id, effective_at_ms, observed_at_ms, price_micro_usd_h, source_id) "
            "VALUES (?1, ?2, ?2, ?3, 1)",
            csv.reader(file),
        )
        connection.execute(
            "INSERT INTO price_now (offer_id, effective_at_ms, observed_at_ms, price_micro_usd_h, source_id) "
            "SELECT offer_id, max(effective_at_ms), observed_at_ms, price_micro_usd_h, source_id FROM price_point "
            "GROUP BY offer_id"
        )
    connection.close()


def _columns(listed: catalogue.Listed, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    return ((name, getattr(listed.offer, name)) for name in names)
