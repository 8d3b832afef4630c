"""Prices over time: which offers there are to look at, and the points of some of them.

Every question names offers first, so that points are found by their key: of ten million, those of one offer and a month
take a few milliseconds.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from broker.core.offer import Market, Offer, Quote
from broker.store.fetch import fetch
from broker.store.ingest import OFFER_FIELDS

_OFFER = ", ".join(f"o.{name}" for name in OFFER_FIELDS)
# The last point where there is no row of `price_now`: an offer that only an import knows has none.
_LAST = "SELECT price_micro_usd_h FROM price_point WHERE offer_id = o.id ORDER BY effective_at_ms DESC, observed_at_ms DESC LIMIT 1"
_POINT = "p.price_micro_usd_h, p.effective_at_ms, p.observed_at_ms, s.name"
_POINTS = f"SELECT {_POINT} FROM price_point p JOIN source s ON s.id = p.source_id WHERE p.offer_id = :id"
_NEWEST = "ORDER BY p.effective_at_ms DESC, p.observed_at_ms DESC LIMIT :most"
_INSIDE = f"{_POINTS} AND p.effective_at_ms >= :from_ms AND p.effective_at_ms < :to_ms {_NEWEST}"
_BEFORE = f"{_POINTS} AND p.effective_at_ms < :from_ms {_NEWEST}"

_OF_KEY = f"""\
SELECT {_POINT}, {_OFFER} FROM offer o JOIN price_point p ON p.offer_id = o.id JOIN source s ON s.id = p.source_id
WHERE o.key = :key AND p.effective_at_ms < :to_ms AND p.effective_at_ms >= coalesce(
    (SELECT max(effective_at_ms) FROM price_point WHERE offer_id = o.id AND effective_at_ms < :from_ms), :from_ms)
ORDER BY p.effective_at_ms, p.observed_at_ms"""


@dataclass(frozen=True)
class Known:
    """An offer that has points.

    Attributes:
        id: Of its row.
        last_micro_usd_h: Its newest price.
        last_seen_ms: When a poll last saw it; None when only an import knows it.
    """

    id: int
    offer: Offer
    last_micro_usd_h: int
    last_seen_ms: int | None


@dataclass(frozen=True)
class Curve:
    """An offer's price over time.

    Attributes:
        points: In order; the first one says what held at the start of the window, where that is known.
        cut: Whether older points of the window were left out.
    """

    known: Known
    points: tuple[Quote, ...]
    cut: bool


def known_offers(
    connection: Connection,
    gpus: Collection[str],
    cloud: str | None = None,
    market: Market | None = None,
    count: int | None = None,
) -> list[Known]:
    """Offers with points, the cheapest per GPU first.

    Args:
        gpus: SKUs.
        cloud, market, count: Only those; `count` is GPUs of one instance.
    """
    names = [f"gpu{at}" for at in range(len(gpus))]
    values: dict[str, Any] = dict(zip(names, gpus, strict=True))
    where = [f"o.gpu IN ({', '.join(f':{name}' for name in names)})"]
    for column, value in (("cloud", cloud), ("market", market), ("gpus", count)):
        if value is not None:
            where.append(f"o.{column} = :{column}")
            values[column] = str(value) if isinstance(value, Market) else value
    rows = fetch(
        connection,
        f"SELECT o.id, coalesce(n.price_micro_usd_h, ({_LAST})), n.observed_at_ms, {_OFFER} FROM offer o LEFT JOIN price_now n ON n.offer_id = o.id "
        f"WHERE {' AND '.join(where)}",
        values,
    )
    found = [Known(row[0], _offer(row[3:]), row[1], row[2]) for row in rows if row[1] is not None]
    return sorted(found, key=lambda known: (known.last_micro_usd_h / known.offer.gpus, known.offer.key))


def curve(connection: Connection, known: Known, from_ms: int, to_ms: int, most: int) -> Curve:
    """Points with ``from_ms <= effective_at < to_ms`` and the last one before them; of more than `most` the newest."""
    window = {"id": known.id, "from_ms": from_ms, "to_ms": to_ms}
    inside = fetch(connection, _INSIDE, window | {"most": most + 1})
    cut = len(inside) > most
    before = [] if cut else fetch(connection, _BEFORE, {"id": known.id, "from_ms": from_ms, "most": 1})
    rows = (*before, *reversed(inside[:most]))
    return Curve(known, tuple(Quote(known.offer, *row) for row in rows), cut)


def points(connection: Connection, key: str, from_ms: int, to_ms: int) -> list[Quote]:
    """All points with ``from_ms <= effective_at < to_ms`` of the offer with that key, and the last one before them."""
    rows = fetch(connection, _OF_KEY, {"key": key, "from_ms": from_ms, "to_ms": to_ms})
    if not rows:
        return []
    offer = _offer(rows[0][4:])
    found = [Quote(offer, *row[:4]) for row in rows]
    # The moment before has several points where it was corrected.
    before = sum(quote.effective_at_ms < from_ms for quote in found)
    return found[max(before - 1, 0) :]


def _offer(columns: Sequence[Any]) -> Offer:
    shape = dict(zip(OFFER_FIELDS, columns, strict=True))
    return Offer(**shape | {"market": Market(shape["market"])})
