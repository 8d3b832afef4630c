"""The grid that back-tests are scored on: one job, windows of a trace, ticks.

A tick            1. held spot that can no longer be had is lost: work done is kept, a start-up under way is not
                  2. what the strategy answers is done; a launch replaces what is held and starts up for `start` ticks,
                     `cross` more when the checkpoint comes from another region, and pays its egress; the first launch
                     of a window has neither
                  3. what is held is billed, and advances its start-up or else the work
Lengths           work, deadline and start-up (one tick at least) to the nearest tick, half up; `cross` rounded up
Windows           first = history rounded up, last = ticks - deadline, evenly spaced and rounded down
Obtainable        capacity for the whole gang, and a price; on-demand always is
Missed            what is left at the deadline is finished on the cheapest on-demand place, billed, and counted
Shock F@H         at tick H of each window, take the lowest-priced pool that can be had (of all, if none can): spot in its
                  whole region costs F times as much from then on
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from broker.backtest.egress import usd_per_gb
from broker.backtest.trace import Trace
from broker.core.errors import UsageError
from broker.core.offer import Market
from broker.core.time import HOUR_S, MS, format_duration, to_iso
from broker.decision.strategy import Option

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shock:
    """Spot in one region costs `factor` times as much from `at_s` seconds into each window on."""

    factor: float
    at_s: float


@dataclass(frozen=True)
class Terms:
    """What is to be trained, and on what terms. The defaults are the benchmark's."""

    gang: int = 1
    work_s: float = 40 * HOUR_S
    deadline_s: float = 60 * HOUR_S
    start_s: float = 13 * 60
    cross_s: float = 0
    checkpoint_gib: float = 50
    history_s: float = 72 * HOUR_S
    windows: int = 20
    shock: Shock | None = None


@dataclass(frozen=True)
class Ticks:
    """The terms in whole ticks."""

    work: int
    deadline: int
    start: int
    cross: int
    first: int


class Grid:
    """A trace and terms: what every window has in common. Money is dollars of the whole gang.

    Attributes:
        ticks: Lengths.
        up: Whether the gang can be had on spot, by pool and tick.
        spot_usd: For one tick, by pool and tick; 0 where the trace has no price.
        on_demand_usd: For one tick, by pool.
        regions: ``(cloud, region)``, sorted.
        region: Of each pool, an index into `regions`.
        egress_usd: Of the checkpoint, from each region (the last row is nowhere yet) to each pool.
        options: What a strategy can hold: spot of each pool, then on-demand of each pool.
    """

    def __init__(self, trace: Trace, terms: Terms) -> None:
        """Raises UsageError: no window fits."""
        self.trace, self.terms = trace, terms
        self.step_s = trace.step_ms / MS
        self.ticks = _ticks(terms, self.step_s)
        hours = self.step_s / HOUR_S
        priced = ~np.isnan(trace.spot_usd_h)
        self.up: Bools = (trace.capacity >= terms.gang) & priced
        self.spot_usd: Floats = np.nan_to_num(trace.spot_usd_h) * terms.gang * hours
        self.on_demand_usd: Floats = (
            np.array([pool.ondemand_usd_h for pool in trace.pools]) * terms.gang * hours
        )
        where = [(pool.cloud, pool.region) for pool in trace.pools]
        self.regions = sorted(set(where))
        self.region: Ints = np.array([self.regions.index(place) for place in where], np.int64)
        self.egress_usd = self._egress()
        self.options = tuple(
            Option(f"{pool.name}/{market}", f"{pool.cloud}/{pool.region}", market is Market.SPOT)
            for market in (Market.SPOT, Market.ON_DEMAND)
            for pool in trace.pools
        )
        self.starts = _window_starts(trace.ticks, self.ticks, terms.windows, self.step_s)

    def windows(self) -> Iterator["Window"]:
        """One after the other."""
        return (Window(self, number, start) for number, start in enumerate(self.starts))

    def at_ms(self, tick: int) -> int:
        """The moment at which a tick of the trace begins."""
        return self.trace.start_ms + tick * self.trace.step_ms

    def _egress(self) -> Floats:
        rows = [
            [self.terms.checkpoint_gib * usd_per_gb(origin, self.regions[target]) for target in self.region]
            for origin in self.regions
        ]
        return np.array([*rows, [0.0] * len(self.region)])


