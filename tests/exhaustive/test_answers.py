"""What an answer changes, and what it no longer changes when it comes late."""

from dataclasses import replace

import pytest

from broker.core.errors import Denied, Invalid, OutOfCapacity, OutOfQuota, ProviderError, UnknownOutcome
from broker.core.model import JobState, NodeState
from broker.core.ports import CloudState
from broker.migration.effects import CreateNode, FindNode
from tests.exhaustive.test_bounds import STATES, asked, unknown
from tests.unit.migration.scene import Scene

# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "scope", "reason"),
    [
        (OutOfCapacity("no p5", "zone"), "zone", "out of capacity: no p5"),
        (OutOfQuota("8 vCPU", "region"), "region", "out of quota: 8 vCPU"),
        (Denied("no"), "cloud", "denied: no"),
        (Invalid("no such image"), "zone", "invalid: no such image"),
    ],
)
def test_how_far_a_refusal_reaches(error: ProviderError, scope: str, reason: str) -> None:
    scene = Scene()
    placement = scene.intend()
    create = asked(scene)
    scene.settle(create, error)
    assert scene.nodes[create.token].reason == f"refused: {error}"
    assert scene.placements[placement].reason == reason
    assert [(a.scope, a.why) for a in scene.avoided] == [(scope, str(error))]


def test_a_refusal_that_comes_late_changes_no_reason() -> None:
    scene = Scene()
    placement = scene.intend()
    create = asked(scene)
    scene.job = replace(scene.job, state=JobState.CANCELLING)
    scene.plan()
    scene.settle(create, OutOfCapacity("no p5"))
    assert scene.placements[placement].reason == "cancelled"
    assert scene.nodes[create.token].state == NodeState.GONE


def test_an_unanswered_create_says_so() -> None:
    scene = Scene()
    _, create = unknown(scene)
    assert scene.nodes[create.token].reason == "create unanswered: no answer"


def test_a_refusal_of_a_node_that_was_found_is_no_refusal() -> None:
    scene = Scene()
    placement = scene.intend()
    create = asked(scene)
    scene.settle(FindNode(create.token), scene.cloud(create.token))
    scene.settle(create, OutOfCapacity("no p5"))
    assert scene.nodes[create.token].state == NodeState.RUNNING
    assert scene.state(placement) == STATES.INTENDED


# -- outcomes that come late ------------------------------------------------------------------------------------------


def waiting_to_be_sent(scene: Scene) -> tuple[str, CreateNode]:
    """A placement that was intended long before its create was sent: the broker was paused."""
    placement = scene.intend()
    scene.switches["paused"] = True
    scene.after(25).plan()
    scene.switches["paused"] = False
    return placement, asked(scene)


def test_the_lag_of_a_list_counts_from_the_create_and_not_from_the_row() -> None:
    scene = Scene()
    _, create = waiting_to_be_sent(scene)
    scene.settle(create, UnknownOutcome("no answer"))
    scene.settle(FindNode(create.token), None)
    assert scene.after(30).plan() == [FindNode(create.token)]
    scene.now_ms += 1
    assert scene.plan() == [create]


def test_a_denial_right_after_a_late_create_is_a_list_that_lags() -> None:
    scene = Scene()
    _, create = waiting_to_be_sent(scene)
    scene.settle(create, scene.cloud(create.token, CloudState.PENDING))
    scene.after(30).settle(FindNode(create.token), None)
    assert scene.nodes[create.token].gone_confirmations == 0


def test_a_node_that_the_cloud_denies_while_it_is_silent_ended_by_itself() -> None:
    scene = Scene()
    placement = scene.running()
    (node,) = scene.nodes_of(placement)
    for _ in range(2):
        scene.settle(FindNode(node.token), scene.cloud(node.token))
        scene.now_ms += 120_000
        scene.plan()
    for _ in range(2):
        scene.settle(FindNode(node.token), None)
    scene.plan()
    assert scene.nodes[node.token].reason == "ended without our asking"
    assert scene.placements[placement].reason == "ended without our asking"
    assert scene.placements[placement].lost
    assert scene.job.state == JobState.RECOVERING


@pytest.mark.parametrize("state", [JobState.CANCELLING, JobState.SUCCEEDED])
def test_a_fence_that_is_answered_after_the_job_is_over_starts_nothing(state: JobState) -> None:
    scene = Scene()
    placement = scene.intend()
    scene.ready(placement)
    (fence,) = scene.plan()
    scene.job = replace(scene.job, state=state)
    scene.settle(fence)
    assert (scene.state(placement), scene.job.state) == (STATES.READY, state)


def test_a_fence_that_is_answered_after_its_placement_was_released_starts_nothing() -> None:
    scene = Scene()
    placement = scene.intend()
    scene.ready(placement)
    (fence,) = scene.plan()
    scene.now_ms = scene.placements[placement].deadline_ms or 0
    scene.plan()
    scene.settle(fence)
    assert (scene.state(placement), scene.job.active_placement_id) == (STATES.RELEASING, None)
    scene.release()
    assert scene.state(placement) == STATES.GONE
    scene.settle(fence)
    assert (scene.state(placement), scene.job.active_placement_id) == (STATES.GONE, None)
