"""One whole poll, judged by what the history knows, and written down."""

from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from broker.core.offer import RawQuote
from broker.market.quarantine import Sifted, pending_of, sift
from broker.store.history import HistoryStore

log = structlog.get_logger()


@dataclass(frozen=True)
class Taken:
    """What became of a poll.

    Attributes:
        changes: How many prices have become others; one that is seen for the first time is none.
    """

    sifted: Sifted
    changes: int


def take_in(history: HistoryStore, raws: Iterable[RawQuote], started_at_ms: int) -> Taken:
    """Judge a poll that began then, and keep what it says and what is doubted of it."""
    # One transaction from what was known to what is known: a person who confirms or drops a reading does so before or
    # after a poll, and is never undone by one that has read the doubts before.
    with history.alone() as kept:
        doubted = history.quarantined()
        sifted = sift(raws, started_at_ms, history.now(), pending_of(doubted))
        changes = kept.ingest(sifted.quotes, started_at_ms)
        entries = []
        for key, doubt in sifted.doubts.items():
            known = doubted.get(key)
            is_news = known is None or (known.raw.price_text, known.reason) != (
                doubt.raw.price_text,
                doubt.reason,
            )
            if is_news:
                log.warning("quote.quarantined", offer=key, price=doubt.raw.price_text, reason=doubt.reason)
            # Some hundred offers have GPUs that we do not know, in every poll: once told is enough.
            was_ahead = known is not None and known.last_seen_ms > started_at_ms
            if is_news or was_ahead or doubt.wait is not None:
                entries.append(doubt.row(started_at_ms))
        if entries or sifted.released:
            kept.keep_doubts(entries, sifted.released, started_at_ms)
    for key in sifted.released:
        log.info("quote.released", offer=key)
    return Taken(sifted, changes)
