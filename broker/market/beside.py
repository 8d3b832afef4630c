"""What is asked beside the prices: hints about obtaining an offer after each poll, and the past once.

Neither is needed for a decision, so a failure is written down and says nothing about the prices.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import structlog

from broker.core.availability import Availability, Unanswered
from broker.core.errors import DiskFull, ProviderError
from broker.core.offer import Quote, RawQuote
from broker.core.ports import Clock, PriceSource
from broker.core.time import DAY_S, MS
from broker.core.visible import visible
from broker.market.quarantine import judge
from broker.market.reader import Reader
from broker.store.history import ERROR_MAX, HistoryStore, Poll, PollKind

log = structlog.get_logger()

HISTORY_S = 90 * DAY_S  # what EC2 keeps; the others keep less or nothing
HISTORY_TIMEOUT_S = 1800.0

T = TypeVar("T")


class Beside:
    """Reads hints and the past of one cloud at a time, and keeps them."""

    def __init__(self, history: HistoryStore, clock: Clock) -> None:
        self._history = history
        self._clock = clock
        # Saves a write after each poll of a cloud that never says anything, and a question about the past.
        self._silent: set[str] = set()
        self._since_ms: dict[str, int] = {}
        self._known: set[str] = set()

    async def hints(self, source: PriceSource, reader: Reader, timeout_s: float) -> None:
        """What the cloud says now about obtaining its offers. What it said before stays where it does not answer."""

        def take(said: Sequence[Availability | Unanswered], _: int) -> None:
            hints = [hint for hint in said if isinstance(hint, Availability)]
            self._history.record_hints(source.cloud, hints, whole=len(hints) == len(said))

        poll = await self._look(
            PollKind.AVAILABILITY, source, lambda: reader.read(source.availability, timeout_s), take
        )
        if poll.ok and not poll.offers:
            self._silent.add(source.cloud)
        else:
            self._silent.discard(source.cloud)

    async def past(self, source: PriceSource, reader: Reader) -> None:
        """Prices of before this process, again until they have been read whole: 90 days, where nobody has read them
        yet, and afterwards what changed while no daemon looked.
        """
        if source.cloud in self._known:
            return
        from_ms = self._since_ms.setdefault(source.cloud, self._seen_until_ms(source.cloud))

        def take(raws: Sequence[RawQuote], observed_at_ms: int) -> None:
            now = self._history.now()
            changes = self._history.ingest(believable(raws, observed_at_ms, now))
            log.info("history.imported", cloud=source.cloud, points=len(raws), changes=changes)

        poll = await self._look(
            PollKind.HISTORY,
            source,
            lambda: reader.read(lambda: source.price_history(from_ms), HISTORY_TIMEOUT_S),
            take,
        )
        if poll.ok:
            self._known.add(source.cloud)

    def _seen_until_ms(self, cloud: str) -> int:
        """Until when a daemon before this one has looked. The newest whole poll is our own, made a moment ago."""
        longest_ms = self._clock.now_ms() - round(HISTORY_S * MS)
        if not any(poll.ok for poll in self._history.polls(cloud, kind=PollKind.HISTORY)):
            return longest_ms
        whole = [poll.started_at_ms for poll in self._history.polls(cloud, limit=1000) if poll.ok]
        # One that lies ahead of the clock was dated by a clock that was ahead.
        return max([longest_ms, *(at_ms for at_ms in whole[1:2] if at_ms <= self._clock.now_ms())])

    async def _look(
        self,
        kind: PollKind,
        source: PriceSource,
        read: Callable[[], Awaitable[list[T]]],
        keep: Callable[[list[T], int], None],
    ) -> Poll:
        started_at_ms = self._clock.now_ms()
        try:
            found = await read()
            if kind is PollKind.AVAILABILITY and not found and source.cloud in self._silent:
                return Poll(source.cloud, started_at_ms, self._clock.now_ms(), True, kind=kind)
            await asyncio.to_thread(keep, found, started_at_ms)
        except DiskFull:
            raise
        except Exception as error:  # noqa: BLE001 - a mistake in one provider must not stop the others
            log.warning(
                "poll.failed",
                cloud=source.cloud,
                kind=kind,
                code=error.code if isinstance(error, ProviderError) else type(error).__name__,
                error=visible(str(error), ERROR_MAX),
            )
            text = str(error) or type(error).__name__
            poll = Poll(source.cloud, started_at_ms, self._clock.now_ms(), False, error=text, kind=kind)
        else:
            poll = _looked(kind, source.cloud, started_at_ms, self._clock.now_ms(), found)
        await asyncio.to_thread(self._history.record_poll, poll)
        return poll


def _looked(
    kind: PollKind, cloud: str, started_at_ms: int, ended_at_ms: int, found: Sequence[object]
) -> Poll:
    missing = [item.error for item in found if isinstance(item, Unanswered)]
    if missing:
        log.warning(
            "poll.failed", cloud=cloud, kind=kind, code="partial", error=missing[0], failed=len(missing)
        )
    read = len(found) - len(missing)
    return Poll(cloud, started_at_ms, ended_at_ms, not missing, read, error="; ".join(missing), kind=kind)


def believable(raws: Sequence[RawQuote], observed_at_ms: int, now: Mapping[str, Quote]) -> list[Quote]:
    """Those of the past that could be prices. What the market would doubt is left out: nobody can confirm it.

    The past never says what holds now: that is the polls', which weigh it. So a change that is newer than the price
    now is left out, and an offer that is not sold now.
    """
    judged = (judge(raw, observed_at_ms, None) for raw in raws if raw.effective_at_ms is not None)
    return [quote for quote in judged if isinstance(quote, Quote) and _is_older(quote, now)]


def _is_older(quote: Quote, now: Mapping[str, Quote]) -> bool:
    current = now.get(quote.offer.key)
    return current is not None and quote.effective_at_ms < current.effective_at_ms
