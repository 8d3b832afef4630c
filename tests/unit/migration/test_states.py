"""The drawings are the tables, and the tables are whole."""

import pytest

from broker.core.model import JobState, NodeState, PlacementState
from broker.migration.states import JOB_EDGES, NODE_EDGES, PLACEMENT_EDGES, check_edge


@pytest.mark.parametrize(
    ("edges", "kind"), [(JOB_EDGES, JobState), (PLACEMENT_EDGES, PlacementState), (NODE_EDGES, NodeState)]
)
def test_every_state_is_drawn_and_every_end_can_be_reached(edges, kind):
    assert set(edges) == set(kind)
    for start in kind:
        reached, frontier = {start}, [start]
        while frontier:
            for target in edges[frontier.pop()] - reached:
                reached.add(target)
                frontier.append(target)
        assert any(not edges[state] for state in reached), f"no way out of {start}"


def test_final_job_states_have_no_way_on():
    assert all(not JOB_EDGES[state] for state in JobState if state.final)


def test_any_open_placement_can_be_released():
    for state in PlacementState:
        if state not in (PlacementState.RELEASING, PlacementState.GONE):
            assert PlacementState.RELEASING in PLACEMENT_EDGES[state]


def test_an_edge_that_is_not_drawn_is_a_bug():
    check_edge(NodeState.RUNNING, NodeState.RUNNING)
    with pytest.raises(AssertionError, match="no edge gone -> running"):
        check_edge(NodeState.GONE, NodeState.RUNNING)
