"""Virtual time: an event loop that never waits, and blocking code that waits on it.

Real broker code blocks in threads. Here a call to a cloud is a generator of the seconds that it waits. What talks to
the checkpoint store many times in one call gets a thread of its own, but the baton is passed by hand: exactly one
thread runs at any moment, and one that has to wait hands the baton back to the loop with a number of seconds. So the
same seed gives the same history, and a call that hangs, outlives its caller or dies half-way is the real one.
"""

import asyncio
import selectors
import threading
from collections.abc import Callable, Generator
from contextvars import Context
from random import Random
from typing import Any, TypeVar

from tests.clocks import START_MS

T = TypeVar("T")


class _NoWaiting(selectors.SelectSelector):
    """Nothing outside can happen, so the clock jumps to the next timer."""

    loop: "SimLoop"

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("nothing will ever happen again: every task waits for another")
        self.loop.now_s += timeout
        return []


class SimLoop(asyncio.SelectorEventLoop):
    """Seconds since the start are `now_s`; of several tasks that could go on, the seed chooses."""

    def __init__(self, random: Random) -> None:
        selector = _NoWaiting()
        selector.loop = self
        self.now_s = 0.0
        self._random = random
        super().__init__(selector)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self.now_s

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """At once: what the code under test runs there touches only its own databases."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - handed to whoever awaits it
            future.set_exception(error)
        return future

    def _run_once(self) -> None:
        ready = self._ready  # type: ignore[has-type]
        if len(ready) > 1:
            order = list(ready)
            self._random.shuffle(order)
            ready.clear()
            ready.extend(order)
        super()._run_once()  # type: ignore[misc]


class SimClock:
    """The loop's time as a wall clock, which may be wrong by `offset_ms`."""

    def __init__(self, loop: SimLoop, offset_ms: int = 0) -> None:
        self._loop = loop
        self.offset_ms = offset_ms

    @property
    def rate(self) -> float:
        return 1.0

    def now_ms(self) -> int:
        return START_MS + round(self._loop.now_s * 1000) + self.offset_ms

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Killed(BaseException):
    """The process that waited here is no more."""


class Worker:
    """One blocking piece of work. Between `resume` and its return only the worker's thread runs."""

    current: "Worker | None" = None

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._delay_s: float | None = None
        self._dying = False
        self._result: Any = None
        self._error: BaseException | None = None

    def resume(self) -> float | None:
        """Let it run until it waits or ends; the seconds it wants to wait, or None at its end."""
        before, Worker.current = Worker.current, self
        self._delay_s = None
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        else:
            self._go.release()
        self._back.acquire()
        Worker.current = before
        return self._delay_s

    def kill(self) -> None:
        """End it where it waits."""
        if self._thread is not None and self._delay_s is not None:
            self._dying = True
            self.resume()

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def wait(self, seconds: float) -> None:
        """Called by the work: hand the baton back."""
        if self._dying:
            raise Killed
        self._delay_s = seconds
        self._back.release()
        self._go.acquire()
        if self._dying:
            raise Killed

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 - handed to the loop's side
            self._error = error
        self._back.release()


def wait(seconds: float) -> None:
    """Let virtual time pass in blocking code; code that runs at one moment does not wait."""
    if Worker.current is not None:
        Worker.current.wait(seconds)


async def blocking(work: Callable[[], T], at_once: bool = False) -> T:
    """Run blocking work; a cancel kills it where it waits.

    Args:
        at_once: Nothing else happens meanwhile. Handing the baton over is what most of the time would go to.
    """
    if at_once:
        return work()
    worker = Worker(work)
    try:
        while (delay_s := worker.resume()) is not None:
            await asyncio.sleep(delay_s)
    except BaseException:
        worker.kill()
        raise
    result: T = worker.result()
    return result


async def stepping(steps: Generator[float, None, T]) -> T:
    """Run a generator of waits; a cancel closes it where it waits."""
    try:
        while True:
            await asyncio.sleep(next(steps))
    except StopIteration as ended:
        result: T = ended.value
        return result
    finally:
        steps.close()


class SimThread:
    """Stands for `threading.Thread` where broker code starts one for work that ends at once here."""

    def __init__(
        self, target: Callable[..., None], args: tuple[Any, ...] = (), name: str = "", daemon: bool = True
    ) -> None:
        self._target, self._args = target, args

    def start(self) -> None:
        self._target(*self._args)

    def is_alive(self) -> bool:
        return False


def silent(future: "asyncio.Future[Any]") -> None:
    """Look at a result that nobody waits for, so that asyncio does not complain."""
    if not future.cancelled():
        future.exception()
