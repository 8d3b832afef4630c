"""Reading a cloud off the event loop: one call at a time, never longer than it may take."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from broker.core.errors import ProviderDown

log = structlog.get_logger()

T = TypeVar("T")

# Real seconds between two words about a long read.
PROGRESS_S = 10.0


@dataclass
class Reading:
    """A read under way.

    Attributes:
        began_s: On the monotonic clock, in real seconds.
        found: Items so far; a provider that hands over a list has nothing to show before its end.
    """

    began_s: float
    found: int = 0


class Reader:
    """Runs one provider's blocking reads in a thread.

    A thread cannot be killed. One that hangs past its time is left behind, and until it returns nothing more is
    asked of that cloud, so there is never more than one per cloud. It is a daemon thread, since those of an
    executor would hold up the end of the process for as long as the cloud keeps them.
    """

    def __init__(self, cloud: str) -> None:
        self._cloud = cloud
        self._before: Future[Any] | None = None
        self.reading: Reading | None = None

    async def read(self, call: Callable[[], Iterable[T]], timeout_s: float) -> list[T]:
        """Everything that a call yields, or an error: what came before an error in the middle is not handed out.

        Args:
            call: Blocks; a generator is run to its end in the thread.
            timeout_s: Real seconds.

        Raises:
            ProviderDown: it took longer, or the call before still has not come back.
            ProviderError: as the provider says.
        """
        # By the answer and not by its thread, which may outlive it by a moment.
        if self._before is not None and not self._before.done():
            raise ProviderDown(f"{self._cloud}: the poll before still has not come back")
        result: Future[list[T]] = Future()
        reading = Reading(time.monotonic())
        # From here on a cancel of the waiting side cannot reach it, so the thread may always set a result.
        result.set_running_or_notify_cancel()
        threading.Thread(
            target=_run, args=(call, result, reading), name=f"poll-{self._cloud}", daemon=True
        ).start()
        self._before, self.reading = result, reading
        try:
            async with asyncio.timeout(timeout_s):
                return await self._watched(asyncio.wrap_future(result), reading)
        except TimeoutError as error:
            so_far = f", {reading.found} read by then" if reading.found else ""
            raise ProviderDown(f"{self._cloud}: no answer within {timeout_s:g} s{so_far}") from error
        finally:
            self.reading = None

    async def _watched(self, result: "asyncio.Future[list[T]]", reading: Reading) -> list[T]:
        """Wait, and say now and then how far it is."""
        while not result.done():
            await asyncio.wait([result], timeout=PROGRESS_S)
            if not result.done():
                took_s = round(time.monotonic() - reading.began_s, 1)
                log.info("poll.progress", cloud=self._cloud, found=reading.found, took_s=took_s)
        return result.result()


def _run(call: Callable[[], Iterable[Any]], result: "Future[list[Any]]", reading: Reading) -> None:
    try:
        items = []
        for item in call():
            items.append(item)
            reading.found += 1
        result.set_result(items)
    except Exception as error:  # noqa: BLE001 - handed to the side that waits
        result.set_exception(error)
