import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from broker.backtest.trace import read_trace
from broker.core.errors import UsageError
from tests.unit.backtest.made import EAST, FOLDER, WEST, trace, write

HEADER = "ts,placement,capacity,spot_usd_per_hour"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    made = trace({EAST: [0, 2, 2, 1], WEST: [1, 1, 0, 0]}, {EAST: 1.5, WEST: [0.9, 0.9, 0.95, 0.95]})
    found = read_trace(write(tmp_path / "made", made))
    assert found.name == "made"
    assert found.pools == made.pools
    assert (found.step_ms, found.start_ms, found.ticks) == (made.step_ms, made.start_ms, 4)
    np.testing.assert_array_equal(found.capacity, made.capacity)
    np.testing.assert_array_equal(found.spot_usd_h, made.spot_usd_h)


def test_only_some_placements_in_the_order_of_the_trace() -> None:
    found = read_trace(FOLDER, (WEST.name, EAST.name))
    assert [pool.name for pool in found.pools] == [EAST.name, WEST.name]
    with pytest.raises(UsageError, match="has no placement aws/nowhere") as wrong:
        read_trace(FOLDER, ("aws/nowhere",))
    assert EAST.name in str(wrong.value)


class TestGrid:
    """Rows of one placement at half-past: which tick sees them."""

    def read(self, tmp_path: Path, *rows: str) -> tuple[list[int], list[float]]:
        folder = write(tmp_path / "t", trace({EAST: [0] * 4}, {EAST: 1.0}))
        pack(folder, HEADER, *(row.replace("EAST", EAST.name) for row in rows))
        found = read_trace(folder)
        return found.capacity[0].tolist(), found.spot_usd_h[0].tolist()

    def test_a_row_counts_from_the_first_tick_that_begins_at_it_or_later(self, tmp_path: Path) -> None:
        rows = "2026-01-01T00:00:01Z,EAST,1,1.0", "2026-01-01T02:00:00Z,EAST,2,1.5"
        assert self.read(tmp_path, *rows)[0] == [0, 1, 2, 2]

    def test_of_two_rows_within_a_tick_the_last_counts(self, tmp_path: Path) -> None:
        rows = "2026-01-01T00:10:00Z,EAST,1,1.0", "2026-01-01T00:50:00Z,EAST,0,1.2"
        capacity, usd = self.read(tmp_path, *rows)
        assert capacity == [0, 0, 0, 0]
        assert usd[1:] == [1.2, 1.2, 1.2]

    def test_a_row_before_the_start_is_the_state_at_the_start(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, "2025-12-31T00:00:00Z,EAST,2,1.0")[0] == [2, 2, 2, 2]

    def test_after_the_end_nothing_can_be_had(self, tmp_path: Path) -> None:
        rows = "2026-01-01T00:00:00Z,EAST,2,1.0", "2026-01-01T02:00:00Z,EAST,end,"
        assert self.read(tmp_path, *rows)[0] == [2, 2, 0, 0]

    def test_no_price_is_no_number(self, tmp_path: Path) -> None:
        assert np.isnan(self.read(tmp_path, "2026-01-01T00:00:00Z,EAST,2,")[1]).all()


def pack(folder: Path, *lines: str) -> None:
    with gzip.open(folder / "events.csv.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")


