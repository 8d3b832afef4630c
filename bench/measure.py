"""Measuring side by side: interleaved repetitions, CPU time, medians.

CPU time and not the clock on the wall: on a shared machine the second swings by a factor of three and the first does
not. A program that uses several threads is charged for all of them.
"""

import gc
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
Side = Callable[[], float | Mapping[str, float]]
"""One repetition; returns its CPU seconds, or those of several parts by their names."""


class Skipped(Exception):
    """A comparison that cannot be made here, and why."""


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        question: What was asked.
        ours_ms: CPU milliseconds, median.
        other: The program beside us with its version; empty where there is none.
        other_ms: Its CPU milliseconds, median.
        checked: What was found equal.
    """

    question: str
    ours_ms: float
    other: str = ""
    other_ms: float | None = None
    checked: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times as much CPU the other one takes."""
        return None if self.other_ms is None else self.other_ms / self.ours_ms


def cpu(work: Callable[[], T]) -> tuple[float, T]:
    """CPU seconds of one call, over all threads of this process, and what it returned."""
    gc.collect()
    begun = time.process_time()
    result = work()
    return time.process_time() - begun, result


def interleave(sides: Mapping[str, Side], repetitions: int, *, warm: int = 1) -> dict[str, float]:
    """Median CPU milliseconds of each side or its parts: all sides in turn, every other time backwards.

    Args:
        warm: Rounds before, which do not count.
    """
    taken: dict[str, list[float]] = {}
    for turn in range(-warm, repetitions):
        names = list(sides) if turn % 2 else list(reversed(sides))
        for name in names:
            say(f"  {'warm-up' if turn < 0 else f'{turn + 1} of {repetitions}'}: {name}", end="\r")
            seconds = sides[name]()
            parts = seconds if isinstance(seconds, Mapping) else {name: seconds}
            for part, value in parts.items() if turn >= 0 else ():
                taken.setdefault(part, []).append(value)
    return {name: statistics.median(seconds) * 1000 for name, seconds in taken.items()}


def say(text: str, end: str = "\n") -> None:
    """Progress, on standard error."""
    if end == "\n" or sys.stderr.isatty():
        print(f"{text:78}", end=end, file=sys.stderr, flush=True)


def machine() -> str:
    """What this ran on."""
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"


def load() -> str:
    """Load averages of 1, 5 and 15 minutes."""
    return " ".join(f"{average:.2f}" for average in os.getloadavg())


def table(rows: Sequence[Row]) -> str:
    """As Markdown."""
    lines = ["| question | broker | beside | its time | ratio | checked |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {row.question} | {_ms(row.ours_ms)} | {row.other or '–'} | {_ms(row.other_ms)} | {_times(row.ratio)} | "
        f"{row.checked or '–'} |"
        for row in rows
    ]
    return "\n".join(lines)


def _ms(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def _times(ratio: float | None) -> str:
    if ratio is None:
        return "–"
    return f"{ratio:,.0f} ×" if ratio >= 10 else f"{ratio:.2g} ×"
