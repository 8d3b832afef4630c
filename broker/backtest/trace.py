"""Trace folders: what could be rented where, tick by tick, as somebody has measured it.

    placements.csv   placement, cloud, region, ondemand_usd_per_hour (of one instance); zone, instance_type, gpu and
                     gpus_per_instance where a policy is to be tried
    events.csv.gz    ts, placement, capacity, spot_usd_per_hour: a step function, in order of time. Capacity is the number
                     of spot instances that can be had; the last row of a placement has ``end`` there. No price: not to be had
    meta.json        step_seconds, start, end

Every mistake is told with its file and line.
"""

import csv
import gzip
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from broker.core.errors import Place, UsageError
from broker.core.time import MS, from_iso

_LINE = 4096
_ROWS = 5_000_000
_CELLS = 100_000_000
_META_BYTES = 1_000_000
_USD_H = 1e6


@dataclass(frozen=True)
class Pool:
    """One placement of a trace: a pool of spot instances, and the on-demand price beside it.

    Attributes:
        name: ``aws/us-east-1a/p3.2xlarge``.
        ondemand_usd_h: One instance.
        zone, instance_type, gpu: Empty where the trace does not say.
        gpus: Per instance.
    """

    name: str
    cloud: str
    region: str
    ondemand_usd_h: float
    zone: str = ""
    instance_type: str = ""
    gpu: str = ""
    gpus: int = 1


@dataclass(frozen=True, eq=False)
class Trace:
    """A market on its grid. Tick k begins at `start_ms` + k x `step_ms`, and shows the last row up to then.

    Attributes:
        capacity: Instances that can be had, by pool and tick.
        spot_usd_h: Price of one instance; NaN where the source has none.
    """

    name: str
    step_ms: int
    start_ms: int
    pools: tuple[Pool, ...]
    capacity: npt.NDArray[np.int32]
    spot_usd_h: npt.NDArray[np.float64]

    @property
    def ticks(self) -> int:
        """Length of the grid."""
        return int(self.capacity.shape[1])


def read_trace(folder: Path, only: tuple[str, ...] = ()) -> Trace:
    """A trace folder, or of it the placements named in `only`.

    Raises:
        UsageError: a file is missing or wrong, with its line; or no such place.
    """
    step_ms, start_ms, ticks = _read_meta(folder / "meta.json")
    pools = _read_pools(folder / "placements.csv")
    known = {pool.name: index for index, pool in enumerate(pools)}
    if len(pools) * ticks > _CELLS:
        raise UsageError(f"{folder}: {len(pools)} placements x {ticks} ticks are more than {_CELLS:,} cells")
    capacity, usd_h = _read_events(folder / "events.csv.gz", known, ticks, start_ms, step_ms)
    if only:
        missing = [name for name in only if name not in known]
        if missing:
            raise UsageError(
                f"{folder} has no placement {', '.join(missing)}", hint=f"it has {', '.join(known)}"
            )
        kept = [index for index, pool in enumerate(pools) if pool.name in only]
        pools, capacity, usd_h = [pools[i] for i in kept], capacity[kept], usd_h[kept]
    return Trace(folder.resolve().name, step_ms, start_ms, tuple(pools), capacity, usd_h)


def _read_meta(path: Path) -> tuple[int, int, int]:
    try:
        with open(path, encoding="utf-8") as file:
            meta: Any = json.loads(file.read(_META_BYTES))
    except OSError as error:
        raise _unreadable(path, error) from None
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if not isinstance(meta, dict):
        raise UsageError(f"{path} is not a JSON object")
    for key in ("step_seconds", "start", "end"):
        if key not in meta:
            raise UsageError(f"{path} has no {key}")
    step_s = meta["step_seconds"]
    if isinstance(step_s, bool) or not isinstance(step_s, int | float) or not 1 <= step_s <= 86_400:
        raise UsageError(f"{path}: step_seconds is {step_s!r}; seconds from 1 to 86400 are meant")
    try:
        start_ms, end_ms = from_iso(str(meta["start"])), from_iso(str(meta["end"]))
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None
    step_ms = round(step_s * MS)
    ticks = (end_ms - start_ms) // step_ms
    if ticks < 1:
        raise UsageError(f"{path}: from start to end there is no whole step of {step_s} s")
    return step_ms, start_ms, ticks


