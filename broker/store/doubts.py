"""Readings in quarantine as rows: one open row an offer, closed when it is believed or another takes its place."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, update

from broker.core.gpu import GPUS
from broker.core.offer import Offer, RawQuote
from broker.core.plain import from_plain, to_plain
from broker.store.fetch import fetch
from broker.store.prices import QUARANTINE

_ROW = QUARANTINE.c


@dataclass(frozen=True)
class Quarantined:
    """A reading that is kept and not believed.

    Attributes:
        raw: As the provider read it.
        reason: Why it is not believed.
        times_seen: How many polls in a row have said so. Of what can be no price only the first one is counted.
        held_ms: For how long it has been watched to stay.
        needed_ms: How long it takes to be believed; None when no time proves anything.
    """

    raw: RawQuote
    reason: str
    first_seen_ms: int
    last_seen_ms: int
    times_seen: int
    held_ms: int = 0
    needed_ms: int | None = None


def is_gpu_known(entry: Quarantined) -> bool:
    """Whether a person may decide on it: of a GPU that this release does not know nothing is a price."""
    return entry.raw.offer.gpu in GPUS


def keep(connection: Connection, doubted: Iterable[Quarantined], released: Iterable[str], at_ms: int) -> None:
    """Write down what one poll has left in doubt, and what it has not. The caller owns the transaction."""
    open_rows = {row.offer_key: row for row in connection.execute(_OPEN)}
    again: list[dict[str, Any]] = []
    fresh: list[dict[str, Any]] = []
    closed = [key for key in released if key in open_rows]
    for entry in doubted:
        row = open_rows.get(entry.raw.offer.key)
        if row is not None and (row.price_text, row.reason) == (entry.raw.price_text, entry.reason):
            again.append(
                {
                    "row": row.id,
                    "seen": entry.times_seen,
                    "last": entry.last_seen_ms,
                    "held": entry.held_ms,
                    "needed": entry.needed_ms,
                }
            )
            continue
        if row is not None:
            closed.append(row.offer_key)
        fresh.append(_values(entry))
    if again:
        connection.execute(_AGAIN, again)
    if closed:
        mine = (_ROW.offer_key == bindparam("key"), _ROW.released_at_ms.is_(None))
        close = update(QUARANTINE).where(*mine).values(released_at_ms=at_ms)
        connection.execute(close, [{"key": key} for key in closed])
    if fresh:
        connection.execute(insert(QUARANTINE), fresh)


def open_doubts(connection: Connection) -> Mapping[str, Quarantined]:
    """What is in quarantine now, by offer key."""
    return {
        key: Quarantined(RawQuote(from_plain(Offer, json.loads(offer)), *row[:4]), *row[4:])
        for key, offer, *row in fetch(connection, _ALL_OPEN)
    }


def _values(entry: Quarantined) -> dict[str, Any]:
    raw = entry.raw
    return {
        "offer_key": raw.offer.key,
        "offer": json.dumps(to_plain(raw.offer)),
        "price_text": raw.price_text,
        "currency": raw.currency,
        "effective_at_ms": raw.effective_at_ms,
        "source": raw.source,
        "reason": entry.reason,
        "first_seen_ms": entry.first_seen_ms,
        "last_seen_ms": entry.last_seen_ms,
        "times_seen": entry.times_seen,
        "held_ms": entry.held_ms,
        "needed_ms": entry.needed_ms,
    }


_OPEN = select(_ROW.id, _ROW.offer_key, _ROW.price_text, _ROW.reason).where(_ROW.released_at_ms.is_(None))
_AGAIN = (
    update(QUARANTINE)
    .where(_ROW.id == bindparam("row"))
    .values(
        times_seen=bindparam("seen"),
        last_seen_ms=bindparam("last"),
        # A first look that lies ahead of the last one was dated by a clock that was ahead.
        first_seen_ms=func.min(_ROW.first_seen_ms, bindparam("last")),
        held_ms=bindparam("held"),
        needed_ms=bindparam("needed"),
    )
)
# Asked in every pass.
_ALL_OPEN = """\
SELECT offer_key, offer, price_text, currency, effective_at_ms, source, reason, first_seen_ms, last_seen_ms, times_seen,
held_ms, needed_ms FROM quarantine WHERE released_at_ms IS NULL ORDER BY id"""