class Window:
    """One job's time: `deadline` ticks of the grid from `start` on, with the shock in it."""

    def __init__(self, grid: Grid, number: int, start: int) -> None:
        self.grid, self.number, self.start = grid, number, start
        end = start + grid.ticks.deadline
        self.up: Bools = grid.up[:, start:end]
        self.spot_usd: Floats = grid.spot_usd[:, start:end]
        if grid.terms.shock is not None:
            self.spot_usd = self._shocked(grid.terms.shock)

    @property
    def start_iso(self) -> str:
        """When it begins."""
        return to_iso(self.grid.at_ms(self.start))

    @cached_property
    def up_rows(self) -> list[list[bool]]:
        """`up`, for one question at a time."""
        rows: list[list[bool]] = self.up.tolist()
        return rows

    @cached_property
    def usd_rows(self) -> list[list[float]]:
        """`spot_usd`, for one question at a time."""
        rows: list[list[float]] = self.spot_usd.tolist()
        return rows

    @cached_property
    def bill_usd(self) -> list[list[float]]:
        """What holding a pool's spot from the window's start until a tick costs."""
        sums = np.zeros((len(self.spot_usd), self.grid.ticks.deadline + 1))
        np.cumsum(self.spot_usd, axis=1, out=sums[:, 1:])
        rows: list[list[float]] = sums.tolist()
        return rows

    @cached_property
    def down_at(self) -> list[list[int]]:
        """The first tick from each one on at which a pool's spot cannot be had; `deadline` when it always can."""
        length = self.grid.ticks.deadline
        tick = np.where(self.up, length, np.arange(length))
        rows: list[list[int]] = np.minimum.accumulate(tick[:, ::-1], axis=1)[:, ::-1].tolist()
        return rows

    @cached_property
    def change_at(self) -> list[int]:
        """The first tick after each one at which something can be had that could not, the reverse, or costs other money."""
        length = self.grid.ticks.deadline
        known = np.where(self.up, self.spot_usd, -1.0)
        changed = np.any(known[:, 1:] != known[:, :-1], axis=0)
        tick = np.append(np.where(changed, np.arange(1, length), length), length)
        row: list[int] = np.minimum.accumulate(tick[::-1])[::-1].tolist()
        return row

    def _shocked(self, shock: Shock) -> Floats:
        grid = self.grid
        tick = _nearest(shock.at_s / grid.step_s)
        if not 0 <= tick < grid.ticks.deadline:
            raise UsageError("the shock is not within the window", hint="write --shock 1.9@10: factor, hour")
        up, usd = self.up[:, tick], self.spot_usd[:, tick]
        lowest = int(np.argmin(np.where(up, usd, np.inf) if up.any() else usd))
        shocked = self.spot_usd.copy()
        shocked[grid.region == grid.region[lowest], tick:] *= shock.factor
        return shocked


def _nearest(value: float) -> int:
    return math.floor(value + 0.5)


def _ticks(terms: Terms, step_s: float) -> Ticks:
    ticks = Ticks(
        work=_nearest(terms.work_s / step_s),
        deadline=_nearest(terms.deadline_s / step_s),
        start=max(1, _nearest(terms.start_s / step_s)),
        cross=math.ceil(terms.cross_s / step_s - 1e-9),
        first=math.ceil(terms.history_s / step_s - 1e-9),
    )
    if ticks.work < 1:
        raise UsageError(f"the work is less than half a tick of {format_duration(step_s)}")
    if ticks.work + ticks.start > ticks.deadline:
        raise UsageError("the work cannot be done within the deadline, whatever the policy")
    return ticks


def _window_starts(ticks: int, lengths: Ticks, windows: int, step_s: float) -> tuple[int, ...]:
    first, last = lengths.first, ticks - lengths.deadline
    if last < first:
        span, needed = format_duration(ticks * step_s), (first + lengths.deadline) * step_s
        raise UsageError(
            f"no window fits: history and deadline need {format_duration(needed)}, the trace has {span}"
        )
    if windows == 1:
        return (first,)
    return tuple(first + i * (last - first) // (windows - 1) for i in range(windows))
