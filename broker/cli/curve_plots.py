"""Prices over time as pictures: braille dots in a terminal (plotille), lines in an SVG (leather).

A price holds until the next one: a curve is stairs. It ends where it was last seen, and not now: what nobody has
looked at since is not drawn as if it were known.
"""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from math import ceil, floor, log10
from typing import Any

from broker.core.money import MICRO_PER_USD
from broker.core.time import DAY_S, HOUR_S, MS, to_datetime

# Eight that most people can tell apart: https://jfly.uni-koeln.de/color/ (Okabe and Ito), grey for black.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#b8a800")
_NAMES = ("bright_blue", "red", "green", "magenta", "yellow", "cyan", "white", "bright_red")
# Labels beside the plot, and rows for each.
_TICKS, _ROWS = 5, 3
# Columns of the labels beside the plot, and of one below it.
_MARGIN, _LABEL = 12, 14
# Below an SVG.
_SVG_LABELS = 6
# Between two labels of time.
_STEPS_S = (
    *(60 * m for m in (1, 5, 15, 30)),
    *(HOUR_S * h for h in (1, 2, 3, 6, 12)),
    *(DAY_S * d for d in (1, 2, 7, 14)),
)

Point = tuple[datetime, float]


def in_terminal(items: Sequence[Mapping[str, Any]], since_ms: int, now_ms: int) -> str:
    """A plot as wide as the terminal, from the first price that is known; a curve ends in the number of its row."""
    import plotille

    since_ms = max(since_ms, _first_ms(items, now_ms))
    curves = [list(_corners(item, since_ms, now_ms)) for item in items]
    step = _step(max((usd for curve in curves for _, usd in curve), default=1.0))
    width = max(20, shutil.get_terminal_size().columns - _MARGIN)
    canvas = plotille.Canvas(
        width, _TICKS * _ROWS, xmin=since_ms, xmax=now_ms, ymin=0.0, ymax=_TICKS * step, mode="names"
    )
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for at, curve in enumerate(curves):
        colour = _NAMES[at % len(_NAMES)] if coloured else None
        for (from_ms, usd), (to_ms, then) in pairwise(curve):
            canvas.line(from_ms, usd, to_ms, then, color=colour)
        if curve:
            number_at_ms = now_ms - (now_ms - since_ms) // 30
            canvas.text(number_at_ms, curve[-1][1], str(at + 1), color=colour)
    places = max(2, -floor(log10(step)))
    lines = ["$/GPU/h", f"{_TICKS * step:9.{places}f} |"]
    for row, dots in enumerate(canvas.plot("\n").split("\n")):
        left = _TICKS * _ROWS - 1 - row
        label = "" if left % _ROWS else f"{left // _ROWS * step:.{places}f}"
        lines.append(f"{label:>9} |{dots}")
    return "\n".join([*lines, *_time_axis(since_ms, now_ms, width)])


def _step(highest: float) -> float:
    """Dollars between two labels: 1, 2 or 5 of a power of ten, so that the highest price is below the top."""
    size = 10.0 ** floor(log10(highest / _TICKS)) if highest > 0 else 1.0
    return next(step for step in (size, 2 * size, 5 * size, 10 * size, 20 * size) if _TICKS * step > highest)


def _shape(window_ms: int, step_s: int) -> str:
    """Of the labels of a window, for `strftime`."""
    if step_s < DAY_S:
        return "%d %b %H:%M"
    return "%d %b" if window_ms < 300 * DAY_S * MS else "%d %b %Y"


