"""Nothing looks ahead: with the market frozen at a moment, everything up to then is as it was."""

from pathlib import Path

import pytest

from broker.backtest.baselines import BASELINES
from broker.backtest.contest import player
from broker.backtest.grid import Grid, Terms
from broker.backtest.log import write_log
from broker.backtest.outlook import GridOutlook, Lives
from broker.backtest.trace import read_trace
from broker.core.time import HOUR_S, from_iso, to_iso
from tests.unit.backtest.made import FOLDER, write

TERMS = Terms(work_s=20 * HOUR_S, deadline_s=36 * HOUR_S, history_s=48 * HOUR_S, windows=1, checkpoint_gib=10)


def log(folder: Path, name: str, path: Path) -> list[str]:
    grid = Grid(read_trace(folder), TERMS)
    window = next(grid.windows())
    write_log(path, [(window, player(BASELINES[name], grid)(window))])
    return path.read_text().splitlines()[1:]


@pytest.mark.parametrize("name", sorted(BASELINES))
@pytest.mark.parametrize("after_h", [49, 55, 70])
def test_what_was_done_up_to_then_is_the_same(tmp_path: Path, name: str, after_h: int) -> None:
    made = read_trace(FOLDER)
    at_ms = made.start_ms + after_h * HOUR_S * 1000
    frozen = write(tmp_path / "frozen", made, frozen_after_ms=at_ms)
    assert (read_trace(frozen).capacity != made.capacity).any()
    now = to_iso(at_ms)
    before, after = (
        [row for row in log(folder, name, tmp_path / "log.csv") if row.split(",")[1] <= now]
        for folder in (FOLDER, frozen)
    )
    assert before == after
    assert before


def test_no_question_is_answered_from_later(tmp_path: Path) -> None:
    made = read_trace(FOLDER)
    last = 120
    after_ms = made.start_ms + (48 * 6 + last) * made.step_ms
    frozen = read_trace(write(tmp_path / "frozen", made, frozen_after_ms=after_ms))
    answers = []
    for a_trace in (made, frozen):
        grid = Grid(a_trace, TERMS)
        outlook = GridOutlook(next(grid.windows()), Lives(grid))
        for tick in range(last + 1):
            outlook.tick = tick
            rates = [outlook.rate_micro_usd_h(option) for option in grid.options]
            lives = [outlook.life_s(option) for option in grid.options]
            costs = [(option.key, outlook.cost_micro_usd(option)) for option in outlook.options()]
            answers.append((rates, lives, costs, outlook.spot(), outlook.steady()))
    assert answers[: last + 1] == answers[last + 1 :]
    assert len({tuple(lives) for _, lives, *_ in answers}) > 3, "lives are learnt as time goes by"


def test_a_log_has_a_row_for_each_change(tmp_path: Path) -> None:
    rows = log(FOLDER, "uniform_progress", tmp_path / "log.csv")
    assert (tmp_path / "log.csv").read_text().splitlines()[0] == "window,ts,action,market,placement"
    cells = [row.split(",") for row in rows]
    assert all(number == "0" and from_iso(at) % 1000 == 0 for number, at, *_ in cells)
    assert {action for _, _, action, _, _ in cells} == {"launch", "stop"}
    assert cells[0][2] == "launch"
    assert cells[-1][2] == "stop"
