"""Many seeds, and many mutants, in processes of their own."""

import gc
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Hunt:
    """What became of one mutant.

    Attributes:
        tried: Seeds that were run, the last of which is `caught`, if any was.
    """

    name: str
    tried: int
    took_s: float
    caught: Result | None


def hunt(task: tuple[str, int]) -> Hunt:
    """Run a mutant's own seeds, and then those below a number, until one breaks something."""
    name, seeds = task
    mutant, began_s, tried = MUTANTS[name], time.monotonic(), 0
    result = None
    with mutant.applied():
        for seed in (*mutant.seeds, *(n for n in range(seeds) if n not in mutant.seeds)):
            tried += 1
            result = run_seed(mutant.settings(seed))
            if not result.ok:
                break
    return Hunt(name, tried, time.monotonic() - began_s, None if result is None or result.ok else result)


def hunts(names: list[str], seeds: int, workers: int) -> Iterator[Hunt]:
    """As they come."""
    with multiprocessing.get_context("spawn").Pool(workers, _begin) as pool:
        yield from pool.imap_unordered(hunt, [(name, seeds) for name in names])


def _begin() -> None:
    """Modules live as long as the process, and what a seed makes is many and small: a tenth of the time was garbage."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def results(tasks: list[Task], workers: int) -> Iterator[Result]:
    """As they come. A process is left after a hundred seeds, and its memory with it."""
    with multiprocessing.get_context("spawn").Pool(workers, _begin, maxtasksperchild=100) as pool:
        yield from pool.imap_unordered(one, tasks)
