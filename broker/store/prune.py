"""What is old goes out of ``history.db``, in short transactions, so that a poll that wants to write waits for none long.

The file does not shrink; its free pages are written again before it grows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, Engine

from broker.store.fetch import fetch

_OFFERS = 500  # of one transaction
_KEYS = "SELECT id, key FROM offer ORDER BY id"
# Strictly before the last one that began by the horizon: that one says what held then, and so do its corrections.
_POINTS = """\
DELETE FROM price_point WHERE offer_id = :id AND effective_at_ms < (
    SELECT max(effective_at_ms) FROM price_point WHERE offer_id = :id AND effective_at_ms <= :horizon_ms)"""
# That the past was read is remembered for ever, or it would be read again; and of each cloud how it was last read.
_POLLS = """\
DELETE FROM poll WHERE started_at_ms < :before_ms AND kind != 'history'
AND id NOT IN (SELECT max(id) FROM poll GROUP BY cloud, kind, ok)"""
_DOUBTS = "DELETE FROM quarantine WHERE released_at_ms < :before_ms"


@dataclass(frozen=True)
class Pruned:
    """How many rows are gone."""

    points: int
    polls: int
    doubts: int


def prune(
    writer: Engine, points_before_ms: int, polls_before_ms: int, keep_since_ms: Mapping[str, int]
) -> Pruned:
    """Take out what is older than that.

    Args:
        points_before_ms: Changes of price and closed doubts. The price that held then stays.
        polls_before_ms: Polls.
        keep_since_ms: By offer key: from when on its prices are needed, however old that is.
    """
    points = sum(_prune_points(writer, points_before_ms, keep_since_ms))
    with writer.begin() as connection:
        polls = connection.exec_driver_sql(_POLLS, {"before_ms": polls_before_ms}).rowcount
        doubts = connection.exec_driver_sql(_DOUBTS, {"before_ms": points_before_ms}).rowcount
    return Pruned(points, polls, doubts)


def _prune_points(writer: Engine, before_ms: int, keep_since_ms: Mapping[str, int]) -> Iterator[int]:
    with writer.connect() as connection:
        offers = fetch(connection, _KEYS)
    for start in range(0, len(offers), _OFFERS):
        with writer.begin() as connection:
            yield _delete(connection, offers[start : start + _OFFERS], before_ms, keep_since_ms)


def _delete(
    connection: Connection, offers: list[tuple[int, str]], before_ms: int, keep_since_ms: Mapping[str, int]
) -> int:
    values = [
        {"id": offer_id, "horizon_ms": min(before_ms, keep_since_ms.get(key, before_ms))}
        for offer_id, key in offers
    ]
    return connection.exec_driver_sql(_POINTS, values).rowcount
