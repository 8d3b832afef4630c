"""Prices over time as pictures: braille dots in a terminal (plotille), lines in an SVG (leather).

A price holds until the next one: a curve is stairs. It ends where it was last seen, and not now: what nobody has
looked at since is not drawn as if it were known.
"""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from broker.core.money import MICRO_PER_USD
from broker.core.time import DAY_S, MS, to_datetime

# Eight that most people can tell apart: https://jfly.uni-koeln.de/color/ (Okabe and Ito), grey for black.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#b8a800")
_NAMES = ("bright_blue", "red", "green", "magenta", "yellow", "cyan", "white", "bright_red")
_HEIGHT = 15
# Of the labels beside the plot.
_MARGIN = 16

Point = tuple[datetime, float]


def in_terminal(items: Sequence[Mapping[str, Any]], since_ms: int, now_ms: int) -> str:
    """A plot as wide as the terminal, from the first price that is known; a curve ends in the number of its row."""
    import plotille

    figure = plotille.Figure()
    figure.width = max(20, shutil.get_terminal_size().columns - _MARGIN)
    figure.height = _HEIGHT
    figure.color_mode = "names"
    figure.with_colors = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    figure.x_label, figure.y_label = "", "$/GPU/h"
    since_ms = max(since_ms, _first_ms(items, now_ms))
    curves = [stairs(item, since_ms, now_ms) for item in items]
    figure.set_x_limits(min_=_moment(since_ms), max_=_moment(now_ms))
    figure.set_y_limits(min_=0.0, max_=1.1 * max((usd for curve in curves for _, usd in curve), default=1.0))
    shape = "%m-%d" if now_ms - since_ms > 3 * DAY_S * MS else "%d %H:%M"
    figure.register_label_formatter(datetime, lambda at, chars, delta, left=False: at.strftime(shape))
    figure.register_label_formatter(float, lambda usd, chars, delta, left=False: f"{usd:8.2f}")
    for at, curve in enumerate(curves):
        if curve:
            xs, ys = zip(*curve, strict=True)
            figure.plot(xs, ys, lc=_NAMES[at % len(_NAMES)])
            number_at = _moment(now_ms - (now_ms - since_ms) // 30)
            figure.text([number_at], [ys[-1]], [str(at + 1)], lc=_NAMES[at % len(_NAMES)])
    return str(figure.show(legend=False))


def as_svg(title: str, items: Sequence[Mapping[str, Any]], since_ms: int, now_ms: int) -> str:
    """A document of its own. There must be a point."""
    import leather

    since_ms = max(since_ms, _first_ms(items, now_ms))
    chart = leather.Chart(title)
    top = 1.0
    for at, item in enumerate(items):
        curve = stairs(item, since_ms, now_ms)
        if curve:
            top = max(top, *(usd for _, usd in curve))
            chart.add_line(curve, name=item["key"], stroke_color=_COLOURS[at % len(_COLOURS)], width=2)
    chart.set_x_scale(leather.Temporal(_moment(since_ms), _moment(now_ms)))
    chart.set_y_scale(leather.Linear(0, top * 1.1))
    return str(chart.to_svg(width=1000, height=560))


def _first_ms(items: Sequence[Mapping[str, Any]], now_ms: int) -> int:
    return min((item["points"][0]["effective_at_ms"] for item in items if item["points"]), default=now_ms - 1)


def stairs(item: Mapping[str, Any], since_ms: int, now_ms: int) -> list[Point]:
    """The corners of a curve within the window, in dollars an hour for one GPU."""
    return list(_corners(item, since_ms, now_ms))


def _corners(item: Mapping[str, Any], since_ms: int, now_ms: int) -> Iterator[Point]:
    points, gpus = item["points"], item["offer"]["gpus"]
    seen_ms = item["last_seen_ms"] or max((point["observed_at_ms"] for point in points), default=0)
    ends = [point["effective_at_ms"] for point in points[1:]] + [min(max(seen_ms, since_ms), now_ms)]
    for point, end_ms in zip(points, ends, strict=True):
        from_ms = max(point["effective_at_ms"], since_ms)
        if from_ms <= end_ms:
            usd = point["price_micro_usd_h"] / gpus / MICRO_PER_USD
            yield _moment(from_ms), usd
            yield _moment(end_ms), usd


def _moment(at_ms: int) -> datetime:
    return to_datetime(at_ms).astimezone(UTC).replace(tzinfo=None)
