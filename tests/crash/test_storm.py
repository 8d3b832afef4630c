"""A short storm of deaths drawn by a seed; `make crash` is the long one."""

from pathlib import Path

import pytest

from broker.wire.head import Head, Link
from tests.crash.__main__ import crash
from tests.crash.heads import steps_back
from tests.crash.schedule import MOMENTS, Victim, draw

SEED = 9
KILLS = 4


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_every_job_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    assert crash(tmp_path, SEED, KILLS, print) == []


def test_a_seed_says_everything() -> None:
    assert draw(7, 50) == draw(7, 50)
    assert draw(7, 50) != draw(8, 50)
    assert {kill.victim for kill in draw(SEED, KILLS)} == set(Victim), (
        "of each kind one, however few there are"
    )
    assert {kill.moment for kill in draw(7, 50)} == {"", *MOMENTS}


def commit(generation: int, seq: int, written_in: int, sha: str = "a", before: Head | None = None) -> Head:
    key = f"manifests/g{written_in:06d}-s{seq:08d}-{sha * 64}.json"
    return Head(generation, seq, "nonce", key, sha * 64, before.link if before else Link("", ""))


def test_the_watch_sees_a_head_that_goes_back() -> None:
    """What nobody has ever seen happen has to be noticed all the same."""
    first = commit(1, 1, 1)
    second = commit(1, 2, 1, before=first)
    fenced = commit(2, 2, 1, before=first)
    assert [*steps_back(None, first), *steps_back(first, second), *steps_back(second, fenced)] == []
    assert steps_back(fenced, commit(3, 9, 3)) == [], "versions in between were missed"
    for before, now, text in (
        (second, None, "vanished"),
        (fenced, second, "generation 2 was followed by 1"),
        (second, first, "commit 2 was followed by 1"),
        (second, commit(1, 2, 1, "b", first), "is manifests"),
        (second, commit(1, 3, 1, before=first), "does not follow"),
        (fenced, commit(2, 3, 1, before=fenced), "was committed after generation 2"),
        (first, commit(1, 2, 2, before=first), "has not reached"),
    ):
        assert any(text in line for line in steps_back(before, now)), (before, now)