def _read_pools(path: Path) -> list[Pool]:
    pools: list[Pool] = []
    try:
        with open(path, encoding="utf-8", newline="") as file:
            for line, row in _rows(file, path, ("placement", "cloud", "region", "ondemand_usd_per_hour")):
                if not row["placement"] or any(pool.name == row["placement"] for pool in pools):
                    raise _wrong(
                        path, line, f"placement {row['placement']!r} is empty or a second one of its name"
                    )
                pools.append(
                    Pool(
                        row["placement"],
                        row["cloud"],
                        row["region"],
                        _price(row["ondemand_usd_per_hour"], path, line, "ondemand_usd_per_hour"),
                        row.get("zone", ""),
                        row.get("instance_type", ""),
                        row.get("gpu", ""),
                        _count(row.get("gpus_per_instance") or "1", path, line, "gpus_per_instance"),
                    )
                )
    except OSError as error:
        raise _unreadable(path, error) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text") from None
    if not pools:
        raise UsageError(f"{path} names no placement")
    return pools


def _read_events(
    path: Path, known: Mapping[str, int], ticks: int, start_ms: int, step_ms: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
    capacity = np.zeros((len(known), ticks), np.int32)
    usd_h = np.full((len(known), ticks), np.nan)
    last_ms, ended = -math.inf, set()
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            for line, row in _rows(file, path, ("ts", "placement", "capacity", "spot_usd_per_hour")):
                place = known.get(row["placement"])
                if place is None:
                    raise _wrong(path, line, f"placement {row['placement']!r} is not in placements.csv")
                if place in ended:
                    raise _wrong(path, line, f"a row of {row['placement']} after its end")
                at_ms = _moment(row["ts"], path, line)
                if at_ms < last_ms:
                    raise _wrong(path, line, "rows must be in order of time")
                last_ms = at_ms
                # The first tick that sees the row; rows before the start are the state at the start.
                first = max(0, -(-(at_ms - start_ms) // step_ms))
                if row["capacity"] == "end":
                    ended.add(place)
                    capacity[place, first:] = 0
                    continue
                capacity[place, first:] = _count(row["capacity"], path, line, "capacity", least=0)
                price = row["spot_usd_per_hour"]
                usd_h[place, first:] = _price(price, path, line, "spot_usd_per_hour") if price else math.nan
    except (OSError, EOFError) as error:
        raise _unreadable(path, error) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text") from None
    return capacity, usd_h


def _rows(file: Any, path: Path, needed: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows by column name with their line; a long line or a short row is refused before it is taken apart."""
    lines = _lines(file, path)
    header = [name.strip() for name in next(csv.reader([next(lines, (1, ""))[1]]), [])]
    missing = [name for name in needed if name not in header]
    if missing:
        raise _wrong(path, 1, f"no column {', '.join(missing)}; there are {', '.join(header) or 'none'}")
    for number, text in lines:
        cells = next(csv.reader([text]), [])
        if not cells:
            continue
        if len(cells) != len(header):
            raise _wrong(path, number, f"{len(cells)} cells in a row of {len(header)}")
        yield number, dict(zip(header, (cell.strip() for cell in cells), strict=True))


def _lines(file: Any, path: Path) -> Iterator[tuple[int, str]]:
    number = 0
    while text := file.readline(_LINE):
        number += 1
        if len(text) == _LINE:
            raise _wrong(path, number, f"a line of more than {_LINE - 1} characters")
        if number > _ROWS:
            raise _wrong(path, number, f"more than {_ROWS:,} lines")
        yield number, text


def _moment(text: str, path: Path, line: int) -> int:
    try:
        return from_iso(text)
    except ValueError as error:
        raise _wrong(path, line, str(error)) from None


def _count(text: str, path: Path, line: int, name: str, least: int = 1) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 7 and int(text) >= least):
        raise _wrong(path, line, f"{name} is {text[:40]!r}; a whole number from {least} is meant")
    return int(text)


def _price(text: str, path: Path, line: int, name: str) -> float:
    try:
        usd_h = float(text)
    except ValueError:
        usd_h = math.nan
    if not 0 < usd_h < _USD_H:
        raise _wrong(path, line, f"{name} is {text[:40]!r}; dollars an hour are meant")
    return usd_h


def _wrong(path: Path, line: int, message: str) -> UsageError:
    return UsageError(message, Place(str(path), line, 1))


def _unreadable(path: Path, error: BaseException) -> UsageError:
    why = getattr(error, "strerror", None) or str(error)
    hint = "a trace is a folder with placements.csv, events.csv.gz and meta.json"
    return UsageError(f"cannot read {path}: {why}", hint=hint)
