"""The real clock at a rate, and real names."""

import asyncio
import time

import pytest

from broker.clock import SystemClock, SystemIds
from broker.core.ids import is_node_token, node_token


def test_rate_one_is_the_machine():
    before = time.time_ns() // 1_000_000
    assert before <= SystemClock().now_ms() <= before + 1000


def test_two_clocks_with_the_same_anchor_and_rate_agree():
    anchor_ms = time.time_ns() // 1_000_000 - 60_000
    one, two = SystemClock(20, anchor_ms), SystemClock(20, anchor_ms)
    assert abs(one.now_ms() - two.now_ms()) < 20 * 1000
    assert one.now_ms() - anchor_ms >= 60_000 * 20


def test_sleep_is_in_our_seconds():
    clock = SystemClock(1000)
    started = time.monotonic()
    asyncio.run(clock.sleep(10))
    assert 0.01 <= time.monotonic() - started < 5


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_clock_that_stands_still_is_refused(rate: float):
    with pytest.raises(ValueError, match="rate"):
        SystemClock(rate)


def test_names_fit_a_node_token():
    ids = SystemIds()
    tokens = {node_token(ids.base32(26), 0) for _ in range(100)}
    assert len(tokens) == 100
    assert all(is_node_token(token) for token in tokens)
