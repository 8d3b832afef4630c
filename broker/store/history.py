"""``history.db``: every price change that was ever seen, with both of its times, and every poll.

Seeing a price again makes no point; a `poll` row says that we looked, so that "no change" and "we were blind" differ.
A price has two times: `effective_at`, by the cloud's word, and `observed_at`, ours. Money is computed from the
first, and a back-test may only know what had been observed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path

from sqlalchemy import Connection, delete, insert, select, update

from broker.core.availability import Availability, Signal
from broker.core.offer import Market, Quote, RawQuote
from broker.core.visible import visible
from broker.store.curves import Curve, Known, curve, known_offers, points
from broker.store.doubts import Quarantined, keep, open_doubts
from broker.store.engines import Engines, open_engines
from broker.store.feeds import Polled, polled
from broker.store.fetch import fetch
from broker.store.ingest import ingest
from broker.store.kept import Kept
from broker.store.migrate import migrate
from broker.store.now import HeldPrices
from broker.store.prices import HINT, POLL, QUARANTINE
from broker.store.prune import Pruned, prune

ERROR_MAX = 1000
"""Characters of an error that are kept."""


class PollKind(StrEnum):
    """What was asked for."""

    PRICES = "prices"
    HISTORY = "history"  # prices of the past, once
    AVAILABILITY = "availability"


@dataclass(frozen=True)
class Poll:
    """One look at a cloud.

    Attributes:
        ok: False when any page failed: a partial poll is a failed one.
        offers: Prices or hints that were read. Of a failed poll prices are never kept, and hints are.
        changes: How many of them were news.
        error: What went wrong, for a person.
    """

    cloud: str
    started_at_ms: int
    ended_at_ms: int
    ok: bool
    offers: int = 0
    changes: int = 0
    error: str = ""
    kind: PollKind = PollKind.PRICES


class Alone:
    """What one poll writes, all of it or nothing; see `HistoryStore.alone`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ingest(self, quotes: Iterable[Quote], at_ms: int) -> int:
        """What a look that began then has found; see `broker.store.ingest.ingest`."""
        return ingest(self._connection, quotes, at_ms)

    def keep_doubts(self, doubted: Iterable[Quarantined], released: Iterable[str], at_ms: int) -> None:
        """What is in doubt now, and the offers whose newest reading is believed again."""
        keep(self._connection, doubted, released, at_ms)