def _marks(since_ms: int, now_ms: int, most: int) -> tuple[int, range]:
    """Seconds between labels of time, at most so many of them, and where they are: whole days or hours within the window."""
    window_s = (now_ms - since_ms) / MS
    step_s = next((step for step in _STEPS_S if window_s / step <= most), None)
    step_s = step_s or ceil(window_s / most / DAY_S) * DAY_S
    return step_s, range(-(-since_ms // (step_s * MS)) * step_s * MS, now_ms + 1, step_s * MS)


def _time_axis(since_ms: int, now_ms: int, width: int) -> Iterator[str]:
    """A line with marks at whole days or hours, and one with what they are."""
    step_s, moments_ms = _marks(since_ms, now_ms, max(1, width // _LABEL))
    shape = _shape(now_ms - since_ms, step_s)
    marks, labels = ["-"] * width, [" "] * (width + _LABEL)
    for at_ms in moments_ms:
        column = (at_ms - since_ms) * (width - 1) // max(1, now_ms - since_ms)
        text = to_datetime(at_ms).strftime(shape)
        if column + len(text) <= width:
            marks[column] = "|"
            labels[column : column + len(text)] = text
    yield " " * 10 + "+" + "".join(marks)
    yield f"{'UTC':>9}  " + "".join(labels).rstrip()


class _Window:
    """A scale of time for leather that ends where the window does; its own goes on to the next round number, in the future."""

    def __init__(self, since_ms: int, now_ms: int) -> None:
        self._first, self._last = _moment(since_ms), _moment(now_ms)
        step_s, moments_ms = _marks(since_ms, now_ms, _SVG_LABELS)
        self._ticks = [_moment(at_ms) for at_ms in moments_ms]
        self._shape = _shape(now_ms - since_ms, step_s)

    def contains(self, at: datetime) -> bool:
        return self._first <= at <= self._last

    def project(self, at: datetime, least: float, most: float) -> float:
        return least + (most - least) * ((at - self._first) / (self._last - self._first))

    def ticks(self) -> list[datetime]:
        return self._ticks

    def format_tick(self, at: datetime, _number: int, _count: int) -> str:
        return at.strftime(self._shape)


def as_svg(title: str, items: Sequence[Mapping[str, Any]], since_ms: int, now_ms: int) -> str:
    """A document of its own. There must be a point."""
    import leather

    since_ms = min(max(since_ms, _first_ms(items, now_ms)), now_ms - 1)
    chart = leather.Chart(title)
    top = 1.0
    for at, item in enumerate(items):
        curve = stairs(item, since_ms, now_ms)
        if curve:
            top = max(top, *(usd for _, usd in curve))
            chart.add_line(curve, name=item["key"], stroke_color=_COLOURS[at % len(_COLOURS)], width=2)
    chart.set_x_scale(_Window(since_ms, now_ms))
    chart.set_y_scale(leather.Linear(0, top * 1.1))
    chart.add_x_axis(name="UTC")
    chart.add_y_axis(name="$/GPU/h", tick_formatter=lambda usd, _number, _count: f"{usd:.2f}")
    return str(chart.to_svg(width=1000, height=560))


def _first_ms(items: Sequence[Mapping[str, Any]], now_ms: int) -> int:
    return min((item["points"][0]["effective_at_ms"] for item in items if item["points"]), default=now_ms - 1)


def stairs(item: Mapping[str, Any], since_ms: int, now_ms: int) -> list[Point]:
    """The corners of a curve within the window, in dollars an hour for one GPU."""
    return [(_moment(at_ms), usd) for at_ms, usd in _corners(item, since_ms, now_ms)]


def _corners(item: Mapping[str, Any], since_ms: int, now_ms: int) -> Iterator[tuple[int, float]]:
    points, gpus = item["points"], item["offer"]["gpus"]
    seen_ms = item["last_seen_ms"] or max((point["observed_at_ms"] for point in points), default=0)
    ends = [point["effective_at_ms"] for point in points[1:]] + [min(max(seen_ms, since_ms), now_ms)]
    for point, end_ms in zip(points, ends, strict=True):
        from_ms = max(point["effective_at_ms"], since_ms)
        if from_ms <= end_ms:
            usd = point["price_micro_usd_h"] / gpus / MICRO_PER_USD
            yield from_ms, usd
            yield end_ms, usd


def _moment(at_ms: int) -> datetime:
    return to_datetime(at_ms).astimezone(UTC).replace(tzinfo=None)
