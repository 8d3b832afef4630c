"""The same blocking work on many items, a few at a time."""

from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Callable, Iterable, List, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def run_all(threads: int, work: Callable[[T], R], items: Iterable[T]) -> List[R]:
    """Results in the order of the items. The first error cancels what has not begun, and is raised once all is still."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="store")
    try:
        futures = [pool.submit(work, item) for item in items]
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            if future.done() and not future.cancelled():
                error = future.exception()
                if error is not None:
                    raise error
        return [future.result() for future in futures]
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
