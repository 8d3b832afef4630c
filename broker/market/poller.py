"""Reading prices: one loop a cloud, each at its own interval, none of them in another's way.

A poll is whole or failed. A failed one leaves the cloud's quotes as they were: they age, and age is what keeps
decisions from trusting them. Every poll is a row, so that "nothing changed" and "we were blind" differ.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from math import isfinite

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from broker.core.errors import DiskFull, NotFound, ProviderError, Throttled
from broker.core.offer import RawQuote
from broker.core.ports import Clock, PriceSource
from broker.core.time import MS
from broker.market.beside import Beside
from broker.market.intake import take_in
from broker.market.reader import Reader, Reading
from broker.store.history import HistoryStore, Poll

log = structlog.get_logger()

DEFAULT_INTERVAL_S = 300.0
READ_TIMEOUT_S = 120.0
# A cloud that keeps failing is asked less and less often, down to every eighth time.
_BACKOFF_MAX = 8
# Real seconds for which a cloud may ask to be left alone. Longer, and nobody would know what it costs.
LONGEST_RETRY_S = 3600.0


@dataclass
class _Cloud:
    """What the poller knows of one cloud.

    Attributes:
        due: Set by the scheduler; the loop reads everything else anew when it wakes.
        busy: One poll at a time, whoever asks.
        failures: In a row.
        failed_at_ms: When the last poll failed, on our clock; wake-ups are let pass from then on ...
        wait_ms: ... for so long.
        whole_at_ms: Start of the last whole poll.
    """

    source: PriceSource
    reader: Reader
    interval_s: float
    due: asyncio.Event = field(default_factory=asyncio.Event)
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    failures: int = 0
    failed_at_ms: int = 0
    wait_ms: int = 0
    whole_at_ms: int | None = None

    def may_be_asked(self, now_ms: int) -> bool:
        """Not while it is left alone after a failure. One that is still to come was noted before the clock was set
        back, and holds nothing up.
        """
        return not 0 <= now_ms - self.failed_at_ms < self.wait_ms

    async def wake(self) -> None:
        """Called by the scheduler on the event loop."""
        self.due.set()


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
        # The scheduler only wakes loops: a tick that is late or lost costs nothing but its own delay.
        scheduler = AsyncIOScheduler(
            timezone=UTC,
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        for name, cloud in self._clouds.items():
            cloud.due.set()
            seconds = cloud.interval_s / self._clock.rate
            scheduler.add_job(cloud.wake, "interval", seconds=seconds, id=f"poll:{name}")
        scheduler.start()
        try:
            async with asyncio.TaskGroup() as group:
                for name in self._clouds:
                    group.create_task(self._loop(name), name=f"poll:{name}")
        finally:
            scheduler.shutdown(wait=False)

    async def poll_now(self, name: str) -> Poll:
        """Poll one cloud, however recently it was polled or failed.

        Raises:
            NotFound: no such cloud is configured.
        """
        cloud = self._clouds.get(name)
        if cloud is None:
            raise NotFound(f"no cloud {name!r} is configured; there are {', '.join(self._clouds) or 'none'}")
        async with cloud.busy:
            poll = await self._poll(name, cloud)
            self._polled()
            if poll.ok:
                await self._beside.hints(cloud.source, cloud.reader, self._timeout_s)
                await self._beside.past(cloud.source, cloud.reader)
        return poll

    def ages_s(self) -> dict[str, float | None]:
        """Seconds since each cloud's prices were last read in full; None where they never were."""
        now_ms = self._clock.now_ms()
        return {
            name: None if cloud.whole_at_ms is None else (now_ms - cloud.whole_at_ms) / MS
            for name, cloud in self._clouds.items()
        }

    def reading(self) -> dict[str, Reading]:
        """Reads under way, by cloud."""
        return {name: now for name, cloud in self._clouds.items() if (now := cloud.reader.reading)}

    async def _loop(self, name: str) -> None:
        cloud = self._clouds[name]
        while True:
            await cloud.due.wait()
            cloud.due.clear()
            if cloud.may_be_asked(self._clock.now_ms()):
                try:
                    await self.poll_now(name)
                except DiskFull as error:
                    # It could not be written down. All else that the daemon does goes on.
                    log.error("poll.lost", cloud=name, reason=str(error))
                except Exception:
                    log.exception("poll.lost", cloud=name)

    async def _poll(self, name: str, cloud: _Cloud) -> Poll:
        # Prices are dated by the start: what came in later was true no earlier than that.
        started_at_ms = self._clock.now_ms()
        try:
            raws = await cloud.reader.read(cloud.source.quotes, self._timeout_s)
        except ProviderError as error:
            log.warning("poll.failed", cloud=name, code=error.code, error=str(error))
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
        cloud.failures, cloud.wait_ms = 0, 0
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
        # Half an interval less, or the very tick that is meant would come a moment too early.
        wait_s = cloud.interval_s * (min(2 ** (cloud.failures - 1), _BACKOFF_MAX) - 0.5)
        if isinstance(error, Throttled) and error.retry_after_s is not None:
            asked_s = error.retry_after_s if isfinite(error.retry_after_s) else LONGEST_RETRY_S
            wait_s = max(wait_s, min(asked_s, LONGEST_RETRY_S) * self._clock.rate)
        cloud.failed_at_ms, cloud.wait_ms = started_at_ms, round(wait_s * MS)
        text = str(error) or type(error).__name__
        poll = Poll(name, started_at_ms, self._clock.now_ms(), ok=False, error=text)
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
