"""Traces that are made up for tests, in memory and as folders. None of this was measured."""

import csv
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from broker.backtest.grid import Grid, Shock, Terms
from broker.backtest.trace import Pool, Trace
from broker.core.time import HOUR_S, from_iso, to_iso

FOLDER = Path(__file__).parent / "made_trace"
START_MS = from_iso("2026-01-01T00:00:00Z")

EAST = Pool("aws/us-east-1a/p3.2xlarge", "aws", "us-east-1", 3.0, "us-east-1a", "p3.2xlarge", "V100")
EAST_B = Pool("aws/us-east-1b/p3.2xlarge", "aws", "us-east-1", 3.2, "us-east-1b", "p3.2xlarge", "V100")
WEST = Pool("aws/us-west-2a/p3.2xlarge", "aws", "us-west-2", 3.0, "us-west-2a", "p3.2xlarge", "V100")
TOKYO = Pool(
    "gcp/asia-northeast1-a/n1-v100", "gcp", "asia-northeast1", 2.9, "asia-northeast1-a", "n1-v100", "V100"
)
POOLS = (EAST, EAST_B, WEST, TOKYO)


def trace(
    stock: Mapping[Pool, Sequence[int]], usd_h: Mapping[Pool, float | Sequence[float]], step_s: int = HOUR_S
) -> Trace:
    """Capacity by tick, and a price for all ticks or one for each."""
    ticks = len(next(iter(stock.values())))
    capacity = np.array([list(row) for row in stock.values()], np.int32)
    prices = np.array([np.broadcast_to(np.array(usd_h[pool], float), ticks) for pool in stock])
    return Trace("made", step_s * 1000, START_MS, tuple(stock), capacity, prices)


def grid(a_trace: Trace, work: int, deadline: int, start: int = 1, cross: int = 0, **more: object) -> Grid:
    """Lengths in ticks; one window, no history, and a checkpoint that weighs nothing, unless said otherwise."""
    step_s = a_trace.step_ms / 1000
    terms: dict[str, object] = {"checkpoint_gib": 0, "history_s": 0, "windows": 1}
    lengths = {
        "work_s": work * step_s,
        "deadline_s": deadline * step_s,
        "start_s": start * step_s,
        "cross_s": cross * step_s,
    }
    return Grid(a_trace, Terms(**(terms | lengths | more)))  # type: ignore[arg-type]


def random_grid(seed: int, ticks: int = 8, pools: int = 3, shock: bool = False) -> Grid:
    """A small market with gaps, and a job that on-demand finishes in time."""
    draw = np.random.default_rng(seed)
    chosen = [POOLS[index] for index in sorted(draw.choice(len(POOLS), pools, replace=False))]
    start, cross = int(draw.integers(1, 3)), int(draw.integers(0, 2))
    work = int(draw.integers(1, ticks - start - cross))
    stock = {pool: draw.integers(0, 3, ticks).tolist() for pool in chosen}
    usd = {pool: np.round(draw.uniform(0.3, 3.5, ticks), 2).tolist() for pool in chosen}
    gib = float(draw.choice([0, 5, 50]))
    more = {"shock": Shock(1.9, 2.0 * HOUR_S)} if shock else {}
    return grid(
        trace(stock, usd),
        work,
        ticks,
        start,
        cross,
        gang=int(draw.integers(1, 3)),
        checkpoint_gib=gib,
        **more,
    )


def write(folder: Path, a_trace: Trace, frozen_after_ms: int | None = None) -> Path:
    """A trace as a folder; frozen, no row after that moment is in it."""
    folder.mkdir(parents=True, exist_ok=True)
    end_ms = a_trace.start_ms + a_trace.ticks * a_trace.step_ms
    meta = {
        "dataset": "made",
        "notes": "Made up for tests; nothing here was measured.",
        "step_seconds": a_trace.step_ms // 1000,
        "start": to_iso(a_trace.start_ms),
        "end": to_iso(end_ms),
    }
    (folder / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")
    with open(folder / "placements.csv", "w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(
            [
                "placement",
                "cloud",
                "region",
                "zone",
                "instance_type",
                "gpu",
                "gpus_per_instance",
                "ondemand_usd_per_hour",
            ]
        )
        for p in a_trace.pools:
            rows.writerow(
                (p.name, p.cloud, p.region, p.zone, p.instance_type, p.gpu, p.gpus, p.ondemand_usd_h)
            )
    with (
        open(folder / "events.csv.gz", "wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as packed,
    ):
        packed.write(_events(a_trace, end_ms, frozen_after_ms).encode())
    return folder


def _events(a_trace: Trace, end_ms: int, frozen_after_ms: int | None) -> str:
    lines = ["ts,placement,capacity,spot_usd_per_hour"]
    for tick in range(a_trace.ticks):
        at_ms = a_trace.start_ms + tick * a_trace.step_ms
        if frozen_after_ms is not None and at_ms > frozen_after_ms:
            break
        for row, pool in enumerate(a_trace.pools):
            now = a_trace.capacity[row, tick], a_trace.spot_usd_h[row, tick]
            if tick == 0 or now != (a_trace.capacity[row, tick - 1], a_trace.spot_usd_h[row, tick - 1]):
                lines.append(f"{to_iso(at_ms)},{pool.name},{now[0]},{now[1]:g}")
    lines += [f"{to_iso(end_ms)},{pool.name},end," for pool in a_trace.pools]
    return "\n".join(lines) + "\n"


def spells(seed: int, ticks: int, up: float, down: float) -> list[int]:
    """Capacity 2 and 0 by turns, in spells of these mean lengths."""
    draw = np.random.default_rng(seed)
    row: list[int] = []
    while len(row) < ticks:
        row += [2] * int(draw.geometric(1 / up)) + [0] * int(draw.geometric(1 / down))
    return row[:ticks]


def main() -> None:
    """Writes `made_trace`: eight days in steps of ten minutes."""
    ticks = 8 * 144
    stock = {
        EAST: spells(1, ticks, 12, 20),
        EAST_B: spells(2, ticks, 30, 40),
        WEST: spells(3, ticks, 60, 30),
        TOKYO: spells(4, ticks, 50, 60),
    }
    drift = np.round(1.0 + 0.1 * np.sin(np.arange(ticks) // 36 / 7), 3)
    usd = {EAST: (1.1 * drift).tolist(), EAST_B: (1.3 * drift).tolist(), WEST: 0.95, TOKYO: 1.6}
    write(FOLDER, trace(stock, usd, 600))


if __name__ == "__main__":
    main()
