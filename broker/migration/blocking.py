"""Blocking calls in a bounded pool of threads, one a cloud, with a hard time-out.

A thread that hangs in an SDK cannot be killed; it is left behind and its slot stays taken until it returns. One pool
a cloud keeps a cloud that hangs from taking the slots of the others.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Blocking(Protocol):
    """Runs what blocks. The simulation runs it in place."""

    async def call(self, pool: str, work: Callable[[], T], timeout_s: float) -> T:
        """The result of `work`.

        Raises:
            TimeoutError: it took longer than `timeout_s` real seconds; it may still happen.
        """


class Threads:
    """`Blocking` over threads."""

    def __init__(self, size: int = 8) -> None:
        self._size = size
        self._pools: dict[str, ThreadPoolExecutor] = {}

    async def call(self, pool: str, work: Callable[[], T], timeout_s: float) -> T:
        """See `Blocking.call`."""
        executor = self._pools.get(pool)
        if executor is None:
            executor = self._pools[pool] = ThreadPoolExecutor(
                self._size, thread_name_prefix=f"blocking-{pool}"
            )
        async with asyncio.timeout(timeout_s):
            return await asyncio.get_running_loop().run_in_executor(executor, work)

    def close(self) -> None:
        """Start no more; do not wait for what hangs."""
        for executor in self._pools.values():
            executor.shutdown(wait=False, cancel_futures=True)
