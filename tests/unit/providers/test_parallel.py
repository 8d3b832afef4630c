"""Blocking calls side by side: never more than allowed, none after a failure."""

import threading
from functools import partial

import pytest

from providers.parallel import in_parallel


def test_calls_run_side_by_side_but_never_more_than_allowed() -> None:
    lock, running, most = threading.Lock(), 0, 0
    two = threading.Barrier(2, timeout=10)

    def call(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        two.wait()  # nobody gets past this alone
        with lock:
            running -= 1
        return number

    assert in_parallel([partial(call, number) for number in range(8)], 2) == list(range(8))
    assert most == 2


def test_after_a_failure_no_call_is_begun_and_the_first_in_order_is_told() -> None:
    begun = []

    def call(number: int) -> int:
        begun.append(number)
        if number in (1, 3):
            raise ValueError(f"call {number}")
        return number

    with pytest.raises(ValueError, match="call 1"):
        in_parallel([partial(call, number) for number in range(8)], 1)
    assert begun == [0, 1]
    assert in_parallel([], 4) == []
