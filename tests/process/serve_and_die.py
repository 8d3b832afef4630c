"""``serve_and_die.py FOLDER serve --config FILE``: `broker serve` that kills itself around what it does outside.

Twice for every create, delete and fence, and twice for all look-ups together: once when the intent is committed and
nothing is done yet, and once when it is done and its result not yet committed. A file in FOLDER remembers each death, so
that the daemon that is started next gets past it.
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from broker.checkpoint.commits import CheckpointStore
from broker.cli.app import main
from broker.migration.effects import Effect, Fence, FindNode
from broker.migration.reconcile import Reconciler


def die_once(folder: Path, moment: str, effect: Effect) -> None:
    """End here, as by a power cut, unless we have already ended here once."""
    match effect:
        case FindNode():
            whose = "any"
        case Fence():
            whose = f"{effect.job_id}-{effect.generation}"
        case _:
            whose = effect.token
    mark = folder / f"{type(effect).__name__} {moment} {whose}"
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def install(die: Callable[[str, Effect], None]) -> None:
    """Call `die` with ``before`` and ``after`` around every effect."""
    perform, call, fence = Reconciler._perform, Reconciler._call, CheckpointStore.fence

    async def dying_perform(self: Reconciler, effect: Effect) -> None:
        die("before", effect)
        await perform(self, effect)

    async def dying_call(self: Reconciler, effect: Any, *more: Any) -> Any:
        outcome = await call(self, effect, *more)
        die("after", effect)
        return outcome

    def dying_fence(self: CheckpointStore, job_id: str, generation: int, *more: Any) -> Any:
        head = fence(self, job_id, generation, *more)
        die("after", Fence(job_id, "", generation))
        return head

    Reconciler._perform = dying_perform  # type: ignore[method-assign]
    Reconciler._call = dying_call  # type: ignore[method-assign]
    CheckpointStore.fence = dying_fence  # type: ignore[method-assign]


if __name__ == "__main__":
    install(partial(die_once, Path(sys.argv[1])))
    sys.exit(main(sys.argv[2:]))
