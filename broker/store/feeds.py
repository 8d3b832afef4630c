"""How each cloud has been read, over all polls that are kept."""

from dataclasses import dataclass

from sqlalchemy import Connection

from broker.store.fetch import fetch

# The newest is the one written last: the clock may have been set. With `max()` in it, SQLite takes the bare columns from the row of the maximum: https://sqlite.org/lang_select.html#bareagg
_WHOLE = "SELECT cloud, started_at_ms, offers, max(id) FROM poll WHERE kind = 'prices' AND ok GROUP BY cloud"
_SINCE = """\
SELECT cloud, sum(started_at_ms >= :since_ms), sum(started_at_ms >= :since_ms AND NOT ok),
       sum(CASE WHEN started_at_ms >= :since_ms THEN changes ELSE 0 END)
FROM poll WHERE kind = 'prices' GROUP BY cloud"""


@dataclass(frozen=True)
class Polled:
    """Polls of one cloud's prices.

    Attributes:
        polls, failed, changes: Since the moment that was asked for.
        whole_at_ms: Start of the last whole poll ever; None: there was none.
        offers: In that one.
    """

    polls: int = 0
    failed: int = 0
    changes: int = 0
    whole_at_ms: int | None = None
    offers: int = 0


def polled(connection: Connection, since_ms: int) -> dict[str, Polled]:
    """By cloud, of all that have ever been polled."""
    whole = {cloud: (at_ms, offers) for cloud, at_ms, offers, _ in fetch(connection, _WHOLE)}
    counted = fetch(connection, _SINCE, {"since_ms": since_ms})
    return {
        cloud: Polled(polls, failed, changes, *whole.get(cloud, ()))
        for cloud, polls, failed, changes in counted
    }
