"""The daemon dies at every effect, at every pair of effects and at every moment between two; the end is the same.

What "the end" is, is in `checks.at_the_end`: the job's state, one machine a token, nothing billed, a ledger that is the
bill, commits that never sink, HEAD at the job's generation, drawn edges only, a reason in every row.
"""

import pytest

from tests.exhaustive.cases import broken
from tests.exhaustive.scenarios import SCENARIOS

LIVES = pytest.mark.parametrize("name", SCENARIOS)
SHORT = pytest.mark.parametrize("name", ["place", "move"])


def told(name: str, mode: str, sweep: bool = False, whole: bool = False) -> None:
    """Run all cases; the first that breaks tells its story, the others their names."""
    found = broken(SCENARIOS[name], mode, sweep, whole)
    others = "\n".join(error.where for error in found[1:20])
    assert not found, f"{len(found)} cases broke; the first one:\n{found[0]}\nthe others:\n{others}"


@LIVES
def test_before_and_after_every_effect(name: str) -> None:
    told(name, "effects")


@LIVES
def test_between_intents_and_effects(name: str) -> None:
    told(name, "points")


@SHORT
def test_at_every_pair_of_effects(name: str) -> None:
    told(name, "pairs")


@pytest.mark.parametrize("name", ["gang", "gang loses a node", "cancel moving, drains"])
def test_with_all_effects_of_a_pass_under_way(name: str) -> None:
    told(name, "together")


@SHORT
def test_and_nobody_starts_it_for_a_while(name: str) -> None:
    told(name, "outages")


@LIVES
def test_while_the_collector_sweeps(name: str) -> None:
    told(name, "effects", sweep=True)


@pytest.mark.slow
@LIVES
@pytest.mark.parametrize("mode", ["points", "pairs", "outages"])
def test_everything_else_while_the_collector_sweeps(name: str, mode: str) -> None:
    told(name, mode, sweep=True)


@pytest.mark.slow
@LIVES
@pytest.mark.parametrize("mode", ["pairs", "mixed", "outages", "together"])
def test_everything_else(name: str, mode: str) -> None:
    told(name, mode)


@pytest.mark.slow
@LIVES
@pytest.mark.parametrize("mode", ["effects", "points", "twice"])
def test_without_leaving_a_run_where_it_has_rejoined(name: str, mode: str) -> None:
    told(name, mode, whole=True)
