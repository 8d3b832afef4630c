"""How costs are spread over runs, as pictures: which share of them costs no more than so much."""

import shutil
from collections.abc import Iterator, Sequence
from itertools import pairwise

Costs = Sequence[tuple[str, Sequence[float]]]

_ROWS = 12
_MARGIN = 10
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#b8a800")
# Corners of a curve: more of them nobody sees.
_MOST = 200


def in_terminal(costs: Costs) -> str:
    """Braille dots as wide as the terminal; a curve has the number of its row at its middle.

    Args:
        costs: Name, and the cost of each run in dollars, ascending; there must be one.
    """
    import plotille

    low, high = _range(costs)
    width = max(20, shutil.get_terminal_size().columns - _MARGIN)
    canvas = plotille.Canvas(width, _ROWS, xmin=low, xmax=high, ymin=0.0, ymax=1.0, mode="names")
    for number, (_, values) in enumerate(costs, 1):
        corners = list(_corners(values, low, high))
        for (x, y), (then_x, then_y) in pairwise(corners):
            canvas.line(x, y, then_x, then_y)
        canvas.text(values[len(values) // 2], 0.5, str(number))
    lines = ["share of runs"]
    for row, dots in enumerate(canvas.plot("\n").split("\n")):
        label = {0: "100 %", _ROWS // 2: "50 %", _ROWS - 1: "0 %"}.get(row, "")
        lines.append(f"{label:>7} |{dots}")
    left, right = f"${low:,.2f}", f"${high:,.2f}"
    lines.append(" " * 8 + "+" + "-" * width)
    lines.append(" " * 9 + left + right.rjust(max(1, width - len(left))))
    lines += [f"{' ' * 9}{number} {name}" for number, (name, _) in enumerate(costs, 1)]
    return "\n".join(lines)


def as_svg(costs: Costs) -> str:
    """A document of its own; arguments as of `in_terminal`."""
    import leather

    low, high = _range(costs)
    chart = leather.Chart("Runs that cost no more than so much")
    for number, (name, values) in enumerate(costs):
        colour = _COLOURS[number % len(_COLOURS)]
        chart.add_line(list(_corners(values, low, high)), name=name, stroke_color=colour, width=2)
    chart.set_x_scale(leather.Linear(low, high))
    chart.set_y_scale(leather.Linear(0, 1))
    chart.add_x_axis(name="$", tick_formatter=lambda usd, _number, _count: f"{usd:,.2f}")
    chart.add_y_axis(
        name="share of runs", tick_formatter=lambda share, _number, _count: f"{share * 100:.0f} %"
    )
    return str(chart.to_svg(width=1000, height=560))


def _range(costs: Costs) -> tuple[float, float]:
    low, high = min(values[0] for _, values in costs), max(values[-1] for _, values in costs)
    room = max((high - low) * 0.05, high * 0.01, 0.01)
    return max(0.0, low - room), high + room


def _corners(values: Sequence[float], low: float, high: float) -> Iterator[tuple[float, float]]:
    yield low, 0.0
    step = max(1, len(values) // _MOST)
    reached = 0.0
    for number in range(step - 1, len(values), step):
        yield values[number], reached
        reached = (number + 1) / len(values)
        yield values[number], reached
    yield values[-1], 1.0
    yield high, 1.0