class HistoryStore:
    """Owner of ``history.db`` until `close`. Safe for use from several threads; writers wait for each other."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._kept = Kept(engines.reader)
        self._prices = HeldPrices()

    @classmethod
    def open(cls, path: Path) -> "HistoryStore":
        """Open or make it, and bring it to this release's schema.

        Raises:
            BrokerError: it was written by a newer release.
            SettingsError: the path is no place for a database.
        """
        migrate(path, "history")
        return cls(open_engines(path, synchronous="NORMAL"))

    def close(self) -> None:
        """Close every connection."""
        self._kept.close()
        self._engines.dispose()

    # -- prices -------------------------------------------------------------------------------------------------------

    def ingest(self, quotes: Iterable[Quote]) -> int:
        """Take accepted quotes in, in one transaction; returns how many were changes of price.

        Quotes may come late and in any order: each is compared with the price as of its `effective_at`. The newest
        by `effective_at` is the price now, and seeing it again only makes it younger.
        """
        with self._engines.writer.begin() as connection:
            return ingest(connection, quotes)

    @contextmanager
    def alone(self) -> Iterator[Alone]:
        """A transaction beside which nobody else writes, in this process or another.

        What `now` and `quarantined` say within it is from before it, and stays true until it ends.
        """
        with self._engines.writer.begin() as connection:
            yield Alone(connection)

    def now(self) -> Mapping[str, Quote]:
        """The price now of every offer, by offer key, whatever its age. The same mapping until a price is written."""
        return self._kept.get("now", self._now)

    def _now(self) -> Mapping[str, Quote]:
        # One transaction: offers, sources and prices as of one moment.
        with self._engines.reader.begin() as connection:
            return self._prices.read(connection)

    def points(self, offer_key: str, from_ms: int, to_ms: int) -> list[Quote]:
        """Points of one offer with ``from_ms <= effective_at < to_ms``, and the last one before them, in order.

        The first one therefore says what held at `from_ms`, where that is known. Two points of one moment are a
        price and its later correction; the later one holds.
        """
        with self._engines.reader.connect() as connection:
            return points(connection, offer_key, from_ms, to_ms)

    def offers(
        self,
        gpus: Collection[str],
        cloud: str | None = None,
        market: Market | None = None,
        count: int | None = None,
    ) -> list[Known]:
        """See `broker.store.curves.known_offers`."""
        with self._engines.reader.connect() as connection:
            return known_offers(connection, gpus, cloud, market, count)

    def curves(self, offers: Iterable[Known], from_ms: int, to_ms: int, most: int) -> list[Curve]:
        """Prices of each over time; see `broker.store.curves.curve`."""
        with self._engines.reader.connect() as connection:
            return [curve(connection, known, from_ms, to_ms, most) for known in offers]

    # -- polls ----------------------------------------------------------------------------------------------------------

    def record_poll(self, poll: Poll) -> None:
        """Keep that we looked. What a clock that was ahead has dated ages from now on, whatever this look has found."""
        with self._engines.writer.begin() as connection:
            at_ms = max(poll.started_at_ms, poll.ended_at_ms)
            connection.exec_driver_sql(_SEEN_BY_NOW, (at_ms, at_ms, poll.cloud))
            row = asdict(poll) | {"ok": int(poll.ok), "error": visible(poll.error, ERROR_MAX)}
            connection.execute(insert(POLL).values(**row))

    def polls(
        self, cloud: str | None = None, limit: int = 100, kind: PollKind = PollKind.PRICES
    ) -> list[Poll]:
        """Polls of one kind, the one written last first: the clock may have been set."""
        newest = select(POLL).order_by(POLL.c.id.desc())
        query = newest.where(POLL.c.kind == kind).limit(limit)
        if cloud is not None:
            query = query.where(POLL.c.cloud == cloud)
        with self._engines.reader.connect() as connection:
            rows = connection.execute(query).all()
        return [
            Poll(
                row.cloud,
                row.started_at_ms,
                row.ended_at_ms,
                bool(row.ok),
                row.offers,
                row.changes,
                row.error,
                PollKind(row.kind),
            )
            for row in rows
        ]

    def polled(self, since_ms: int) -> dict[str, Polled]:
        """How each cloud's prices have been read; see `broker.store.feeds`."""
        with self._engines.reader.connect() as connection:
            return polled(connection, since_ms)

    def prune(self, points_before_ms: int, polls_before_ms: int, keep_since_ms: Mapping[str, int]) -> Pruned:
        """Take out what is old; see `broker.store.prune`."""
        return prune(self._engines.writer, points_before_ms, polls_before_ms, keep_since_ms)

    # -- hints ----------------------------------------------------------------------------------------------------------

    def record_hints(self, cloud: str, hints: Iterable[Availability], whole: bool = True) -> None:
        """What a cloud says now about obtaining its offers.

        Args:
            cloud: Whose hints these are.
            hints: With their dates.
            whole: It has answered everything, so what it no longer says is forgotten.
        """
        rows = [asdict(hint) for hint in hints]
        mine = HINT.c.offer_key.startswith(f"{cloud}/", autoescape=True)
        with self._engines.writer.begin() as connection:
            if whole:
                connection.execute(delete(HINT).where(mine))
            if rows:
                connection.execute(insert(HINT).prefix_with("OR REPLACE"), rows)

    def hints(self) -> Mapping[str, tuple[Availability, ...]]:
        """What the clouds have last said, by offer key."""
        return self._kept.get("hints", self._hints)

    def _hints(self) -> Mapping[str, tuple[Availability, ...]]:
        found: dict[str, list[Availability]] = {}
        with self._engines.reader.connect() as connection:
            rows = fetch(connection, _HINTS)
        for key, signal, *rest in rows:
            found.setdefault(key, []).append(Availability(key, Signal(signal), *rest))
        return {key: tuple(hints) for key, hints in found.items()}

    # -- quarantine -----------------------------------------------------------------------------------------------------

    def quarantine(self, raw: RawQuote, observed_at_ms: int, reason: str) -> int:
        """Keep a reading that is not believed; returns how often this offer has now shown this price in a row."""
        with self._engines.writer.begin() as connection:
            known = open_doubts(connection).get(raw.offer.key)
            if known is not None and (known.raw.price_text, known.reason) == (raw.price_text, reason):
                entry = replace(known, last_seen_ms=observed_at_ms, times_seen=known.times_seen + 1)
            else:
                entry = Quarantined(raw, reason, observed_at_ms, observed_at_ms, 1)
            keep(connection, [entry], (), observed_at_ms)
        return entry.times_seen

    def release(self, offer_key: str, price_text: str, at_ms: int) -> bool:
        """Take what is in quarantine with that price out of it; False when it no longer is. It stays on record."""
        with self._engines.writer.begin() as connection:
            return _close(connection, offer_key, price_text, at_ms)

    def believe(self, quote: Quote, price_text: str, at_ms: int) -> bool:
        """Take in what is in quarantine with that price, and release it; False when it no longer is."""
        with self._engines.writer.begin() as connection:
            done = _close(connection, quote.offer.key, price_text, at_ms)
            if done:
                began_ms, seen_ms = min(quote.effective_at_ms, at_ms), min(quote.observed_at_ms, at_ms)
                quote = replace(quote, effective_at_ms=began_ms, observed_at_ms=seen_ms)
                ingest(connection, [quote], at_ms)
        return done

    def quarantined(self) -> Mapping[str, Quarantined]:
        """What is in quarantine now, by offer key."""
        return self._kept.get("quarantined", self._quarantined)

    def _quarantined(self) -> Mapping[str, Quarantined]:
        with self._engines.reader.connect() as connection:
            return open_doubts(connection)


def _close(connection: Connection, offer_key: str, price_text: str, at_ms: int) -> bool:
    table = QUARANTINE.c
    mine = table.offer_key == offer_key, table.price_text == price_text, table.released_at_ms.is_(None)
    return bool(connection.execute(update(QUARANTINE).where(*mine).values(released_at_ms=at_ms)).rowcount)


_SEEN_BY_NOW = """\
UPDATE price_now SET observed_at_ms = ?
WHERE observed_at_ms > ? AND offer_id IN (SELECT id FROM offer WHERE cloud = ?)"""
_HINTS = "SELECT offer_key, signal, low, high, observed_at_ms, source FROM hint ORDER BY offer_key, signal"
