"""Many seeds in processes of their own: a mutant must not outlive its run, and two cores are two cores."""

import gc
import multiprocessing
from collections.abc import Iterator
from contextlib import nullcontext

from tests.sim.mutants import MUTANTS
from tests.sim.run import Result, run_seed
from tests.sim.settings import Settings

# What to run, and the mutant it is run with.
Task = tuple[Settings, str | None]


def one(task: Task) -> Result:
    """One seed, in whatever process this is."""
    settings, mutant = task
    with MUTANTS[mutant].applied() if mutant else nullcontext():
        return run_seed(settings)


def _begin() -> None:
    """Modules live as long as the process, and what a seed makes is many and small: a tenth of the time was garbage."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def results(tasks: list[Task], workers: int) -> Iterator[Result]:
    """As they come."""
    with multiprocessing.get_context("spawn").Pool(workers, _begin) as pool:
        yield from pool.imap_unordered(one, tasks)
