"""The least that a window's job can cost for somebody who knows the whole future: what policies are measured against.

Exact backward induction over (tick, work left, nothing held with the checkpoint in region r | training on m). A start-up
is taken as one step, and loses nothing by it: it is either carried through, or worth breaking off after its first tick,
which moves the checkpoint to its region for one tick's money. Whoever breaks off later, or loses it, could have broken
off then and waited for nothing. Of the on-demand places of a region only the cheapest matters, since they differ in price
alone. The work that is left is the last axis of every array, so that a tick is a dozen operations on whole arrays.
"""

from dataclasses import dataclass

import numpy as np

from broker.backtest.grid import Floats, Grid, Ints, Window


def optimum_usd(window: Window) -> float:
    """Least cost of all the work within the window, in dollars."""
    ticks = window.grid.ticks
    market = _Ways.of(window)
    ring = ticks.start + ticks.cross + 1
    # idle[r]: nothing held, checkpoint in r; the last row is nowhere yet. trains[t % ring][k]: on way k, started up.
    idle = np.full((len(window.grid.regions) + 1, ticks.work + 1), np.inf)
    trains = np.full((ring, len(market.region), ticks.work + 1), np.inf)
    idle[:, 0] = trains[..., 0] = 0.0
    for tick in range(ticks.deadline - 1, -1, -1):
        idle = _idle(market, idle, trains, tick, ticks.start, ticks.cross)
        now, later = trains[tick % ring], trains[(tick + 1) % ring]
        np.take(idle, market.region, axis=0, out=now)  # dropped, replaced or lost
        np.minimum(now[:, 1:], market.usd[:, tick, None] + later[:, :-1], out=now[:, 1:])
    return float(idle[-1, -1])


@dataclass(frozen=True, eq=False)
class _Ways:
    """Ways to train, sorted by region: each pool's spot, and the cheapest on-demand place of each region.

    Attributes:
        usd: For one tick, by way and tick; infinite where it cannot be had.
        near_usd, far_usd: Of a start-up that begins at a tick, without and with the way of the checkpoint; infinite where
            it cannot be carried through.
        region: Of each way.
        begins: Where the ways of each region begin.
        egress_usd: From region to region.
    """

    usd: Floats
    near_usd: Floats
    far_usd: Floats
    region: Ints
    begins: Ints
    egress_usd: Floats

    @classmethod
    def of(cls, window: Window) -> "_Ways":
        """The ways of a window."""
        grid, ticks = window.grid, window.grid.ticks
        cheapest = _cheapest_on_demand(grid)
        steady = np.repeat(grid.on_demand_usd[cheapest, None], ticks.deadline, axis=1)
        usd = np.concatenate((np.where(window.up, window.spot_usd, np.inf), steady))
        region = np.concatenate((grid.region, grid.region[cheapest]))
        order = np.argsort(region, kind="stable")
        usd, region = usd[order], region[order]
        regions = np.arange(len(grid.regions))
        a_pool_of = np.searchsorted(region, regions)
        near = _start_up_usd(usd, ticks.start)
        far = _start_up_usd(usd, ticks.start + ticks.cross)
        first_pool = [int(np.flatnonzero(grid.region == r)[0]) for r in regions]
        return cls(usd, near, far, region, a_pool_of, grid.egress_usd[:-1, first_pool])


def _idle(market: _Ways, later: Floats, trains: Floats, tick: int, start: int, cross: int) -> Floats:
    """The least cost from `tick` on with nothing held, by region of the checkpoint; `later` is that of the next tick."""
    ring = len(trains)
    near = market.near_usd[:, tick, None] + trains[(tick + start) % ring]
    stays = np.minimum.reduceat(near, market.begins, axis=0)
    comes = stays
    if cross:
        far = market.far_usd[:, tick, None] + trains[(tick + start + cross) % ring]
        comes = np.minimum.reduceat(far, market.begins, axis=0)
    one_tick = np.minimum.reduceat(market.usd[:, tick], market.begins)
    comes = np.minimum(comes, one_tick[:, None] + later[:-1])
    idle = later.copy()
    np.minimum(idle[:-1], stays, out=idle[:-1])
    for row, egress in zip(idle[:-1], market.egress_usd, strict=True):
        np.minimum(row, (egress[:, None] + comes).min(axis=0), out=row)
    # The first launch has neither egress nor the way of the checkpoint.
    first = np.minimum(stays, one_tick[:, None] + later[:-1]).min(axis=0)
    np.minimum(idle[-1], first, out=idle[-1])
    idle[:, 0] = 0.0
    return idle


def _cheapest_on_demand(grid: Grid) -> list[int]:
    """One pool of each region: where its on-demand is cheapest."""
    return [
        min(np.flatnonzero(grid.region == region).tolist(), key=lambda pool: float(grid.on_demand_usd[pool]))
        for region in range(len(grid.regions))
    ]


def _start_up_usd(usd: Floats, ticks: int) -> Floats:
    """By way and first tick; infinite where it cannot be had all the time, or the window ends before."""
    length = usd.shape[1]
    total = np.full_like(usd, np.inf)
    if ticks <= length:
        total[:, : length - ticks + 1] = 0.0
        for after in range(ticks):
            total[:, : length - ticks + 1] += usd[:, after : length - ticks + 1 + after]
    return total
