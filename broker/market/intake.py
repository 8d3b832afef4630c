"""One whole poll, judged by what the history knows, and written down."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import structlog

from broker.core.offer import RawQuote
from broker.core.visible import visible
from broker.market.quarantine import Sifted, pending_of, sift
from broker.store.history import HistoryStore

log = structlog.get_logger()


# Characters. A price has some ten, and all that a reading says some hundred.
_PRICE_MAX = 64
_NAME_MAX = 160


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
        sifted = sift(map(legible, raws), started_at_ms, history.now(), pending_of(doubted))
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


def legible(raw: RawQuote) -> RawQuote:
    """The reading with texts of a bounded length, in which nothing is hidden: they are kept, logged and shown."""
    offer = raw.offer
    # Nothing is wrong with nearly all of them, which this sees.
    whole = "".join((raw.price_text, raw.currency, raw.source, offer.key, offer.region, offer.gpu))
    if whole.isprintable() and len(whole) <= _NAME_MAX and len(raw.price_text) <= _PRICE_MAX:
        return raw
    return replace(
        raw,
        offer=replace(
            offer,
            region=visible(offer.region, _NAME_MAX),
            zone=visible(offer.zone, _NAME_MAX),
            instance_type=visible(offer.instance_type, _NAME_MAX),
            gpu=visible(offer.gpu, _NAME_MAX),
        ),
        price_text=visible(raw.price_text, _PRICE_MAX),
        currency=visible(raw.currency, _PRICE_MAX),
        source=visible(raw.source, _NAME_MAX),
    )
