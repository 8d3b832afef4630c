"""Several ways to run the same jobs, side by side with the optimum."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from broker.backtest.grid import Grid, Window
from broker.backtest.optimum import optimum_usd
from broker.backtest.outlook import Lives
from broker.backtest.play import Run, play
from broker.backtest.score import Score, score
from broker.core.time import HOUR_S
from broker.decision.strategy import Strategy

Player = Callable[[Window], Run]
"""Plays one window."""


@dataclass(frozen=True)
class Entry:
    """One way to run the jobs, and what came of it.

    Attributes:
        runs: By window.
    """

    name: str
    runs: tuple[Run, ...]
    score: Score


@dataclass(frozen=True)
class Contest:
    """All entries over the same windows.

    Attributes:
        optimum_usd: By window.
    """

    grid: Grid
    windows: tuple[Window, ...]
    optimum_usd: tuple[float, ...]
    entries: tuple[Entry, ...]

    def plain(self) -> dict[str, Any]:
        """As a document: terms in ticks, windows, and each entry's score with its single windows."""
        grid = self.grid
        return {
            "trace": grid.trace.name,
            "step_s": grid.step_s,
            "ticks": asdict(grid.ticks),
            "gang": grid.terms.gang,
            "windows": [
                {
                    "window": window.number,
                    "start": window.start_iso,
                    "start_tick": window.start,
                    "optimum_usd": usd,
                }
                for window, usd in zip(self.windows, self.optimum_usd, strict=True)
            ],
            "entries": [self._entry(entry) for entry in self.entries],
        }

    def _entry(self, entry: Entry) -> dict[str, Any]:
        windows = [
            {
                "window": number,
                "usd": run.usd,
                "ratio": run.usd / best,
                "missed": run.missed,
                "ticks": run.done_tick,
                "launches": run.launches,
                "moves": run.moves,
                "losses": run.losses,
                "egress_usd": run.egress_usd,
            }
            for number, (run, best) in enumerate(zip(entry.runs, self.optimum_usd, strict=True))
        ]
        return {"name": entry.name, "score": asdict(entry.score), "windows": windows}


def player(strategy: Strategy, grid: Grid) -> Player:
    """Plays a strategy; what it learns of lives is learnt once for all windows."""
    lives = Lives(grid)
    return lambda window: play(strategy, window, lives)


def contest(grid: Grid, players: Mapping[str, Player]) -> Contest:
    """Every player on every window."""
    windows = tuple(grid.windows())
    optimum = tuple(optimum_usd(window) for window in windows)
    entries = [
        _entry(grid, name, [one(window) for window in windows], optimum) for name, one in players.items()
    ]
    return Contest(grid, windows, optimum, tuple(entries))


def _entry(grid: Grid, name: str, runs: Sequence[Run], optimum: Sequence[float]) -> Entry:
    ticks = grid.ticks
    scored = score(runs, optimum, grid.starts, ticks.work, ticks.deadline, grid.step_s / HOUR_S)
    return Entry(name, tuple(runs), scored)
