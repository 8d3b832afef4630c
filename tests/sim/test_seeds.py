"""Sixty short seeds with every run of the tests, some whole hours in the slow ones; thousands are run by `make sim`."""

import pytest

from tests.sim.history import Violation
from tests.sim.run import run_seed
from tests.sim.settings import Settings

QUICK_HOURS = 0.25


@pytest.mark.parametrize("seed", range(1000, 1060))
def test_a_seed_holds_every_invariant(seed):
    result = run_seed(Settings(seed, QUICK_HOURS))
    assert result.ok, f"{result.text}\nmake sim-replay SEED={seed} HOURS={QUICK_HOURS}\n{result.cause}"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(20))
def test_an_hour_of_a_seed_holds_every_invariant(seed):
    result = run_seed(Settings(seed))
    assert result.ok, f"{result.text}\nmake sim-replay SEED={seed}\n{result.cause}"


def test_a_violation_is_kept_when_the_code_under_test_swallows_it(tmp_path):
    from tests.sim.stand_ins import simulation

    with simulation(Settings(1, 0.1)) as sim:
        with pytest.raises(Violation):
            sim.violate("I0", "first")
        with pytest.raises(Violation):
            sim.violate("I0", "second")
        assert str(sim.violation) == "I0: first"
