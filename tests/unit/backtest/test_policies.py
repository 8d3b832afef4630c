"""Policies on the grid: what `decide` answers is what is done, on the terms of the grid."""

from dataclasses import replace
from pathlib import Path

import pytest

from broker.backtest.baselines import BASELINES
from broker.backtest.contest import player
from broker.backtest.grid import Grid, Terms
from broker.backtest.log import write_log
from broker.backtest.play import Run
from broker.backtest.policies import PolicyPlayer
from broker.backtest.trace import Trace, read_trace
from broker.core.errors import UsageError
from broker.core.time import HOUR_S, to_iso
from broker.policy.load import load_policy
from broker.policy.schema import Policy
from tests.unit.backtest.made import EAST, EAST_B, FOLDER, TOKYO, WEST, grid, trace, write

TERMS = Terms(work_s=20 * HOUR_S, deadline_s=36 * HOUR_S, history_s=48 * HOUR_S, windows=3, checkpoint_gib=10)
FREE = "migrate: {min_saving: 0%, min_saving_usd: 0, max_payback: 100d, hold: 0s, cooldown: 0s}\n"


def policy(*lines: str, text: str = "") -> Policy:
    return load_policy("policy: tried\n" + "\n".join(lines) + "\n" + text, "tried.yaml")


BY_DEADLINE = policy("objective: cheapest_by_deadline", text=FREE)
CHEAPEST = policy("objective: cheapest", text=FREE)


def runs(a_policy: Policy, a_grid: Grid) -> list[Run]:
    one = PolicyPlayer(a_policy, a_grid)
    return [one(window) for window in a_grid.windows()]


def run(a_policy: Policy, a_trace: Trace, work: int, deadline: int, **more: object) -> Run:
    return runs(a_policy, grid(a_trace, work, deadline, **more))[0]  # type: ignore[arg-type]


def acts(found: Run) -> list[tuple[int, str, str]]:
    return [(act.tick, str(act.action), act.option.key) for act in found.acts]


def test_a_policy_that_places_on_demand_alone_costs_what_on_demand_costs() -> None:
    a_grid = Grid(read_trace(FOLDER), TERMS)
    found = runs(policy("place: {order: [on_demand]}"), a_grid)
    expected = [player(BASELINES["on_demand"], a_grid)(window) for window in a_grid.windows()]
    assert [one.acts for one in found] == [one.acts for one in expected]
    assert [one.usd for one in found] == pytest.approx([one.usd for one in expected])


def test_what_a_policy_denies_is_never_launched() -> None:
    denied = policy('candidates: {regions: {deny: ["us-east-*"]}}')
    regions = {act.option.region for one in runs(denied, Grid(read_trace(FOLDER), TERMS)) for act in one.acts}
    assert regions
    assert "aws/us-east-1" not in regions


def test_it_observes_in_its_file_and_acts_here() -> None:
    dear_then = trace({EAST: [1] * 30, WEST: [1] * 30}, {EAST: [0.5] * 5 + [2.5] * 25, WEST: 1.0})
    found = run(CHEAPEST, dear_then, work=20, deadline=30)
    assert acts(found)[:2] == [(0, "launch", f"{EAST.name}/spot"), (5, "launch", f"{WEST.name}/spot")]
    assert found.moves == 1


def test_hold_and_cooldown_are_counted_in_ticks_of_the_trace() -> None:
    slow = policy(text=FREE.replace("hold: 0s", "hold: 2h"))
    dear_then = trace({EAST: [1] * 30, WEST: [1] * 30}, {EAST: [0.5] * 5 + [2.5] * 25, WEST: 1.0})
    assert acts(run(slow, dear_then, work=20, deadline=30))[1] == (7, "launch", f"{WEST.name}/spot")


class TestByDeadline:
    """Spot from tick 0, none from 12 on, and again from 20 on; on-demand starts in one tick."""

    made = trace({EAST: [1] * 12 + [0] * 8 + [1] * 40}, {EAST: 1.0})
    spot, on_demand = f"{EAST.name}/spot", f"{EAST.name}/on_demand"

    def test_it_waits_ahead_of_the_line_and_takes_on_demand_behind_it(self) -> None:
        found = run(BY_DEADLINE, self.made, work=20, deadline=30)
        # 11 of 20 are done at tick 12, which is where the line is at 16.5 of 30. Back on spot when two starts are earned.
        assert acts(found)[:3] == [
            (0, "launch", self.spot),
            (12, "stop", self.spot),
            (17, "launch", self.on_demand),
        ]

    def test_with_time_enough_it_waits_for_spot(self) -> None:
        found = run(BY_DEADLINE, self.made, work=20, deadline=60)
        assert acts(found) == [
            (0, "launch", self.spot),
            (12, "stop", self.spot),
            (20, "launch", self.spot),
            (30, "stop", self.spot),
        ]

    def test_cheapest_does_not_wait(self) -> None:
        assert acts(run(CHEAPEST, self.made, work=20, deadline=60))[1] == (12, "launch", self.on_demand)

    def test_it_goes_back_to_spot_when_two_starts_are_earned(self) -> None:
        late = trace({EAST: [0] * 8 + [1] * 52}, {EAST: 1.0})
        found = run(BY_DEADLINE, late, work=20, deadline=60)
        # On-demand from tick 1 on, its first work in tick 2: at tick 8 6 are done, and 10 x 20 / 60 would do.
        assert acts(found)[:2] == [(1, "launch", self.on_demand), (8, "launch", self.spot)]

    def test_no_deadline_is_missed(self) -> None:
        a_grid = Grid(read_trace(FOLDER), replace(TERMS, deadline_s=22 * HOUR_S, windows=6))
        assert not any(one.missed for one in runs(BY_DEADLINE, a_grid))


