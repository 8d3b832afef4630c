"""How long the market is remembered: once a day, what nobody needs any more is taken out."""

import asyncio

import structlog

from broker.core.errors import DiskFull
from broker.core.ports import Clock
from broker.core.time import DAY_S, MS
from broker.store.history import HistoryStore
from broker.store.prune import Pruned
from broker.store.state import StateStore

log = structlog.get_logger()

KEEP_POLLS_S = 30 * DAY_S


class Retention:
    """Prunes at the start, and again whenever it is woken.

    Args:
        keep_s: Changes of price. Those that a bill needs stay, whatever their age: a bill is computed anew each time.
    """

    def __init__(self, history: HistoryStore, store: StateStore, clock: Clock, keep_s: float) -> None:
        self._history = history
        self._store = store
        self._clock = clock
        self._keep_s = keep_s
        self.due = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await asyncio.to_thread(self.once)
            except DiskFull as error:
                log.error("history.not_pruned", reason=str(error))
            except Exception:
                log.exception("history.not_pruned")
            await self.due.wait()
            self.due.clear()

    def once(self) -> Pruned:
        """Take out what is old as of now. Blocks."""
        now_ms = self._clock.now_ms()
        with self._store.read() as tx:
            segments = tx.segments()
        needed: dict[str, int] = {}
        for segment in segments:
            key = segment.offer.key
            needed[key] = min(segment.started_at_ms, needed.get(key, segment.started_at_ms))
        pruned = self._history.prune(
            now_ms - round(self._keep_s * MS), now_ms - round(KEEP_POLLS_S * MS), needed
        )
        log.info("history.pruned", points=pruned.points, polls=pruned.polls, doubts=pruned.doubts)
        return pruned
