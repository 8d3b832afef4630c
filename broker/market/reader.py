"""Reading a cloud off the event loop: one call at a time, never longer than it may take."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

from broker.core.errors import ProviderDown

T = TypeVar("T")


class Reader:
    """Runs one provider's blocking reads in a thread.

    A thread cannot be killed. One that hangs past its time is left behind, and until it returns nothing more is
    asked of that cloud, so there is never more than one per cloud. It is a daemon thread, since those of an
    executor would hold up the end of the process for as long as the cloud keeps them.
    """

    def __init__(self, cloud: str) -> None:
        self._cloud = cloud
        self._thread: threading.Thread | None = None

    async def read(self, call: Callable[[], Iterable[T]], timeout_s: float) -> list[T]:
        """Everything that a call yields, or an error: what came before an error in the middle is not handed out.

        Args:
            call: Blocks; a generator is run to its end in the thread.
            timeout_s: Real seconds.

        Raises:
            ProviderDown: it took longer, or the call before still has not come back.
            ProviderError: as the provider says.
        """
        if self._thread is not None and self._thread.is_alive():
            raise ProviderDown(f"{self._cloud}: the poll before still has not come back")
        result: Future[list[T]] = Future()
        # From here on a cancel of the waiting side cannot reach it, so the thread may always set a result.
        result.set_running_or_notify_cancel()
        self._thread = threading.Thread(
            target=_run, args=(call, result), name=f"poll-{self._cloud}", daemon=True
        )
        self._thread.start()
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.wrap_future(result)
        except TimeoutError as error:
            raise ProviderDown(f"{self._cloud}: no answer within {timeout_s:g} s") from error


def _run(call: Callable[[], Iterable[Any]], result: "Future[list[Any]]") -> None:
    try:
        result.set_result(list(call()))
    except Exception as error:  # noqa: BLE001 - handed to the side that waits
        result.set_exception(error)
