"""The rules of the grid, one by one, as the page of back-testing tells them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from broker.backtest.egress import usd_per_gb
from broker.backtest.grid import Grid, Shock, Terms, Window
from broker.core.errors import UsageError
from broker.core.time import HOUR_S
from tests.unit.backtest.made import EAST, EAST_B, TOKYO, WEST, grid, trace

LONG = trace({EAST: [1] * 100, WEST: [2] * 100}, {EAST: 1.0, WEST: 0.5})


def window(a_grid: Grid) -> Window:
    return next(a_grid.windows())


@pytest.mark.parametrize(
    ("terms", "ticks"),
    [
        ({"work_s": 10.4 * HOUR_S}, {"work": 10}),
        ({"work_s": 10.5 * HOUR_S}, {"work": 11}),
        ({"deadline_s": 30.5 * HOUR_S}, {"deadline": 31}),
        ({"start_s": 60}, {"start": 1}),
        ({"start_s": 5400}, {"start": 2}),
        ({"cross_s": 0}, {"cross": 0}),
        ({"cross_s": 60}, {"cross": 1}),
        ({"cross_s": HOUR_S}, {"cross": 1}),
        ({"history_s": 10.1 * HOUR_S}, {"first": 11}),
    ],
)
def test_lengths_are_whole_ticks(terms: dict[str, Any], ticks: dict[str, int]) -> None:
    base = Terms(work_s=10 * HOUR_S, deadline_s=30 * HOUR_S, history_s=0)
    found = Grid(LONG, replace(base, **terms)).ticks
    assert {name: getattr(found, name) for name in ticks} == ticks


def test_windows_are_spread_from_the_history_to_the_last_that_fits() -> None:
    terms = Terms(work_s=10 * HOUR_S, deadline_s=30 * HOUR_S, history_s=20 * HOUR_S, windows=4)
    assert Grid(LONG, terms).starts == (20, 36, 53, 70)
    assert Grid(LONG, replace(terms, windows=1)).starts == (20,)
    with pytest.raises(
        UsageError, match="no window fits: history and deadline need 4d9h, the trace has 4d4h"
    ):
        Grid(LONG, replace(terms, history_s=75 * HOUR_S))
    with pytest.raises(UsageError, match="cannot be done within the deadline"):
        Grid(LONG, replace(terms, work_s=30 * HOUR_S))


def test_the_gang_must_fit_and_have_a_price() -> None:
    made = trace({EAST: [1, 2, 3, 3]}, {EAST: [1.0, 1.0, 1.0, np.nan]})
    found = grid(made, 1, 4, gang=2)
    assert found.up.tolist() == [[False, True, True, False]]
    assert found.spot_usd.tolist() == [[2.0, 2.0, 2.0, 0.0]]
    assert found.on_demand_usd.tolist() == [6.0]


def test_questions_about_a_window_are_answered_from_tables() -> None:
    found = window(grid(trace({EAST: [1, 1, 0, 1, 1]}, {EAST: [1.0, 1.0, 1.0, 1.0, 2.0]}), 1, 5))
    assert found.down_at == [[2, 2, 2, 5, 5]]
    assert found.change_at == [2, 2, 3, 4, 5]
    assert found.bill_usd == [[0.0, 1.0, 2.0, 3.0, 4.0, 6.0]]


class TestShock:
    def usd(self, stock: list[list[int]], at_h: float = 1.4) -> list[list[float]]:
        pools = dict(zip((EAST, EAST_B, WEST), stock, strict=True))
        made = trace(pools, {EAST: 1.0, EAST_B: 0.5, WEST: 0.75})
        return window(grid(made, 1, 3, shock=Shock(2.0, at_h * HOUR_S))).spot_usd.tolist()

    def test_the_region_of_the_cheapest_that_can_be_had(self) -> None:
        assert self.usd([[1] * 3, [0] * 3, [1] * 3]) == [[1, 1, 1], [0.5] * 3, [0.75, 1.5, 1.5]]

    def test_every_pool_of_the_region(self) -> None:
        assert self.usd([[0] * 3, [1] * 3, [1] * 3]) == [[1, 2, 2], [0.5, 1, 1], [0.75] * 3]

    def test_the_cheapest_of_all_when_none_can_be_had(self) -> None:
        assert self.usd([[0] * 3, [0] * 3, [0] * 3]) == [[1, 2, 2], [0.5, 1, 1], [0.75] * 3]

    def test_outside_the_window_is_a_mistake(self) -> None:
        with pytest.raises(UsageError, match="not within the window"):
            self.usd([[1] * 3] * 3, at_h=3)

    def test_each_window_has_its_own(self) -> None:
        made = trace({EAST: [1] * 6}, {EAST: 1.0})
        shocked = grid(made, 1, 3, shock=Shock(2.0, 2 * HOUR_S), windows=2)
        assert [one.spot_usd.tolist() for one in shocked.windows()] == [[[1, 1, 2]], [[1, 1, 2]]]
        assert shocked.spot_usd.tolist() == [[1.0] * 6]


@pytest.mark.parametrize(
    ("origin", "target", "usd"),
    [
        (("aws", "us-east-1"), ("aws", "us-east-1"), 0),
        (("aws", "us-east-1"), ("aws", "us-east-2"), 0.01),
        (("aws", "us-east-1"), ("aws", "us-west-2"), 0.02),
        (("aws", "eu-west-1"), ("aws", "mx-central-1"), 0.05),
        (("aws", "ap-southeast-2"), ("aws", "us-east-1"), 0.098),
        (("aws", "us-east-1"), ("gcp", "us-east4"), 0.09),
        (("gcp", "us-east4"), ("gcp", "us-west1"), 0.02),
        (("gcp", "us-east4"), ("gcp", "europe-west1"), 0.05),
        (("gcp", "asia-south2"), ("gcp", "asia-east1"), 0.08),
        (("gcp", "us-east4"), ("aws", "us-east-1"), 0.12),
        (("neo", "here"), ("gcp", "us-east4"), 0),
    ],
)
def test_egress(origin: tuple[str, str], target: tuple[str, str], usd: float) -> None:
    assert usd_per_gb(origin, target) == usd


def test_a_region_of_aws_that_nobody_knows_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="from us-east-1 to moon-1 is not known"):
        usd_per_gb(("aws", "us-east-1"), ("aws", "moon-1"))


def test_egress_of_the_checkpoint_by_region_left_and_pool() -> None:
    found = grid(
        trace({EAST: [1] * 3, WEST: [1] * 3, TOKYO: [1] * 3}, {EAST: 1, WEST: 1, TOKYO: 1}),
        1,
        3,
        checkpoint_gib=100,
    )
    assert found.regions == [("aws", "us-east-1"), ("aws", "us-west-2"), ("gcp", "asia-northeast1")]
    np.testing.assert_allclose(found.egress_usd, [[0, 2, 9], [2, 0, 9], [12, 12, 0], [0, 0, 0]])