GOOD = f"2026-01-01T00:00:00Z,{EAST.name},2,1.0"
LATER = f"2026-01-01T01:00:00Z,{EAST.name},1,1.0"
EVENTS = [
    ((GOOD, "2026-01-01T00:00:00Z,aws/mars,1,1.0"), 3, "'aws/mars' is not in placements.csv"),
    ((LATER, GOOD), 3, "rows must be in order of time"),
    ((f"2026-01-01T00:00:00Z,{EAST.name},end,", LATER), 3, "after its end"),
    ((f"2026-01-01T00:00:00,{EAST.name},1,1.0",), 2, "has no time zone"),
    ((f"yesterday,{EAST.name},1,1.0",), 2, "'yesterday' is not a date"),
    ((f"2026-01-01T00:00:00Z,{EAST.name},-1,1.0",), 2, "capacity is '-1'; a whole number from 0 is meant"),
    ((f"2026-01-01T00:00:00Z,{EAST.name},1.5,1.0",), 2, "capacity is '1.5'"),
    (
        (f"2026-01-01T00:00:00Z,{EAST.name},1,nan",),
        2,
        "spot_usd_per_hour is 'nan'; dollars an hour are meant",
    ),
    ((f"2026-01-01T00:00:00Z,{EAST.name},1,-2",), 2, "spot_usd_per_hour is '-2'"),
    ((GOOD, "2026-01-01T01:00:00Z,1"), 3, "2 cells in a row of 4"),
    ((GOOD, "x" * 5000), 3, "a line of more than 4095 characters"),
]


@pytest.mark.parametrize(("lines", "line", "words"), EVENTS, ids=[words for _, _, words in EVENTS])
def test_a_wrong_row_is_told_with_its_line(
    tmp_path: Path, lines: tuple[str, ...], line: int, words: str
) -> None:
    folder = write(tmp_path / "t", trace({EAST: [1, 1]}, {EAST: 1.0}))
    pack(folder, HEADER, *lines)
    with pytest.raises(UsageError) as wrong:
        read_trace(folder)
    assert words in wrong.value.message
    assert str(wrong.value).startswith(f"{folder / 'events.csv.gz'}:{line}:1: ")


def replaced(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


def removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def written(name: str, content: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return change


FILES: list[tuple[Callable[[Path], None], str]] = [
    (
        removed("meta.json"),
        "meta.json: No such file or directory\nhint: a trace is a folder with placements.csv",
    ),
    (removed("placements.csv"), "placements.csv: No such file"),
    (removed("events.csv.gz"), "events.csv.gz: No such file"),
    (written("events.csv.gz", b"ts,placement"), "events.csv.gz: Not a gzipped file"),
    (written("events.csv.gz", gzip.compress(b"\xff\xfe")), "is not UTF-8 text"),
    (
        written("events.csv.gz", gzip.compress(b"ts,placement\n")),
        "events.csv.gz:1:1: no column capacity, spot_usd",
    ),
    (written("events.csv.gz", gzip.compress(b"x" * 99)[:-12]), "cannot read"),
    (written("meta.json", b"{"), "meta.json is not JSON"),
    (written("meta.json", b"[]"), "meta.json is not a JSON object"),
    (replaced("meta.json", "step_seconds", "step"), "meta.json has no step_seconds"),
    (replaced("meta.json", "3600", "-1"), "step_seconds is -1; seconds from 1 to 86400 are meant"),
    (replaced("meta.json", "3600", "true"), "step_seconds is True"),
    (replaced("meta.json", "2026-01-01T00:00:00Z", "2026-01-09T00:00:00Z"), "there is no whole step"),
    (replaced("meta.json", "2026-01-01T00:00:00Z", "2026-01-01"), "has no time zone"),
    (replaced("placements.csv", "region", "area"), "placements.csv:1:1: no column region"),
    (replaced("placements.csv", "3.0", "free"), "placements.csv:2:1: ondemand_usd_per_hour is 'free'"),
    (
        replaced("placements.csv", WEST.name, EAST.name),
        "placements.csv:3:1: placement 'aws/us-east-1a/p3.2xlarge' is",
    ),
]


@pytest.mark.parametrize(("change", "words"), FILES, ids=[words for _, words in FILES])
def test_a_wrong_file_is_told(tmp_path: Path, change: Callable[[Path], None], words: str) -> None:
    folder = write(tmp_path / "t", trace({EAST: [1, 1], WEST: [1, 1]}, {EAST: 1.0, WEST: 1.0}))
    change(folder)
    with pytest.raises(UsageError) as wrong:
        read_trace(folder)
    assert words in str(wrong.value)
