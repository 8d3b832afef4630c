"""``python -m tests.crash.armed FOLDER serve --config FILE``: `broker serve` that dies where it is told to.

FOLDER holds a file for each moment at which it shall die next, such as ``CreateNode after``. The file goes first, so that
the daemon that is started then gets past it.
"""

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from broker.cli.app import main
from broker.migration.effects import Effect
from broker.migration.reconcile import Reconciler
from tests.process.serve_and_die import install

# Between writing the rows of a pass and committing them.
INSIDE = "Save inside"


def die_if_armed(folder: Path, moment: str) -> None:
    """End here, as by a power cut, if that is the moment."""
    try:
        (folder / moment).unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def around_effects(folder: Path, moment: str, effect: Effect) -> None:
    """``before`` an effect whose intent is committed, or ``after`` it, its result not yet committed."""
    die_if_armed(folder, f"{type(effect).__name__} {moment}")


def inside_saves(folder: Path) -> None:
    """Die with rows written and nothing committed."""
    save = Reconciler._save

    def dying_save(self: Reconciler, tx: Any, plan: Any) -> None:
        save(self, tx, plan)
        if plan.changed:
            die_if_armed(folder, INSIDE)

    Reconciler._save = dying_save  # type: ignore[method-assign]


if __name__ == "__main__":
    moments = Path(sys.argv[1])
    install(partial(around_effects, moments))
    inside_saves(moments)
    sys.exit(main(sys.argv[2:]))
