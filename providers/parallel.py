"""A few blocking calls at once."""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def in_parallel(calls: Sequence[Callable[[], T]], at_once: int) -> list[T]:
    """What the calls return, in their order.

    Daemon threads, since those of an executor would hold up the end of the process for as long as a cloud keeps them.
    All that were begun have come back when this returns or raises, so nobody ever has more than `at_once` of them.

    Raises:
        Exception: a call failed: the first in order that did. No call is begun after a failure.
    """
    waiting = iter(enumerate(calls))
    results: dict[int, T] = {}
    failures: dict[int, Exception] = {}
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                index, call = (-1, None) if failures else next(waiting, (-1, None))
            if call is None:
                return
            try:
                result = call()
            except Exception as error:  # noqa: BLE001 - handed to the side that waits
                with lock:
                    failures[index] = error
            else:
                with lock:
                    results[index] = result

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(at_once, len(calls)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[min(failures)]
    return [results[index] for index in range(len(calls))]
