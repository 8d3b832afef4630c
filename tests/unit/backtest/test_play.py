"""Small markets reckoned by hand: prices of dollars a tick, one tick an hour."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.backtest.baselines import BASELINES, OnDemand
from broker.backtest.grid import Grid
from broker.backtest.outlook import Lives
from broker.backtest.play import Run, play
from broker.core.time import HOUR_S
from broker.decision.strategy import Answer, Outlook, Rule, Standing, Strategy
from tests.unit.backtest.made import EAST, EAST_B, TOKYO, WEST, grid, random_grid, trace


@dataclass(frozen=True)
class Script:
    """Holds by tick what it is told to: the index of an option, or None."""

    grid: Grid
    plan: tuple[int | None, ...]

    def answer(self, job: Standing, market: Outlook) -> Answer:
        tick = round(job.elapsed_s / self.grid.step_s)
        number = self.plan[min(tick, len(self.plan) - 1)]
        option = None if number is None else self.grid.options[number]
        return Answer(option, Rule.FIRST, ask_at_s=job.elapsed_s)


def run(a_grid: Grid, strategy: Strategy) -> Run:
    return play(strategy, next(a_grid.windows()), Lives(a_grid))


def script(a_grid: Grid, *plan: int | None) -> Run:
    return run(a_grid, Script(a_grid, plan))


def acts(found: Run) -> list[tuple[int, str, str]]:
    return [(act.tick, str(act.action), act.option.key) for act in found.acts]


SPOT_EAST, SPOT_WEST = f"{EAST.name}/spot", f"{WEST.name}/spot"


def test_a_start_up_is_billed_and_nothing_after_the_end() -> None:
    found = script(grid(trace({EAST: [1] * 9}, {EAST: 1.0}), work=3, deadline=9, start=2), 0)
    assert (found.usd, found.done_tick, found.launches) == (5.0, 5, 1)
    assert (found.held_ticks, found.start_ticks, found.on_demand_ticks) == (5, 2, 0)
    assert acts(found) == [(0, "launch", SPOT_EAST), (5, "stop", SPOT_EAST)]


def test_the_price_of_each_tick_counts() -> None:
    found = script(grid(trace({EAST: [1] * 6}, {EAST: [1, 2, 3, 4, 5, 6]}), work=2, deadline=6), None, 0)
    assert found.usd == 2 + 3 + 4


def test_a_loss_keeps_the_work_and_drops_the_start_up() -> None:
    stock = {EAST: [1, 1, 1, 0, 1, 1, 0, 1, 1, 1]}
    found = script(
        grid(trace(stock, {EAST: 1.0}), work=2, deadline=10, start=2), 0, 0, 0, None, 0, 0, None, 0
    )
    # 0-1 start-up, 2 work; 4-5 start-up, lost; 7-8 start-up, 9 work.
    assert (found.usd, found.done_tick, found.losses) == (8.0, 10, 2)
    assert [act for act in acts(found) if act[1] == "stop"] == [(t, "stop", SPOT_EAST) for t in (3, 6, 10)]


def test_a_loss_that_is_replaced_at_once_is_one_change() -> None:
    a_grid = grid(trace({EAST: [1, 0, 1, 1], WEST: [1] * 4}, {EAST: 1.0, WEST: 1.0}), work=1, deadline=4)
    assert acts(script(a_grid, 0, 1)) == [
        (0, "launch", SPOT_EAST),
        (1, "launch", SPOT_WEST),
        (3, "stop", SPOT_WEST),
    ]


def test_a_move_pays_egress_and_a_longer_start() -> None:
    made = trace({EAST: [1] * 9, WEST: [1] * 9}, {EAST: 1.0, WEST: 0.5})
    found = script(grid(made, work=4, deadline=9, start=1, cross=1, checkpoint_gib=100), 0, 0, 1)
    # East: start-up, work; west: two of start-up, three of work; 100 GiB at 2 cents.
    assert (found.usd, found.egress_usd) == (1 + 1 + 5 * 0.5 + 2.0, 2.0)
    assert (found.moves, found.launches, found.done_tick) == (1, 2, 7)


def test_within_a_region_neither() -> None:
    made = trace({EAST: [1] * 9, EAST_B: [1] * 9}, {EAST: 1.0, EAST_B: 0.5})
    found = script(grid(made, work=4, deadline=9, start=1, cross=1, checkpoint_gib=100), 0, 0, 1)
    assert (found.usd, found.egress_usd, found.done_tick) == (1 + 1 + 4 * 0.5, 0.0, 6)


def test_the_checkpoint_is_where_the_last_launch_was() -> None:
    made = trace({EAST: [1] * 9, WEST: [1, 1, 0] + [1] * 6}, {EAST: 1.0, WEST: 0.5})
    found = script(grid(made, work=2, deadline=9, start=1, cross=1, checkpoint_gib=100), 0, 1, None, 1)
    # The launch in the west was lost in its start-up, but has moved the checkpoint: no egress any more.
    assert found.egress_usd == 2.0
    assert found.done_tick == 6


class TestMissed:
    made = trace({EAST: [1] * 4, TOKYO: [0] * 4}, {EAST: 1.0, TOKYO: 1.0})

    def test_what_is_left_is_finished_on_the_cheapest_on_demand(self) -> None:
        found = script(grid(self.made, work=2, deadline=4), None, None, None, 0)
        assert found.missed
        # One tick of start-up in the east, then from there: (2 + 1) x 3.0, or 9 cents x 0 GiB more and 2.9 elsewhere.
        assert found.usd == pytest.approx(1.0 + 3 * 2.9)

    def test_its_egress_counts(self) -> None:
        found = script(grid(self.made, work=2, deadline=4, checkpoint_gib=100), None, None, None, 0)
        assert found.usd == pytest.approx(1.0 + 3 * 3.0)
        assert found.egress_usd == 0.0

    def test_who_is_on_on_demand_stays_there(self) -> None:
        found = script(grid(self.made, work=2, deadline=4), None, None, None, 2)
        assert found.usd == pytest.approx(3.0 + 2 * 3.0)

    def test_no_stop_is_written(self) -> None:
        assert [act[1] for act in acts(script(grid(self.made, work=2, deadline=4), None, None, 0))] == [
            "launch"
        ]


def test_spot_that_cannot_be_had_is_an_error_of_the_strategy() -> None:
    with pytest.raises(ValueError, match="cannot be had at tick 0"):
        script(grid(trace({EAST: [0, 1, 1]}, {EAST: 1.0}), work=1, deadline=3), 0)


def test_on_demand_takes_the_place_where_it_ends_for_least() -> None:
    made = trace({EAST: [0] * 5, TOKYO: [0] * 5}, {EAST: 1.0, TOKYO: 1.0})
    found = run(grid(made, work=2, deadline=5), OnDemand())
    assert acts(found)[0] == (0, "launch", f"{TOKYO.name}/on_demand")
    assert (found.usd, found.on_demand_ticks) == (pytest.approx(3 * 2.9), 3)


def test_eager_goes_to_another_region_first() -> None:
    usd = {EAST: 0.5, EAST_B: 0.6, WEST: 0.9}
    made = trace({EAST: [1, 1, 0] + [1] * 17, EAST_B: [1] * 20, WEST: [1] * 20}, usd)
    found = run(grid(made, work=4, deadline=20), BASELINES["eager"])
    assert [act[2] for act in acts(found)[:2]] == [SPOT_EAST, SPOT_WEST]
    found = run(grid(made, work=4, deadline=20), BASELINES["spot_else_on_demand"])
    assert [act[2] for act in acts(found)[:2]] == [SPOT_EAST, f"{EAST_B.name}/spot"]


def test_cheapest_moves_once_a_saving_has_lasted() -> None:
    usd = {EAST: [1.0] * 5 + [2.5] * 55, WEST: 1.2}
    made = trace({EAST: [1] * 60, WEST: [1] * 60}, usd, step_s=300)
    found = run(grid(made, work=40, deadline=60), BASELINES["cheapest"])
    # Dearer from tick 5 on, for ten minutes: two ticks of five minutes.
    assert acts(found)[:2] == [(0, "launch", SPOT_EAST), (7, "launch", SPOT_WEST)]
    brief = trace({EAST: [1] * 60, WEST: [1] * 60}, usd | {EAST: [1.0] * 5 + [2.5] + [1.0] * 54}, step_s=300)
    assert run(grid(brief, work=40, deadline=60), BASELINES["cheapest"]).moves == 0


@dataclass(frozen=True)
class EveryTick:
    """Asks a strategy at every tick, whatever it asked for."""

    strategy: Strategy

    def answer(self, job: Standing, market: Outlook) -> Answer:
        return replace(self.strategy.answer(job, market), ask_at_s=job.elapsed_s)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from(sorted(BASELINES)), st.booleans())
def test_ticks_that_a_strategy_lets_pass_change_nothing(seed: int, name: str, shock: bool) -> None:
    a_grid = random_grid(seed, ticks=24, shock=shock)
    skipped, asked = run(a_grid, BASELINES[name]), run(a_grid, EveryTick(BASELINES[name]))
    assert skipped.acts == asked.acts
    assert skipped.usd == pytest.approx(asked.usd, abs=1e-9)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from(sorted(BASELINES)))
def test_no_baseline_ever_misses_a_deadline(seed: int, name: str) -> None:
    a_grid = random_grid(seed, ticks=24)
    assert not run(a_grid, BASELINES[name]).missed


def test_lives_are_of_spells_that_are_over() -> None:
    a_grid = grid(trace({EAST: [1, 1, 0, 1, 1, 1, 1, 0, 1, 1]}, {EAST: 1.0}), 1, 10)
    lives = Lives(a_grid)
    assert lives.life_s(0, 0) == 6 * HOUR_S
    assert lives.life_s(0, 1) == 6 * HOUR_S
    assert lives.life_s(0, 2) == (2 + 6) / 2 * HOUR_S
    assert lives.life_s(0, 6) == (2 + 6) / 2 * HOUR_S
    assert lives.life_s(0, 9) == (2 + 4 + 6) / 3 * HOUR_S
