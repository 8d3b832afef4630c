"""The lives themselves: each goes where it is meant to, together they walk every edge, and a copy is as good as a run."""

import pytest

from broker.migration.states import JOB_EDGES, NODE_EDGES, PLACEMENT_EDGES
from tests.exhaustive.cases import calm, effects
from tests.exhaustive.harness import run
from tests.exhaustive.mischief import Kill, Mischief
from tests.exhaustive.scenarios import SCENARIOS


@pytest.mark.parametrize("sweep", [False, True])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_calm_life_reaches_what_it_is_about(name: str, sweep: bool) -> None:
    end = calm(SCENARIOS[name], sweep).end
    assert SCENARIOS[name].reached(end)


@pytest.mark.parametrize("name", ["move", "gang"])
def test_a_copy_goes_on_as_the_run_would_have(name: str) -> None:
    recorded = calm(SCENARIOS[name], False)
    for _, mischief in list(effects(recorded))[::7]:
        whole = run(SCENARIOS[name], mischief)
        part = recorded.struck(mischief, whole=True)
        assert part.disk_now().events == whole.disk_now().events
        assert list(part.calls.values()) == list(whole.calls.values())
        assert part.world.log() == whole.world.log()


def test_the_original_is_untouched_by_its_copies() -> None:
    recorded = calm(SCENARIOS["move"], False)
    case: Mischief = {8: Kill(deed=True)}
    first, second = (recorded.struck(case, whole=True).disk_now().events for _ in range(2))
    assert first == second


# Drawn, and never taken: by the time a placement can fail to start, its job is no longer queued; a job that starts
# runs from the moment of its fence on; a node whose create is unanswered is found before it is released.
UNTAKEN = {
    "job queued -> failed",
    "job starting -> recovering",
    "node unknown -> releasing",
}


def test_together_they_walk_every_edge() -> None:
    drawn = {
        f"{machine} {before} -> {after}"
        for machine, edges in (("job", JOB_EDGES), ("placement", PLACEMENT_EDGES), ("node", NODE_EDGES))
        for before, all_after in edges.items()
        for after in all_after
    }
    walked = {
        f"{machine} {event.data['before']} -> {after}"
        for scenario in SCENARIOS.values()
        for event in calm(scenario, False).end.disk_now().events
        for machine, _, after in [event.kind.partition(".")]
        if "before" in event.data
    }
    assert drawn - walked == UNTAKEN
    assert walked <= drawn
