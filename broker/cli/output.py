"""How answers look: a table for eyes, tab-separated values for pipes, JSON for programs.

On a terminal: a table, ages in words. Elsewhere: one line a row, tabs between, no header, so that ``cut -f1`` works.
``--json``: exactly what the API said. Colour only on a terminal and without ``NO_COLOR``.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from broker.core.money import format_usd
from broker.core.time import format_duration

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


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str = "nothing") -> None:
    """Rows under `columns`; `empty` is said on a terminal when there are none."""
    lines = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for line in lines:
            print("\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in line))
        return
    if not lines:
        say(empty)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for line in lines:
        table.add_row(*(Text(cell) for cell in line))
    Console().print(table)


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
