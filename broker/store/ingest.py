"""Accepted quotes into change points and prices now, fast: one pass in memory, a few statements for the batch."""

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, insert, select, update

from broker.core.offer import Offer, Quote
from broker.store.fetch import fetch
from broker.store.prices import OFFER, PRICE_POINT, SOURCE

OFFER_FIELDS = tuple(field.name for field in fields(Offer))


class Held(NamedTuple):
    """A price that held, or holds: columns of `price_now` and `price_point`, in the order of time."""

    effective_at_ms: int
    observed_at_ms: int
    price_micro_usd_h: int
    source_id: int


_Point = tuple[int, int, int, int, int]  # a row of price_point
_shape = attrgetter(*OFFER_FIELDS)
_HELD = ", ".join(Held._fields)
_OFFERS = f"SELECT id, key, {', '.join(OFFER_FIELDS)} FROM offer"
_NOW = f"SELECT offer_id, {_HELD} FROM price_now"
# Of offers whose price now is not the last thing that their points say before a moment: that last thing.
_LAST_SAID = f"""\
SELECT o.id, {", ".join(f"p.{name}" for name in Held._fields)}
FROM offer o LEFT JOIN price_now n ON n.offer_id = o.id JOIN price_point p ON p.offer_id = o.id
    AND p.effective_at_ms = (SELECT max(effective_at_ms) FROM price_point WHERE offer_id = o.id AND effective_at_ms < :at_ms)
WHERE o.cloud = :cloud AND (
    n.offer_id IS NULL OR p.effective_at_ms > n.effective_at_ms OR n.effective_at_ms > :at_ms) ORDER BY p.observed_at_ms"""
_INSERT_POINT = f"INSERT INTO price_point (offer_id, {_HELD}) VALUES (?, ?, ?, ?, ?)"
_PUT_NOW = f"""\
INSERT INTO price_now (offer_id, {_HELD}) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (offer_id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in Held._fields)}"""


def ingest(connection: Connection, quotes: Iterable[Quote], at_ms: int | None = None) -> int:
    """Take quotes in; returns how many were changes of price. The caller owns the transaction.

    An offer that is seen for the first time has a price, and no change of one.

    Args:
        at_ms: Of a look at what holds now: its start. The newest quote of each offer then is what bills read from that
            moment on, whatever an import has said of the time before. None for prices of any time.
    """
    batch = sorted(quotes, key=lambda quote: (quote.effective_at_ms, quote.observed_at_ms))
    offer_ids = _offer_ids(connection, batch)
    source_ids = source_ids_of(connection, {quote.source for quote in batch})
    newest = {offer_ids[quote.offer.key]: _held(quote, source_ids) for quote in batch}
    before = {row[0]: Held(*row[1:]) for row in fetch(connection, _NOW)}
    now = dict(before)
    astray: set[int] = set()
    if at_ms is not None:
        astray = _set_right(connection, now, at_ms, newest, {quote.offer.cloud for quote in batch})
    late: dict[int, list[Quote]] = defaultdict(list)
    points: list[_Point] = []
    changes = 0
    for quote in batch:
        offer_id = offer_ids[quote.offer.key]
        current = now.get(offer_id)
        if current is not None and quote.effective_at_ms < current.effective_at_ms:
            late[offer_id].append(quote)
        elif current is None or is_point(quote, current):
            known = current or before.get(offer_id)
            changes += known is not None and quote.price_micro_usd_h != known.price_micro_usd_h
            now[offer_id] = _held(quote, source_ids)
            points.append((offer_id, *now[offer_id]))
        elif quote.price_micro_usd_h == current.price_micro_usd_h:
            now[offer_id] = current._replace(observed_at_ms=max(current.observed_at_ms, quote.observed_at_ms))
    for offer_id, quotes_of in late.items():
        more, late_changes = _late_points(connection, offer_id, quotes_of, source_ids)
        points += more
        changes += late_changes
    for offer_id in astray:
        said = newest[offer_id]
        if now[offer_id].price_micro_usd_h != said.price_micro_usd_h:
            now[offer_id] = said._replace(effective_at_ms=said.observed_at_ms)
            points.append((offer_id, *now[offer_id]))
            changes += 1
        now[offer_id] = said._replace(effective_at_ms=now[offer_id].effective_at_ms)
    _write(connection, points, {key: value for key, value in now.items() if before.get(key) != value})
    return changes


