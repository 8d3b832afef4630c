"""From runs to numbers: cost over the optimum, its spread, and how sure one may be of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from broker.backtest.grid import Floats
from broker.backtest.play import Run

_SAMPLES = 2000
_SEED = 20230215


@dataclass(frozen=True)
class Score:
    """One policy over all windows. Shares are 0..1.

    Attributes:
        usd, optimum_usd: Sums.
        ratio: Of the sums. p95, max: Of the single windows' ratios.
        interval: In which the ratio of the sums lies in 95 of 100 resamples; None with fewer than two independent blocks.
        launches, moves: Means over the windows.
        on_demand: Share of billed time on on-demand.
        overhead: Start-ups, as a share of the work.
        hours: Mean time until the work was done, or the deadline.
    """

    usd: float
    optimum_usd: float
    ratio: float
    p95: float
    max: float
    interval: tuple[float, float] | None
    windows: int
    misses: int
    launches: float
    moves: float
    on_demand: float
    overhead: float
    egress_usd: float
    hours: float


def score(
    runs: Sequence[Run],
    optimum_usd: Sequence[float],
    starts: Sequence[int],
    work: int,
    deadline: int,
    step_h: float,
) -> Score:
    """Runs of one policy and the optimum, window by window; lengths in ticks of `step_h` hours."""
    usd, best = np.array([run.usd for run in runs]), np.array(optimum_usd)
    ratios = usd / best
    held = sum(run.held_ticks for run in runs)
    return Score(
        usd=float(usd.sum()),
        optimum_usd=float(best.sum()),
        ratio=float(usd.sum() / best.sum()),
        p95=float(np.percentile(ratios, 95)),
        max=float(ratios.max()),
        interval=_interval(usd, best, starts, deadline),
        windows=len(runs),
        misses=sum(run.missed for run in runs),
        launches=float(np.mean([run.launches for run in runs])),
        moves=float(np.mean([run.moves for run in runs])),
        on_demand=sum(run.on_demand_ticks for run in runs) / max(1, held),
        overhead=sum(run.start_ticks for run in runs) / (work * len(runs)),
        egress_usd=sum(run.egress_usd for run in runs),
        hours=float(np.mean([run.done_tick or deadline for run in runs])) * step_h,
    )


def _interval(usd: Floats, best: Floats, starts: Sequence[int], deadline: int) -> tuple[float, float] | None:
    """Block bootstrap: windows overlap, so that neighbours as far as a window is long are drawn together.

    Blocks wrap around at the end (circular block bootstrap: Politis and Romano, 1992). The draws are the same every time.
    """
    count = len(usd)
    if count < 2:
        return None
    apart = max(1.0, (starts[-1] - starts[0]) / (count - 1))
    block = max(1, math.ceil(deadline / apart))
    blocks = math.ceil(count / block)
    if blocks < 2:
        return None
    draws = np.random.default_rng(_SEED).integers(0, count, (_SAMPLES, blocks))
    picked = (draws[:, :, None] + np.arange(block)).reshape(_SAMPLES, -1)[:, :count] % count
    ratios = usd[picked].sum(axis=1) / best[picked].sum(axis=1)
    low, high = np.percentile(ratios, (2.5, 97.5)).tolist()
    return low, high
