"""The history in bulk: out of ``history.db`` and into it, beside a daemon that has it open.

What comes in is the past and stays the past: it never becomes a price now, so that no old price looks fresh. What begins
no earlier than the price that an offer has now would say that the price now does not hold, and is left out.
"""

import math
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, insert

from broker.core.errors import BrokerError
from broker.core.offer import Market, Offer, Quote
from broker.store.engines import Engines, open_engines
from broker.store.fetch import fetch
from broker.store.ingest import OFFER_FIELDS, Held, count_up, is_point, offer_row, source_ids_of
from broker.store.migrate import is_current, migrate
from broker.store.prices import OFFER

_IDS = "SELECT key, id FROM offer"
_OFFERS = (
    f"SELECT id, {', '.join(OFFER_FIELDS)} FROM offer WHERE :cloud IS NULL OR cloud = :cloud ORDER BY key"
)
_NOW = "SELECT effective_at_ms, price_micro_usd_h FROM price_now WHERE offer_id = :id"
# From the last one that began by then: it says what held.
_FROM = """\
effective_at_ms >= coalesce(
    (SELECT max(effective_at_ms) FROM price_point WHERE offer_id = :id AND effective_at_ms <= :from_ms), :from_ms)"""
_POINTS = f"""\
SELECT p.price_micro_usd_h, p.effective_at_ms, p.observed_at_ms, s.name
FROM price_point p JOIN source s ON s.id = p.source_id
WHERE p.offer_id = :id AND p.{_FROM} ORDER BY p.effective_at_ms, p.observed_at_ms"""
_PRICES = """\
SELECT effective_at_ms, price_micro_usd_h FROM price_point WHERE offer_id = :id ORDER BY effective_at_ms, observed_at_ms"""
_NO_ID = -1
_INSERT = f"INSERT INTO price_point (offer_id, {', '.join(Held._fields)}) VALUES (?, ?, ?, ?, ?)"
_KNOWN = f"""\
SELECT effective_at_ms, observed_at_ms, price_micro_usd_h, source_id FROM price_point
WHERE offer_id = :id AND {_FROM} AND effective_at_ms <= :to_ms ORDER BY effective_at_ms, observed_at_ms"""

Stretches = Mapping[str, Sequence[tuple[int, int]]]
"""By offer key, from and until when a node of ours was billed, in ms."""


@dataclass(frozen=True)
class Added:
    """What became of prices that were brought.

    Attributes:
        points: New changes of price.
        known: Said nothing new.
        newer: Began no earlier than the price that their offer has now, and are left out.
    """

    points: int = 0
    known: int = 0
    newer: int = 0

    def __add__(self, other: "Added") -> "Added":
        return Added(self.points + other.points, self.known + other.known, self.newer + other.newer)