def test_nothing_looks_ahead(tmp_path: Path) -> None:
    made = read_trace(FOLDER)
    at_ms = made.start_ms + 58 * HOUR_S * 1000
    frozen = read_trace(write(tmp_path / "frozen", made, frozen_after_ms=at_ms))
    rows = []
    for a_trace in (made, frozen):
        a_grid = Grid(a_trace, replace(TERMS, windows=1))
        window = next(a_grid.windows())
        write_log(tmp_path / "log.csv", [(window, PolicyPlayer(BY_DEADLINE, a_grid)(window))])
        lines = (tmp_path / "log.csv").read_text().splitlines()[1:]
        rows.append([line for line in lines if line.split(",")[1] <= to_iso(at_ms)])
    assert rows[0] == rows[1]
    assert rows[0]


def test_the_market_that_a_policy_is_shown_ends_now(tmp_path: Path) -> None:
    made = read_trace(FOLDER)
    frozen = read_trace(write(tmp_path / "frozen", made, made.start_ms + (48 * 6 + 120) * made.step_ms))
    shown = []
    for a_trace in (made, frozen):
        a_grid = Grid(a_trace, TERMS)
        one, window = PolicyPlayer(BY_DEADLINE, a_grid), next(a_grid.windows())
        shown.append([one.snapshot(window, tick) for tick in range(121)])
    assert shown[0] == shown[1]
    assert len({tuple(snapshot.spot_life_s.values()) for snapshot in shown[0]}) > 3


def test_what_a_policy_is_shown() -> None:
    """East is out, and its price stands all the same; on-demand has no end."""
    a_grid = grid(trace({EAST: [2, 0], WEST: [2, 2]}, {EAST: 1.0, WEST: [0.8, 0.9]}), 1, 2, gang=2, start=1)
    shown = PolicyPlayer(CHEAPEST, a_grid).snapshot(next(a_grid.windows()), 1)
    usd = {key: quote.price_micro_usd_h / 1e6 for key, quote in shown.quotes.items()}
    assert usd == {
        f"{EAST.name}/spot": 1.0,
        f"{WEST.name}/spot": 0.9,
        f"{EAST.name}/on_demand": 3.0,
        f"{WEST.name}/on_demand": 3.0,
    }
    assert [key for key in shown.quotes if shown.is_empty(shown.quotes[key].offer)] == [f"{EAST.name}/spot"]
    assert shown.spot_life_s == {EAST.name: 3.5 * HOUR_S, WEST.name: 6 * HOUR_S}
    assert all(quote.age_s(shown.at_ms) == 0 for quote in shown.quotes.values())


def test_a_gpu_that_nobody_knows_is_a_mistake() -> None:
    made = trace(
        {replace(EAST, instance_type="p2.xlarge", gpu="K80"): [1] * 9},
        {replace(EAST, instance_type="p2.xlarge", gpu="K80"): 1.0},
    )
    with pytest.raises(UsageError, match="made: which GPU is K80"):
        PolicyPlayer(CHEAPEST, grid(made, 1, 9))


def test_two_kinds_of_gpu_are_a_mistake() -> None:
    box = replace(TOKYO, instance_type="a2-highgpu-1g")
    made = trace({EAST: [1] * 9, box: [1] * 9}, {EAST: 1.0, box: 1.0})
    with pytest.raises(
        UsageError, match="1 x A100-SXM4-40GB, 1 x V100-SXM2-16GB: on the grid they would train alike"
    ):
        PolicyPlayer(CHEAPEST, grid(made, 1, 9))


def test_two_placements_that_are_one_offer_are_a_mistake() -> None:
    made = trace(
        {EAST: [1] * 9, replace(EAST_B, zone=EAST.zone): [1] * 9},
        {EAST: 1.0, replace(EAST_B, zone=EAST.zone): 1.0},
    )
    with pytest.raises(UsageError, match="two placements have the same cloud, zone and instance type"):
        PolicyPlayer(CHEAPEST, grid(made, 1, 9))
