"""Reading prices: one loop a cloud, each at its own interval, none of them in another's way.

A poll is whole or failed. A failed one leaves the cloud's quotes as they were: they age, and age is what keeps
decisions from trusting them. It is made again soon, since a network that comes back comes back at once; a cloud that
has had too many calls is left alone. Every poll is a row, so that "nothing changed" and "we were blind" differ.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite

import structlog

from broker.core.errors import Conflict, DiskFull, NotFound, ProviderError, Throttled
from broker.core.offer import RawQuote
from broker.core.ports import Clock, PriceSource
from broker.core.time import MS, age_s
from broker.core.visible import visible
from broker.market.beside import Beside
from broker.market.intake import take_in
from broker.market.reader import Reader, Reading
from broker.store.history import ERROR_MAX, HistoryStore, Poll

log = structlog.get_logger()

DEFAULT_INTERVAL_S = 300.0
READ_TIMEOUT_S = 120.0
# After a first failure, in seconds of our clock; twice as long after each further one, up to the interval.
RETRY_S = 30.0
# A cloud that has had too many calls and does not say when to come back: up to so many intervals.
_BACKOFF_MAX = 8
# Real seconds for which a cloud may ask to be left alone. Longer, and nobody would know what it costs.
LONGEST_RETRY_S = 3600.0
# Real seconds between two looks at the clock.
_LOOK_S = 60.0


@dataclass
class _Cloud:
    """What the poller knows of one cloud.

    Attributes:
        woken: Somebody asks for a poll now.
        asked: Those who wait for what comes of it.
        busy: One poll at a time, whoever asks.
        failures: In a row.
        from_ms: Since when it is left alone, on our clock: the start of a poll, or the end of a failed one ...
        wait_ms: ... and for how long.
        whole_at_ms: Start of the last whole poll.
    """

    source: PriceSource
    reader: Reader
    interval_s: float
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    asked: "list[asyncio.Future[Poll]]" = field(default_factory=list)
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    failures: int = 0
    from_ms: int = 0
    wait_ms: int = 0
    whole_at_ms: int | None = None

    def left_s(self, now_ms: int) -> float:
        """Until the next poll, on our clock. A start that is still to come was noted before the clock was set back,
        and holds nothing up.
        """
        return (self.from_ms + self.wait_ms - now_ms) / MS if self.from_ms <= now_ms else 0.0

    def rest(self, from_ms: int, seconds: float) -> None:
        """The next poll is so long after that moment."""
        self.from_ms, self.wait_ms = from_ms, round(seconds * MS)

    def after_failure_s(self, error: Exception, rate: float) -> float:
        """Until the next try, in seconds of our clock.

        Args:
            rate: Of our clock: what a cloud asks for is real time.
        """
        soon_s = min(RETRY_S * 2.0 ** min(self.failures - 1, 30), self.interval_s)
        if not isinstance(error, Throttled):
            return soon_s
        if error.retry_after_s is None:
            return self.interval_s * min(2.0 ** min(self.failures - 1, 30), _BACKOFF_MAX)
        asked_s = error.retry_after_s if isfinite(error.retry_after_s) else LONGEST_RETRY_S
        return max(soon_s, min(asked_s, LONGEST_RETRY_S) * rate)


class Poller:
    """Polls every cloud until cancelled.

    Args:
        sources: By cloud.
        history: Where prices, polls and doubts are kept.
        clock: Ours; intervals are in its seconds, time-outs in real ones.
        intervals_s: By cloud; 300 where missing.
        polled: Called on the event loop after each poll, failed ones too.
        timeout_s: Real seconds that a cloud has for its whole price list.
    """

    def __init__(
        self,
        sources: Mapping[str, PriceSource],
        history: HistoryStore,
        clock: Clock,
        *,
        intervals_s: Mapping[str, float] | None = None,
        polled: Callable[[], None] = lambda: None,
        timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        self._history = history
        self._clock = clock
        self._polled = polled
        self._beside = Beside(history, clock)
        self._timeout_s = timeout_s
        intervals = intervals_s or {}
        self._clouds = {
            cloud: _Cloud(source, Reader(cloud), intervals.get(cloud, DEFAULT_INTERVAL_S))
            for cloud, source in sources.items()
        }

    async def run(self) -> None:
        """Poll every cloud now, and then each at its interval."""
        async with asyncio.TaskGroup() as group:
            for name in self._clouds:
                group.create_task(self._loop(name), name=f"poll:{name}")

    async def ask(self, name: str) -> Poll:
        """Have the loop of one cloud poll now, however recently it was polled or failed; the outcome of its prices.

        Raises:
            NotFound: no such cloud is configured.
            Conflict: it is being read already.
        """
        cloud = self._named(name)
        if cloud.busy.locked():
            raise Conflict(f"{name} is being read now; `broker market` shows what comes of it")
        told: asyncio.Future[Poll] = asyncio.get_running_loop().create_future()
        cloud.asked.append(told)
        cloud.woken.set()
        return await told

    async def poll_now(self, name: str) -> Poll:
        """Poll one cloud, however recently it was polled or failed.

        Raises:
            NotFound: no such cloud is configured.
        """
        cloud = self._named(name)
        async with cloud.busy:
            # Who asks from here on may have changed something that this poll did not see.
            asked, cloud.asked = cloud.asked, []
            try:
                poll = await self._poll(name, cloud)
            except Exception as error:
                for told in asked:
                    if not told.done():
                        told.set_exception(error)
                raise
            for told in asked:
                if not told.done():
                    told.set_result(poll)
            self._polled()
            if poll.ok:
                await self._beside.hints(cloud.source, cloud.reader, self._timeout_s)
                await self._beside.past(cloud.source, cloud.reader)
        return poll

    def next_ms(self) -> dict[str, int]:
        """When each cloud is polled next, on our clock; one that is due now is not told."""
        now_ms = self._clock.now_ms()
        return {
            name: cloud.from_ms + cloud.wait_ms
            for name, cloud in self._clouds.items()
            if cloud.left_s(now_ms) > 0
        }

    def ages_s(self) -> dict[str, float | None]:
        """Seconds since each cloud's prices were last read in full; None where they never were."""
        now_ms = self._clock.now_ms()
        return {
            name: None if cloud.whole_at_ms is None else age_s(cloud.whole_at_ms, now_ms)
            for name, cloud in self._clouds.items()
        }

    def reading(self) -> dict[str, Reading]:
        """Reads under way, by cloud."""
        return {name: now for name, cloud in self._clouds.items() if (now := cloud.reader.reading)}

    def _named(self, name: str) -> _Cloud:
        cloud = self._clouds.get(name)
        if cloud is None:
            raise NotFound(f"no cloud {name!r} is configured; there are {', '.join(self._clouds) or 'none'}")
        return cloud

    async def _loop(self, name: str) -> None:
        cloud = self._clouds[name]
        while True:
            await self._until_due(cloud)
            try:
                await self.poll_now(name)
            except DiskFull as error:
                # It could not be written down. All else that the daemon does goes on.
                log.error("poll.lost", cloud=name, reason=str(error))
            except Exception:
                log.exception("poll.lost", cloud=name)

    async def _until_due(self, cloud: _Cloud) -> None:
        while not cloud.asked and (left_s := cloud.left_s(self._clock.now_ms())) > 0:
            cloud.woken.clear()
            # The clock may be set meanwhile, so it is looked at again.
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s / self._clock.rate, _LOOK_S)):
                    await cloud.woken.wait()

    async def _poll(self, name: str, cloud: _Cloud) -> Poll:
        # Prices are dated by the start: what came in later was true no earlier than that.
        started_at_ms = self._clock.now_ms()
        cloud.rest(started_at_ms, cloud.interval_s)
        try:
            raws = await cloud.reader.read(cloud.source.quotes, self._timeout_s)
        except ProviderError as error:
            log.warning("poll.failed", cloud=name, code=error.code, error=visible(str(error), ERROR_MAX))
            return await self._failed(name, cloud, started_at_ms, error)
        except Exception as error:
            # A mistake in one provider must not stop the others.
            log.exception("poll.failed", cloud=name)
            return await self._failed(name, cloud, started_at_ms, error)
        try:
            poll, doubts = await asyncio.to_thread(self._take_in, name, raws, started_at_ms)
        except DiskFull:
            raise
        except Exception as error:
            # What came in is of a kind that nobody thought of: as good as nothing, and told as such.
            log.exception("poll.failed", cloud=name)
            return await self._failed(name, cloud, started_at_ms, error)
        cloud.failures = 0
        if poll.ok:
            cloud.whole_at_ms = started_at_ms
        else:
            log.warning("poll.unbelieved", cloud=name, error=poll.error)
        log.info(
            "poll.finished",
            cloud=name,
            offers=poll.offers,
            changes=poll.changes,
            doubts=doubts,
            took_s=(poll.ended_at_ms - started_at_ms) / MS,
        )
        return poll

    async def _failed(self, name: str, cloud: _Cloud, started_at_ms: int, error: Exception) -> Poll:
        cloud.failures += 1
        ended_at_ms = self._clock.now_ms()
        cloud.rest(ended_at_ms, cloud.after_failure_s(error, self._clock.rate))
        text = visible(str(error) or type(error).__name__, ERROR_MAX)
        poll = Poll(name, started_at_ms, ended_at_ms, ok=False, error=text)
        await asyncio.to_thread(self._history.record_poll, poll)
        return poll

    def _take_in(self, name: str, raws: list[RawQuote], started_at_ms: int) -> tuple[Poll, int]:
        """Judge a whole poll and write it down; returns its row and how many readings are doubted."""
        taken = take_in(self._history, raws, started_at_ms)
        error = ""
        if raws and not taken.sifted.quotes:
            # It has come in, and is no price list: the cloud's quotes go on ageing as if it had not.
            reason = next(iter(taken.sifted.doubts.values())).reason
            error = f"none of {len(raws)} prices is believed; {reason}"
        poll = Poll(name, started_at_ms, self._clock.now_ms(), not error, len(raws), taken.changes, error)
        self._history.record_poll(poll)
        return poll, len(taken.sifted.doubts)