class PastStore:
    """``history.db``, which may be somebody else's at the same time."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    @classmethod
    def open(cls, path: Path) -> "PastStore":
        """Open or make it. One that exists is never changed to another schema: a daemon may be using it.

        Raises:
            BrokerError: it was written by another release.
            SettingsError: the path is no place for a database.
        """
        if not path.exists():
            migrate(path, "history")
        elif not is_current(path, "history"):
            raise BrokerError(
                f"{path} is of another release; start this one's daemon once, and it is brought up to date"
            )
        return cls(open_engines(path, synchronous="NORMAL"))

    def close(self) -> None:
        """Close every connection."""
        self._engines.dispose()

    def quotes(self, since_ms: int = 0, cloud: str | None = None) -> Iterator[Quote]:
        """All points from then on as of one moment, and of each offer the last one before; by offer, then by time."""
        with self._engines.reader.connect() as connection:
            for offer_id, *columns in fetch(connection, _OFFERS, {"cloud": cloud}):
                offer = _offer(columns)
                for row in fetch(connection, _POINTS, {"id": offer_id, "from_ms": since_ms}):
                    yield Quote(offer, *row)

    def rebilling(self, quotes: Iterable[Quote], billed: Stretches, confirmed: bool) -> list[Quote]:
        """Those that would change what an offer cost while a node of ours was billed for it. Arguments as of `add`."""
        found: list[Quote] = []
        with self._engines.reader.begin() as connection:
            ids: dict[str, int] = dict(fetch(connection, _IDS))
            for key, mine in _by_key(quote for quote in quotes if quote.offer.key in billed).items():
                found += _rebilling(connection, ids.get(key, _NO_ID), mine, billed[key], confirmed)
        return found

    def add(self, quotes: Iterable[Quote], confirmed: bool) -> Added:
        """Take prices of the past in, in one transaction.

        Args:
            confirmed: The same price again counts where its cloud names a time for it, as it does in a poll. Else
                only changes count: who writes a price down every hour says nothing by it.
        """
        by_key = _by_key(quotes)
        done = Added()
        with self._engines.writer.begin() as connection:
            ids = _ids(connection, {key: found[0].offer for key, found in by_key.items()})
            sources = source_ids_of(connection, {q.source for found in by_key.values() for q in found})
            rows: list[tuple[int, ...]] = []
            for key, found in by_key.items():
                fresh, newer = _new_to(connection, ids[key], found, sources, confirmed)
                rows += [(ids[key], *entry) for entry in fresh]
                done += Added(len(fresh), len(found) - len(fresh) - newer, newer)
            if rows:
                connection.exec_driver_sql(_INSERT, rows)
        return done


def _by_key(quotes: Iterable[Quote]) -> dict[str, list[Quote]]:
    found: dict[str, list[Quote]] = {}
    for quote in quotes:
        found.setdefault(quote.offer.key, []).append(quote)
    return found


def _rebilling(
    connection: Connection,
    offer_id: int,
    quotes: Sequence[Quote],
    stretches: Sequence[tuple[int, int]],
    confirmed: bool,
) -> Iterator[Quote]:
    fresh, _ = _new_to(connection, offer_id, quotes, dict.fromkeys((q.source for q in quotes), 0), confirmed)
    known = list(fetch(connection, _PRICES, {"id": offer_id}))
    starts = sorted({row[0] for row in known} | {held.effective_at_ms for held in fresh})
    for held in fresh:
        from_ms = held.effective_at_ms
        at = bisect_right(known, from_ms, key=lambda row: row[0])
        if at and known[at - 1][1] == held.price_micro_usd_h:
            continue
        following = bisect_right(starts, from_ms)
        until_ms = starts[following] if following < len(starts) else math.inf
        if any(start_ms < until_ms and from_ms < end_ms for start_ms, end_ms in stretches):
            yield Quote(quotes[0].offer, held.price_micro_usd_h, from_ms, held.observed_at_ms, "")


def _new_to(
    connection: Connection, offer_id: int, quotes: Sequence[Quote], sources: dict[str, int], confirmed: bool
) -> tuple[list[Held], int]:
    """The points of an offer that are new, and how many are newer than its price now."""
    wanted = sorted(quotes, key=lambda quote: (quote.effective_at_ms, quote.observed_at_ms))
    now = next(iter(fetch(connection, _NOW, {"id": offer_id})), None)
    window = {"id": offer_id, "from_ms": wanted[0].effective_at_ms, "to_ms": wanted[-1].effective_at_ms}
    known = [Held(*row) for row in fetch(connection, _KNOWN, window)]
    there = {row[:2] for row in known}
    fresh: list[Held] = []
    newer = 0
    for quote in wanted:
        if now is not None and quote.effective_at_ms >= now[0]:
            newer += quote.price_micro_usd_h != now[1]
            continue
        if (quote.effective_at_ms, quote.observed_at_ms) in there:
            continue
        at = bisect_right(known, quote.effective_at_ms, key=lambda row: row.effective_at_ms)
        held = known[at - 1] if at else None
        if held is not None and _says_nothing(quote, held, confirmed):
            continue
        entry = Held(
            quote.effective_at_ms, quote.observed_at_ms, quote.price_micro_usd_h, sources[quote.source]
        )
        insort(known, entry)
        there.add(entry[:2])
        fresh.append(entry)
    return fresh, newer


def _says_nothing(quote: Quote, held: Held, confirmed: bool) -> bool:
    """Whether what holds at its time, and was known no later, is as much."""
    if quote.price_micro_usd_h != held.price_micro_usd_h:
        return not is_point(quote, held)
    if not confirmed:
        return True
    return held.observed_at_ms <= quote.observed_at_ms and not is_point(quote, held)


def _ids(connection: Connection, offers: dict[str, Offer]) -> dict[str, int]:
    """Ids by key; an offer that is known keeps its shape: a file of the past does not know better."""
    known: dict[str, int] = dict(fetch(connection, _IDS))
    fresh = [offer_row(offer) for key, offer in offers.items() if key not in known]
    if fresh:
        connection.execute(insert(OFFER), fresh)
        count_up(connection)
        known = dict(fetch(connection, _IDS))
    return known


def _offer(columns: Sequence[object]) -> Offer:
    shape: dict[str, object] = dict(zip(OFFER_FIELDS, columns, strict=True))
    return Offer(**shape | {"market": Market(shape["market"])})  # type: ignore[arg-type]
