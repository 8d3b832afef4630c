"""What a strategy may ask of a grid, at one tick. Everything here is computed from ticks up to this one."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import inf

import numpy as np

from broker.backtest.grid import Grid, Window
from broker.core.money import MICRO_PER_USD
from broker.core.time import HOUR_S
from broker.decision.cost import finish_from_start, finish_running
from broker.decision.strategy import Option
from broker.market.lifetimes import Spell, expected_life_s


class Lives:
    """How long the gang could have stayed on each pool's spot, from the spells that were over by a tick."""

    def __init__(self, grid: Grid) -> None:
        self._step_s = grid.step_s
        self._spells = [_spells(row) for row in grid.up]
        self._ends = [[end for _, end in spells] for spells in self._spells]
        self._known: dict[tuple[int, int], float] = {}

    def life_s(self, pool: int, tick: int) -> float:
        """Expected seconds to an interruption, as `broker.market.lifetimes` reckons, at a tick of the trace."""
        over = bisect_right(self._ends[pool], tick)
        life = self._known.get((pool, over))
        if life is None:
            spells = self._spells[pool][:over]
            life = expected_life_s(Spell((end - start) * self._step_s, True) for start, end in spells)
            self._known[pool, over] = life
        return life


class GridOutlook:
    """The market at `tick` of a window, for a job of which `left` ticks are left and whose checkpoint is in `here`.

    Attributes:
        held: Index of the option that is held, or None.
        here: Index of the checkpoint's region; past the last one, it is nowhere yet.
    """

    def __init__(self, window: Window, lives: Lives) -> None:
        grid = window.grid
        self._window, self._grid, self._lives = window, grid, lives
        self._up, self._usd = window.up_rows, window.usd_rows
        self._on_demand: list[float] = grid.on_demand_usd.tolist()
        self._egress: list[list[float]] = grid.egress_usd.tolist()
        self._region: list[int] = grid.region.tolist()
        self._pools = range(len(self._region))
        self._index = {option.key: number for number, option in enumerate(grid.options)}
        self.tick, self.left = 0, grid.ticks.work
        self.held: int | None = None
        self.here = len(grid.regions)

    def index(self, option: Option) -> int:
        """Its number among the grid's options."""
        return self._index[option.key]

    def start_ticks(self, pool: int) -> int:
        """Start-up there."""
        ticks = self._grid.ticks
        if self.here in (self._region[pool], len(self._grid.regions)):
            return ticks.start
        return ticks.start + ticks.cross

    def egress_usd(self, pool: int) -> float:
        """Of the checkpoint, from where it is."""
        return self._egress[self.here][pool]

    def has_spot(self, pool: int) -> bool:
        """Whether the gang can be had there on spot."""
        return self._up[pool][self.tick]

    def options(self) -> Sequence[Option]:
        """Spot before on-demand, and each by the cost to finish."""
        count = len(self._pools)
        free = [pool for pool in self._pools if self._up[pool][self.tick]]
        numbers = [*free, *(count + pool for pool in self._pools)]
        found = [self._grid.options[number] for number in numbers if number != self.held]
        return sorted(found, key=lambda option: (not option.interruptible, self.cost_micro_usd(option)))

    def spot(self, outside: str = "") -> Option | None:
        """The cheapest pool by price; of equals the first of the trace."""
        best, lowest, tick = -1, inf, self.tick
        for pool in self._pools:
            if self._up[pool][tick] and self._usd[pool][tick] < lowest and pool != self.held:
                if outside and self._grid.options[pool].region == outside:
                    continue
                best, lowest = pool, self._usd[pool][tick]
        return None if best < 0 else self._grid.options[best]

    def steady(self) -> Option | None:
        """The on-demand place on which the work is finished for least."""
        count = len(self._pools)
        return min(
            (self._grid.options[count + pool] for pool in self._pools if count + pool != self.held),
            key=lambda option: self._finish_on_demand_usd(self._index[option.key] - count),
            default=None,
        )

    def cost_micro_usd(self, option: Option) -> float:
        """The formula of `broker.decision.cost`; nothing is trained twice on a grid."""
        rate, work_s = round(self.rate_micro_usd_h(option)), self.left * self._grid.step_s
        life, start_s = self.life_s(option), self.start_up_s(option)
        if self._index[option.key] == self.held:
            return finish_running(rate, work_s, life, start_s, 0.0).micro_usd
        egress = round(self.egress_micro_usd(option))
        return finish_from_start(rate, work_s, life, start_s, 0.0, egress).micro_usd

    def rate_micro_usd_h(self, option: Option) -> float:
        """The whole gang, an hour."""
        number = self._index[option.key]
        pool = number % len(self._pools)
        usd = self._usd[pool][self.tick] if option.interruptible else self._on_demand[pool]
        return usd * MICRO_PER_USD * HOUR_S / self._grid.step_s

    def life_s(self, option: Option) -> float:
        """From the spells that were over by now, since the trace began."""
        if not option.interruptible:
            return inf
        return self._lives.life_s(self._index[option.key], self._window.start + self.tick)

    def start_up_s(self, option: Option) -> float:
        """Start-up there, with the way of the checkpoint."""
        return self.start_ticks(self._index[option.key] % len(self._pools)) * self._grid.step_s

    def egress_micro_usd(self, option: Option) -> float:
        """Of the checkpoint, from where it is."""
        return self.egress_usd(self._index[option.key] % len(self._pools)) * MICRO_PER_USD

    def longest_start_s(self) -> float:
        """A start in another region."""
        return (self._grid.ticks.start + self._grid.ticks.cross) * self._grid.step_s

    def _finish_on_demand_usd(self, pool: int) -> float:
        return self._on_demand[pool] * (self.left + self.start_ticks(pool)) + self.egress_usd(pool)


def _spells(up: "np.typing.NDArray[np.bool_]") -> list[tuple[int, int]]:
    """First tick and the tick after the last one of each run of True; one that lasts to the end is not over."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], up)).astype(np.int8))).tolist()
    return [(start, end) for start, end in pairwise(edges) if up[start]]
