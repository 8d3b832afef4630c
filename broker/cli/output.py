"""How answers look: a table for eyes, tab-separated values for pipes, JSON for programs.

On a terminal: a table, ages in words; where it is too narrow for one, a block a row. Elsewhere: one line a row, tabs between, no header, so that ``cut -f1`` works.
``--json``: exactly what the API said. Colour only on a terminal and without ``NO_COLOR``.
"""

import json
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from broker.core.money import format_usd
from broker.core.time import format_duration

# Columns of what a person copies into the next command: never cut, never folded.
IDS = frozenset({"JOB", "NODE", "OFFER", "SUBJECT", "CLOUD'S ID"})
# Characters between two columns; of the longest word that is never folded; lines that a folded cell takes, about.
_GAP, _WORD, _LINES = 3, 24, 6
_NO_BREAK = "\N{NO-BREAK SPACE}"

AsJson = Annotated[bool, typer.Option("--json", help="Print what the API says, as JSON.")]


def say(message: str) -> None:
    """A message to the person, never mixed into an answer."""
    print(message, file=sys.stderr)


def show_json(document: Any) -> None:
    """A document, indented for eyes and compact for pipes."""
    if sys.stdout.isatty():
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        print(json.dumps(document, separators=(",", ":")))


def show_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    empty: str = "nothing",
    spare: Sequence[str] = (),
) -> None:
    """Rows under `columns`; when there are none, `empty` is said, in a pipe, too: on stderr it is in nobody's way.

    On a terminal a column that says nothing in any row is left out; in a pipe every column has its place.

    Args:
        spare: Columns that a terminal does without, the first one first, before a cell of any other is folded.
    """
    lines = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if not lines:
        if empty:
            say(empty)
        return
    if not sys.stdout.isatty():
        for line in lines:
            print("\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in line))
        return
    told = [name for at, name in enumerate(columns) if any(line[at] for line in lines)]
    columns, lines = _only(told, columns, lines)
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for name in spare:
        widest = [max(map(len, cells)) for cells in zip(columns, *lines, strict=True)]
        if sum(widest) + _GAP * len(columns) > console.width:
            columns, lines = _only([other for other in columns if other != name], columns, lines)
    least = [_least_width(cells[0], cells) for cells in zip(columns, *lines, strict=True)]
    if console.width < sum(least) + _GAP * len(columns):
        _show_blocks(columns, lines, console.width)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    widest = [max(map(len, cells)) for cells in zip(columns, *lines, strict=True)]
    widths = _widths(least, widest, console.width - _GAP * len(columns))
    for name, width in zip(columns, widths, strict=True):
        table.add_column(name, no_wrap=name in IDS, overflow="fold", width=width)
    for line in lines:
        table.add_row(*(Text(cell) for cell in line))
    console.print(table)


def _only(
    names: Sequence[str], columns: Sequence[str], lines: Sequence[Sequence[str]]
) -> tuple[Sequence[str], list[list[str]]]:
    """These of the columns."""
    at = [columns.index(name) for name in names]
    return names, [[line[number] for number in at] for line in lines]


def _least_width(name: str, cells: Sequence[str]) -> int:
    """How narrow a column may become: an id is never cut nor folded; other cells fold between words, in some lines."""
    width = max(map(len, cells))
    word = max(len(word) for cell in cells for word in cell.split() or [""])
    return width if name in IDS else min(width, max(min(word, _WORD), -(-width // _LINES)))


def _widths(least: Sequence[int], widest: Sequence[int], room: int) -> list[int]:
    """Of each column: what it needs at least, and of the rest of `room` an equal share, or what it can use of that."""
    widths = list(least)
    rest = room - sum(least)
    for done, number in enumerate(sorted(range(len(widths)), key=lambda one: widest[one] - least[one])):
        more = min(widest[number] - least[number], rest // (len(widths) - done))
        widths[number] += more
        rest -= more
    return widths


def _show_blocks(columns: Sequence[str], lines: Iterable[Sequence[str]], width: int) -> None:
    """For a terminal too narrow for a table: the ids of a row, and behind and below them what else is known."""
    for line in lines:
        cells = [(name, cell) for name, cell in zip(columns, line, strict=True) if cell]
        ids = "  ".join(cell for name, cell in cells if name in IDS)
        rest = [f"{name.lower()} {cell}".strip() for name, cell in cells if name not in IDS]
        # What is short stays on one line with its name.
        kept = (part.replace(" ", _NO_BREAK) if len(part) < _WORD else part for part in rest)
        text = "  ".join(filter(None, (ids, "; ".join(kept))))
        for part in textwrap.wrap(
            text, width, subsequent_indent=" " * 4, break_on_hyphens=False, break_long_words=False
        ):
            print(part.replace(_NO_BREAK, " "))


def show_line(row: Sequence[object]) -> None:
    """One row at once, for what does not end: with tabs in a pipe, in columns that do not wait for others on a terminal."""
    cells = ["" if cell is None else " ".join(str(cell).split()) for cell in row]
    print(("  " if sys.stdout.isatty() else "\t").join(cells), flush=True)


def show_fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Name and value, one a line; what is not known is left out."""
    known = [(name, str(value)) for name, value in pairs if value not in (None, "")]
    if not sys.stdout.isatty():
        for name, value in known:
            print(f"{name}\t{value}")
        return
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        print(f"{name:<{width}}  {value}")


def rate(price_micro_usd_h: int | None) -> str | None:
    """``$12.34``, of an hour; None stays None."""
    return None if price_micro_usd_h is None else format_usd(price_micro_usd_h)


def ago(then_ms: int | None, now_ms: int) -> str | None:
    """``5m`` since then."""
    return None if then_ms is None else format_duration(max(0, now_ms - then_ms) / 1000)
