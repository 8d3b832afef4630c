"""The log of a back-test: what was launched and stopped, for others to replay and to score.

CSV: ``window,ts,action,market,placement``; windows count from 0, ``ts`` is UTC, action ``launch`` or ``stop``, market
``spot`` or ``on_demand``. A launch replaces whatever is held. A row is written when what is held changes, so a loss that
is not replaced at once is a ``stop`` at the tick of the loss, and the end of the work is one too.
"""

import csv
from collections.abc import Iterable
from pathlib import Path

from broker.backtest.grid import Window
from broker.backtest.play import Run
from broker.core.errors import UsageError
from broker.core.time import to_iso

_COLUMNS = ("window", "ts", "action", "market", "placement")


def write_log(path: Path, runs: Iterable[tuple[Window, Run]]) -> None:
    """One policy's runs.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(_COLUMNS)
            for window, run in runs:
                for act in run.acts:
                    placement, market = act.option.key.rsplit("/", 1)
                    at = to_iso(window.grid.at_ms(window.start + act.tick))
                    writer.writerow((window.number, at, act.action, market, placement))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
