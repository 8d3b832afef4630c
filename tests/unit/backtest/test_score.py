from dataclasses import replace

import pytest

from broker.backtest.play import Run
from broker.backtest.score import Score, score

RUN = Run(
    acts=(),
    usd=20.0,
    egress_usd=1.0,
    done_tick=12,
    launches=2,
    moves=1,
    losses=0,
    held_ticks=12,
    on_demand_ticks=3,
    start_ticks=2,
    asked=5,
)


def scored(*usd: float, deadline: int = 10, apart: int = 10) -> Score:
    runs = [replace(RUN, usd=amount) for amount in usd]
    starts = [apart * number for number in range(len(usd))]
    return score(runs, [10.0] * len(usd), starts, work=10, deadline=deadline, step_h=0.5)


def test_the_ratio_is_of_the_sums() -> None:
    runs = [RUN, replace(RUN, usd=30.0, done_tick=None)]
    found = score(runs, [10.0, 30.0], [0, 50], work=10, deadline=20, step_h=0.5)
    assert (found.usd, found.optimum_usd, found.ratio, found.max) == (50.0, 40.0, 1.25, 2.0)
    assert found.p95 == pytest.approx(1.95)
    assert (found.misses, found.windows) == (1, 2)
    assert (found.launches, found.moves, found.egress_usd) == (2, 1, 2.0)
    assert (found.on_demand, found.overhead) == (0.25, 0.2)
    assert found.hours == (12 + 20) / 2 * 0.5


def test_the_interval_holds_the_ratio_and_is_the_same_every_time() -> None:
    usd = [11, 12, 18, 11, 14, 12, 13, 11, 12, 19]
    found = scored(*usd)
    assert found.interval is not None
    low, high = found.interval
    assert 1.1 < low < found.ratio < high < 1.9
    assert scored(*usd).interval == found.interval


def test_without_spread_there_is_no_doubt() -> None:
    assert scored(12, 12, 12, 12).interval == pytest.approx((1.2, 1.2))


def test_windows_that_overlap_say_less() -> None:
    """Ten windows that are two bad weeks seen five times each, and ten independent ones."""
    usd = [11] * 5 + [19] * 5
    apart, overlapping = scored(*usd).interval, scored(*usd, deadline=50).interval
    assert apart is not None
    assert overlapping is not None
    assert overlapping[1] - overlapping[0] > apart[1] - apart[0]


def test_one_block_alone_says_nothing_of_its_doubt() -> None:
    assert scored(12).interval is None
    assert scored(12, 15, deadline=50).interval is None
