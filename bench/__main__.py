"""``make bench``: every comparison in one run, as a Markdown table and as ``bench/results.json``."""

import argparse
import json
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench import cheapest, filters, history, ingest
from bench.measure import Row, Skipped, load, machine, say, table

RESULTS = Path(__file__).parent / "results.json"


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    offers: int
    filters: int
    points: int
    asked: int
    repetitions: int


FULL = Size(offers=100_000, filters=100, points=10_000_000, asked=500, repetitions=5)
QUICK = Size(offers=5_000, filters=100, points=100_000, asked=100, repetitions=3)


def main() -> None:
    """Run it."""
    given = parser().parse_args()
    size = QUICK if given.quick else FULL
    comparisons: dict[str, Callable[[], list[Row]]] = {
        "filters": lambda: filters.compare(size.offers, size.filters, size.repetitions, given.seed),
        "cheapest": lambda: cheapest.compare(given.sky_catalogs, size.repetitions),
        "ingest": lambda: ingest.compare(size.offers, size.repetitions, given.seed),
        "history": lambda: history.compare(size.points, size.asked, size.repetitions, given.seed),
    }
    begun = load()
    rows: list[Row] = []
    skipped: dict[str, str] = {}
    wrong: dict[str, str] = {}
    for name, compare in comparisons.items():
        if given.only in (None, name):
            say(f"{name}:")
            try:
                rows += compare()
            except Skipped as reason:
                skipped[name] = str(reason)
                say(f"  not measured: {reason}")
            except AssertionError as difference:
                wrong[name] = str(difference)
                say(f"  WRONG: {difference}")
    about = {
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{machine()}, SQLite {sqlite3.sqlite_version}",
        "load": f"{begun} before, {load()} after",
        "seed": given.seed,
        "quick": given.quick,
    }
    found = {"rows": [asdict(row) | {"ratio": row.ratio} for row in rows]}
    RESULTS.write_text(json.dumps(about | found | {"not_measured": skipped, "wrong": wrong}, indent=1) + "\n")
    print(f"{about['at']}; {about['machine']}; load {about['load']}; medians of CPU time\n")
    print(table(rows))
    for name, reason in skipped.items():
        print(f"\nNot measured: {name}. {reason}")
    for name, difference in wrong.items():
        print(f"\nThe two sides of {name} differ: {difference}")
    if wrong:
        sys.exit(1)


def parser() -> argparse.ArgumentParser:
    """Its options."""
    options = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    options.add_argument(
        "--quick", action="store_true", help="small sizes: whether it works, not how fast it is"
    )
    options.add_argument(
        "--only", choices=("filters", "cheapest", "ingest", "history"), help="one comparison"
    )
    options.add_argument("--sky-catalogs", type=Path, help="tarball of SkyPilot's folder catalogs/v8")
    options.add_argument("--seed", type=int, default=7)
    return options


if __name__ == "__main__":
    main()
