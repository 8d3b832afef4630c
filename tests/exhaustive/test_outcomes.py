"""Every effect is done twice, fails once in every way there is, and is answered late; the end is the same."""

import pytest

from tests.exhaustive.test_crashes import LIVES, SHORT, told


@LIVES
def test_every_effect_twice(name: str) -> None:
    told(name, "twice")


@LIVES
def test_every_effect_fails_once(name: str) -> None:
    told(name, "failures")


@SHORT
def test_every_effect_fails_in_every_way(name: str) -> None:
    told(name, "every_failure")


@LIVES
def test_a_latch_set_by_a_lie_and_cleared(name: str) -> None:
    told(name, "ahead")


@SHORT
def test_late_replies(name: str) -> None:
    told(name, "replies")


@SHORT
def test_lists_that_fail_or_are_old(name: str) -> None:
    told(name, "listings", sweep=True)


@pytest.mark.slow
@LIVES
@pytest.mark.parametrize("mode", ["every_failure", "replies"])
def test_everything_else(name: str, mode: str) -> None:
    told(name, mode)


@pytest.mark.slow
@LIVES
@pytest.mark.parametrize("mode", ["twice", "every_failure", "replies", "listings"])
def test_while_the_collector_sweeps(name: str, mode: str) -> None:
    told(name, mode, sweep=True)
