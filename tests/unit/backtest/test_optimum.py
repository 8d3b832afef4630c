"""The optimum against a search through every possible action, and against everything that any strategy does."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.backtest.baselines import BASELINES
from broker.backtest.grid import Window
from broker.backtest.optimum import optimum_usd
from broker.backtest.outlook import Lives
from broker.backtest.play import play
from broker.backtest.trace import Pool
from tests.unit.backtest.made import TOKYO, grid, random_grid, trace


def search(window: Window) -> float:
    """Tries holding each option, and nothing, at each tick, by the rules of the grid and nothing else."""
    a_grid, ticks = window.grid, window.grid.ticks
    pools, nowhere = len(a_grid.region), len(a_grid.regions)

    def free(number: int, tick: int) -> bool:
        return number >= pools or bool(window.up[number, tick])

    @cache
    def least(tick: int, held: int | None, wait: int, here: int, left: int) -> float:
        if left == 0:
            return 0.0
        if tick == ticks.deadline:
            return float("inf")
        if held is not None and not free(held, tick):
            held = None
        best = least(tick + 1, None, 0, here, left)
        for number in range(2 * pools):
            if not free(number, tick):
                continue
            pool = number % pools
            region = int(a_grid.region[pool])
            usd = float(window.spot_usd[pool, tick] if number < pools else a_grid.on_demand_usd[pool])
            starting = wait
            if number != held:
                starting = ticks.start + (0 if here in (nowhere, region) else ticks.cross)
                usd += float(a_grid.egress_usd[here, pool])
            rest = (starting - 1, left) if starting else (0, left - 1)
            best = min(best, usd + least(tick + 1, number, rest[0], region, rest[1]))
        return best

    return least(0, None, 0, nowhere, ticks.work)


@pytest.mark.parametrize("shock", [False, True])
@pytest.mark.parametrize("start", range(0, 150, 50))
def test_no_sequence_of_actions_is_cheaper_and_one_is_as_cheap(start: int, shock: bool) -> None:
    for seed in range(start, start + 50):
        window = next(random_grid(seed, ticks=9, shock=shock).windows())
        assert optimum_usd(window) == pytest.approx(search(window), abs=1e-9), f"seed {seed}"


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from(sorted(BASELINES)))
def test_nobody_beats_it(seed: int, name: str) -> None:
    a_grid = random_grid(seed, ticks=30)
    window = next(a_grid.windows())
    assert play(BASELINES[name], window, Lives(a_grid)).usd >= optimum_usd(window) - 1e-9


def test_a_launch_may_be_broken_off_to_move_the_checkpoint() -> None:
    """From Europe to Mexico a GiB costs 5 cents; by a launch in the United States on the way, 2 and 2."""
    europe, america, mexico = (
        Pool(f"aws/{region}a/box", "aws", region, 1000.0)
        for region in ("eu-west-1", "us-east-1", "mx-central-1")
    )
    stock = {europe: [1] * 5 + [0] * 4, america: [0] * 5 + [1] + [0] * 3, mexico: [0] * 6 + [1] * 3}
    made = trace(stock, dict.fromkeys(stock, 1.0))
    window = next(grid(made, work=4, deadline=9, start=2, checkpoint_gib=1000).windows())
    # Two of start-up and three of work in Europe, one tick in America, two and one in Mexico.
    assert optimum_usd(window) == pytest.approx(5 + 20 + 1 + 20 + 3)


def test_a_start_up_that_cannot_be_carried_through_is_not_counted_as_one() -> None:
    stock = {TOKYO: [1, 0, 1, 0, 1, 0, 0, 0]}
    window = next(grid(trace(stock, {TOKYO: 0.1}), work=3, deadline=8, start=2).windows())
    assert optimum_usd(window) == pytest.approx(5 * TOKYO.ondemand_usd_h)
