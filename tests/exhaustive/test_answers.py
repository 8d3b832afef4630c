"""What an answer changes, and what it no longer changes when it comes late."""

from dataclasses import replace

import pytest

from broker.core.errors import Denied, Invalid, OutOfCapacity, OutOfQuota, ProviderError, UnknownOutcome
from broker.core.model import JobState, NodeState, Purpose
from broker.core.ports import CloudState
from broker.migration.effects import CreateNode, FindNode
from broker.migration.view import STORE_AWAITED
from broker.wire.head import head_key
from tests.exhaustive.harness import Harness
from tests.exhaustive.scenarios import Scenario, Step, at_least, take_back, trains
from tests.exhaustive.test_bounds import STATES, asked, unknown
from tests.exhaustive.test_shell import begun, failure, number_of_the_fence, one_pass, until
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


# -- fences, through the shell ----------------------------------------------------------------------------------------


def fence_fails(name: str) -> Harness:
    """A job that is ready, in the moment in which its first fence has failed."""
    return until(begun({number_of_the_fence(): failure("fence", name)}), STATES.READY)


@pytest.mark.parametrize(
    ("name", "said"),
    [("StoreError", "503"), ("Corrupt", "HEAD is unreadable"), ("TimeoutError", "no answer in time")],
)
def test_a_job_says_why_its_fence_failed(name: str, said: str) -> None:
    harness = fence_fails(name)
    (placement,) = harness.placements()
    assert (harness.job.reason, placement.reason) == (f"{STORE_AWAITED}: {said}",) * 2


def test_a_fence_that_failed_is_not_tried_again_in_the_same_moment() -> None:
    """Its failure asks for another pass at once: a store that refuses would be asked as fast as it answers."""
    harness = fence_fails("StoreError")
    before = len(harness.calls)
    assert one_pass(harness) == 0, "nothing has changed, and nothing was started"
    assert len(harness.calls) == before


def test_a_head_that_is_gone_is_not_made_anew_for_a_job_that_had_one() -> None:
    """It would name no commit: the job would start from nothing, and what it has saved would be unreachable."""

    def delete_head(harness: Harness) -> None:
        harness.objects.delete(head_key(harness.checkpoints.prefix(harness.job_id)))

    lost = Step("taken back", trains, take_back(0))
    gone = Step("HEAD is deleted", at_least(STATES.BOOTING, Purpose.RECOVER), delete_head)
    harness = until(Harness(Scenario("loses its place, and its HEAD", (lost, gone)), {}), STATES.READY)
    key = head_key(harness.checkpoints.prefix(harness.job_id))
    for _ in range(3):  # the fence is repeated, and a repetition makes none either
        placement = harness.placements()[-1]
        assert (placement.purpose, placement.state) == (Purpose.RECOVER, STATES.READY)
        said = f"{STORE_AWAITED}: {key}: it is gone, and this job had one"
        assert (harness.job.reason, placement.reason) == (said, said)
        assert key not in harness.objects.content
        harness.turn()


def test_the_head_of_another_job_is_not_missed_at_a_first_fence() -> None:
    harness = until(begun(), STATES.PROBING)
    (placement,) = harness.placements()
    harness.disk.jobs["other"] = replace(harness.job, id="other", state=JobState.SUCCEEDED)
    harness.disk.placements["other-p1"] = replace(
        placement, id="other-p1", job_id="other", state=STATES.GONE, generation=1, fenced=True
    )
    for _ in range(5):
        harness.turn()
    started = harness.disk.placements[placement.id]
    assert (started.state, started.fenced) == (STATES.ACTIVE, True), started.reason