def is_point(quote: Quote, held: Held) -> bool:
    """Whether `quote` says more than `held`, the price as of its `effective_at`."""
    later = quote.effective_at_ms > held.effective_at_ms
    if quote.price_micro_usd_h == held.price_micro_usd_h:
        # The cloud itself names a time at which this price held: a third price may yet arrive for the time before
        # it. Where `effective_at` is only when we looked, the same price again says nothing.
        return later and quote.effective_at_ms < quote.observed_at_ms
    # Of two prices for one moment that came in one poll the first one stays: a point is never rewritten.
    return later or quote.observed_at_ms > held.observed_at_ms


def _held(quote: Quote, source_ids: Mapping[str, int]) -> Held:
    return Held(
        quote.effective_at_ms, quote.observed_at_ms, quote.price_micro_usd_h, source_ids[quote.source]
    )


def _set_right(
    connection: Connection, now: dict[int, Held], at_ms: int, seen: Collection[int], clouds: Iterable[str]
) -> set[int]:
    """Have `now` say what points say as of that moment, where it does not; returns the offers, of `seen` alone.

    What is dated later was written by a clock that was ahead. It stays on record, for it may be this one that is behind.
    """
    ahead = [offer_id for offer_id, held in now.items() if held.observed_at_ms > at_ms]
    for offer_id in ahead:
        if now[offer_id].effective_at_ms > at_ms and offer_id in seen:
            del now[offer_id]
        else:
            now[offer_id] = now[offer_id]._replace(observed_at_ms=at_ms)
    said = {
        row[0]: Held(*row[1:])
        for cloud in clouds
        for row in fetch(connection, _LAST_SAID, {"at_ms": at_ms, "cloud": cloud})
        if row[0] in seen
    }
    now.update(said)
    return set(said)


def _late_points(
    connection: Connection, offer_id: int, quotes: Sequence[Quote], source_ids: dict[str, int]
) -> tuple[list[_Point], int]:
    """Points among `quotes`, which are in order of time, by what is known of that time; and how many are changes."""
    point = PRICE_POINT.c
    query = select(point.effective_at_ms, point.observed_at_ms, point.price_micro_usd_h, point.source_id)
    known = sorted(Held(*row) for row in connection.execute(query.where(point.offer_id == offer_id)))
    new: list[_Point] = []
    changes = 0
    for quote in quotes:
        at = bisect_right(known, quote.effective_at_ms, key=lambda row: row.effective_at_ms)
        if at and not is_point(quote, known[at - 1]):
            continue
        changes += not at or known[at - 1].price_micro_usd_h != quote.price_micro_usd_h
        entry = _held(quote, source_ids)
        insort(known, entry)
        new.append((offer_id, *entry))
    return new, changes


def _write(connection: Connection, points: Sequence[_Point], now: dict[int, Held]) -> None:
    """As plain tuples: a poll writes all its offers, and a dict for each would double its time."""
    if points:
        connection.exec_driver_sql(_INSERT_POINT, list(points))
    if now:
        connection.exec_driver_sql(_PUT_NOW, [(offer_id, *value) for offer_id, value in now.items()])


def _offer_ids(connection: Connection, batch: Sequence[Quote]) -> dict[str, int]:
    """Ids by offer key; new offers get one, and an offer whose shape has changed keeps its own."""
    wanted = {quote.offer.key: quote.offer for quote in batch}
    known = {row[1]: row for row in fetch(connection, _OFFERS)}
    fresh = [offer_row(offer) for key, offer in wanted.items() if key not in known]
    if fresh:
        connection.execute(insert(OFFER), fresh)
    reshaped = [
        offer_row(offer) for key, offer in wanted.items() if key in known and known[key][2:] != _shape(offer)
    ]
    for row in reshaped:
        connection.execute(update(OFFER).where(OFFER.c.key == row["key"]).values(**row))
    if fresh or reshaped:
        count_up(connection)
    if fresh:
        return dict(fetch(connection, "SELECT key, id FROM offer"))
    return {key: row[0] for key, row in known.items()}


def count_up(connection: Connection) -> None:
    """For `broker.store.offers`: what is held of offers is old. The count lies in the file's header, so it commits, or
    does not, with the rows."""
    count = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
    connection.exec_driver_sql(f"PRAGMA user_version = {(count + 1) % 2**31}")


def offer_row(offer: Offer) -> dict[str, Any]:
    """Columns of an offer, but its id."""
    return {
        "key": offer.key,
        **{name: getattr(offer, name) for name in OFFER_FIELDS},
        "market": offer.market.value,
    }


def source_ids_of(connection: Connection, names: set[str]) -> dict[str, int]:
    """Ids by name; new sources get one."""
    known: dict[str, int] = {row.name: row.id for row in connection.execute(select(SOURCE))}
    if fresh := sorted(names - known.keys()):
        connection.execute(insert(SOURCE), [{"name": name} for name in fresh])
        known = {row.name: row.id for row in connection.execute(select(SOURCE))}
    return known
