"""A failing seed, made smaller: fewer kinds of faults and a shorter history that break the same rule."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.sim.faults import Chaos, Kind
from tests.sim.run import Result, run_seed


@dataclass(frozen=True)
class Shrunk:
    """What is left.

    Attributes:
        kinds: The faults that it takes.
        result: Of the run with only these.
    """

    kinds: frozenset[Kind]
    result: Result


def shrink(failed: Result, tell: Callable[[str], None] = lambda text: None) -> Shrunk:
    """Leave out whatever is not needed to break the same rule; halves first, then one by one."""
    given = failed.settings
    best, without = failed, frozenset(Kind) - Chaos(given.seed, given.without, given.also, given.eager).on
    hours = given.hours if failed.rule.startswith("L") else min(given.hours, _hours_until(failed))

    def still(candidate: frozenset[Kind]) -> bool:
        nonlocal best, without
        result = run_seed(replace(given, hours=hours, without=candidate))
        if result.rule != failed.rule:
            return False
        best, without = result, candidate
        tell(f"{len(Kind) - len(candidate)} kinds still break {failed.rule!r}")
        return True

    kinds = sorted(frozenset(Kind) - without)
    size = len(kinds) // 2
    while size >= 1:
        for start in range(0, len(kinds), size):
            part = frozenset(kinds[start : start + size]) - without
            if part:
                still(without | part)
        size //= 2
    return Shrunk(frozenset(Kind) - without, best)


def _hours_until(failed: Result) -> float:
    """Where it broke while faults came, later ones are not needed."""
    return max(0.05, failed.simulated_s / 3600 + 0.01)
