"""Numbers and words of the protocol at their edges: one moment before, and the moment itself."""

from dataclasses import replace

import pytest

from broker.core.errors import UnknownOutcome
from broker.core.model import EndedBy, JobState, NodeState, PlacementState
from broker.core.ports import CloudState
from broker.migration.effects import CreateNode, DeleteNode, FindNode
from broker.wire.messages import JobNote, Notice
from tests.unit.migration.scene import AWS, Scene

STATES = PlacementState


def asked(scene: Scene) -> CreateNode:
    """The one create that a pass asks for."""
    (create,) = scene.plan()
    assert isinstance(create, CreateNode)
    return create


def unknown(scene: Scene) -> tuple[str, CreateNode]:
    """A placement whose create was not answered, and the create."""
    placement = scene.intend()
    create = asked(scene)
    scene.settle(create, UnknownOutcome("no answer"))
    return placement, create


# -- deadlines --------------------------------------------------------------------------------------------------------


def test_a_deadline_is_kept_to_the_millisecond() -> None:
    scene = Scene()
    placement = scene.intend()
    create = asked(scene)
    scene.settle(create, scene.cloud(create.token))
    scene.plan()
    deadline_ms = scene.placements[placement].deadline_ms or 0
    scene.now_ms = deadline_ms - 1
    scene.plan()
    assert scene.state(placement) == STATES.BOOTING
    scene.now_ms = deadline_ms
    scene.plan()
    assert scene.state(placement) == STATES.RELEASING
    assert scene.placements[placement].reason == "still booting after 15m"
    (avoided,) = scene.avoided
    assert (avoided.offer, avoided.why, avoided.scope) == (AWS, "still booting after 15m", "zone")


def test_what_has_landed_and_is_overdue_says_nothing_of_its_pool() -> None:
    scene = Scene()
    placement = scene.intend()
    scene.ready(placement)
    scene.now_ms = scene.placements[placement].deadline_ms or 0
    scene.plan()
    assert scene.state(placement) == STATES.RELEASING
    assert scene.avoided == []


def test_a_release_that_takes_too_long_is_told_again_and_again() -> None:
    scene = Scene()
    placement = scene.running()
    scene.job = replace(scene.job, state=JobState.SUCCEEDED)
    scene.plan()
    for _ in range(2):
        before_ms = scene.placements[placement].deadline_ms or 0
        scene.now_ms = before_ms
        scene.plan()
        told = scene.events[-1]
        assert told.kind == "placement.release_overdue"
        assert (told.job_id, told.placement_id, told.project_id) == ("train-1", placement, "p")
        assert scene.placements[placement].deadline_ms == before_ms + 600_000
    assert told.data == {"lasted": "20m"}
    assert scene.state(placement) == STATES.RELEASING


# -- look-ups ---------------------------------------------------------------------------------------------------------


def test_a_token_is_resent_after_the_lag_and_not_at_it() -> None:
    scene = Scene()
    _, create = unknown(scene)
    (look,) = scene.plan()
    scene.settle(look, None)
    assert scene.after(30).plan() == [look]
    scene.now_ms += 1
    assert scene.plan() == [create]
    node = scene.nodes[create.token]
    assert (node.reason, node.create_sent_at_ms) == ("create sent again", scene.now_ms)
    assert node.gone_confirmations == 0, "the look-ups from before the resend count no more"
    assert scene.plan() == [look]


@pytest.mark.parametrize("switch", ["paused", "report_only"])
def test_nothing_is_resent_while_stopped(switch: str) -> None:
    scene = Scene()
    _, create = unknown(scene)
    scene.settle(FindNode(create.token), None)
    scene.switches[switch] = True
    assert scene.after(60).plan() == [FindNode(create.token)]


def test_a_create_that_nobody_wants_any_more_is_not_resent() -> None:
    scene = Scene()
    _, create = unknown(scene)
    scene.settle(FindNode(create.token), None)
    scene.job = replace(scene.job, state=JobState.CANCELLING)
    assert CreateNode(create.token) not in scene.after(60).plan()


def test_a_token_is_given_up_after_the_latest_request_and_not_at_it() -> None:
    scene = Scene()
    placement, create = unknown(scene)
    scene.job = replace(scene.job, state=JobState.CANCELLING)
    scene.plan()
    assert scene.state(placement) == STATES.RELEASING
    for _ in range(2):
        scene.settle(FindNode(create.token), None)
    assert scene.after(180).plan() == [FindNode(create.token)]
    scene.now_ms += 1
    scene.plan()
    assert scene.nodes[create.token].state == NodeState.GONE
    assert scene.nodes[create.token].reason == "never came to be"


def test_one_denial_gives_no_token_up() -> None:
    scene = Scene()
    _, create = unknown(scene)
    scene.job = replace(scene.job, state=JobState.CANCELLING)
    scene.plan()
    scene.settle(FindNode(create.token), None)
    assert scene.after(1000).plan() == [FindNode(create.token)]


def test_an_order_that_the_cloud_denies_is_gone() -> None:
    scene = Scene()
    placement = scene.intend()
    create = asked(scene)
    scene.settle(create, scene.cloud(create.token, CloudState.PENDING))
    look = FindNode(create.token)
    scene.settle(look, None)
    assert scene.nodes[create.token].gone_confirmations == 0, "a list may lag"
    scene.after(30).settle(look, None)
    assert scene.nodes[create.token].gone_confirmations == 0, "as long as this"
    scene.now_ms += 1
    scene.settle(look, None)
    assert scene.plan() == [look]
    scene.settle(look, None)
    scene.plan()
    assert scene.nodes[create.token].state == NodeState.GONE
    assert scene.placements[placement].reason == "the cloud no longer knows it"
    assert not scene.placements[placement].lost, "nothing was trained there"


# -- silence ----------------------------------------------------------------------------------------------------------


def test_silence_begins_after_its_bound() -> None:
    scene = Scene()
    placement = scene.running()
    (node,) = scene.nodes_of(placement)
    scene.now_ms = (node.seen_at_ms or 0) + 60_000
    assert scene.plan() == []
    scene.now_ms += 1
    assert scene.plan() == [FindNode(node.token)]
    assert scene.nodes[node.token].reason == "silent for 1m"


def test_after_a_notice_three_beats_of_silence_are_enough() -> None:
    scene = Scene()
    placement = scene.running()
    scene.beat(placement, "draining", JobNote("running", 1), notice=Notice("gcp:preempted", 30))
    scene.plan()
    (node,) = scene.nodes_of(placement)
    scene.now_ms = (node.seen_at_ms or 0) + 15_000
    assert scene.plan() == []
    scene.now_ms += 1
    assert scene.plan() == [FindNode(node.token)]
    assert scene.nodes[node.token].state == NodeState.UNREACHABLE


def test_a_run_lease_ends_after_its_bound() -> None:
    scene = Scene()
    placement = scene.running()
    (node,) = scene.nodes_of(placement)
    scene.now_ms = (node.seen_at_ms or 0) + 1_800_000
    assert scene.plan() == [FindNode(node.token)]
    assert scene.state(placement) == STATES.ACTIVE
    scene.now_ms += 1
    assert scene.plan() == [DeleteNode(node.token)]
    assert scene.placements[placement].lost
    assert scene.placements[placement].reason == "silent for longer than its run lease"
    assert scene.job.state == JobState.RECOVERING


def test_a_node_that_speaks_again_has_denied_itself_nothing() -> None:
    scene = Scene()
    placement = scene.running()
    (node,) = scene.nodes_of(placement)
    scene.now_ms += 120_000
    scene.plan()
    scene.settle(FindNode(node.token), None)
    scene.training(placement)
    scene.plan()
    again = scene.nodes[node.token]
    assert (again.state, again.reason, again.gone_confirmations) == (
        NodeState.RUNNING,
        "agent calls again",
        0,
    )


# -- the end of nodes -------------------------------------------------------------------------------------------------


def test_deletes_are_half_a_minute_apart() -> None:
    scene = Scene()
    placement = scene.running()
    scene.job = replace(scene.job, state=JobState.SUCCEEDED)
    (node,) = scene.nodes_of(placement)
    assert scene.plan() == [DeleteNode(node.token)]
    assert scene.after(29.999).plan() == [FindNode(node.token)]
    assert scene.after(0.001).plan() == [FindNode(node.token), DeleteNode(node.token)]
    assert scene.nodes[node.token].delete_sent_at_ms == scene.now_ms


def test_a_placement_is_gone_from_the_moment_its_last_node_is() -> None:
    scene = Scene()
    placement = scene.running()
    scene.job = replace(scene.job, state=JobState.SUCCEEDED)
    (node,) = scene.nodes_of(placement)
    scene.plan()
    scene.now_ms += 60_000
    for _ in range(2):
        scene.settle(FindNode(node.token), None)
    assert scene.placements[placement].gone_at_ms is None
    scene.plan()
    assert scene.placements[placement].gone_at_ms == scene.now_ms
    assert scene.placements[placement].reason == "job succeeded"


def test_denials_from_before_the_delete_do_not_count() -> None:
    scene = Scene()
    placement = scene.running()
    (node,) = scene.nodes_of(placement)
    scene.now_ms += 120_000
    scene.plan()
    scene.settle(FindNode(node.token), None)
    scene.job = replace(scene.job, state=JobState.SUCCEEDED)
    scene.plan()
    assert scene.nodes[node.token].gone_confirmations == 0


@pytest.mark.parametrize(("deleted", "by"), [(True, EndedBy.US), (False, EndedBy.NODE)])
def test_who_ended_what_the_cloud_denies(deleted: bool, by: EndedBy) -> None:
    scene = Scene()
    placement = scene.running()
    (node,) = scene.nodes_of(placement)
    if deleted:
        scene.job = replace(scene.job, state=JobState.SUCCEEDED)
        scene.plan()
    scene.now_ms += 120_000
    scene.settle(FindNode(node.token), None)
    assert scene.nodes[node.token].ended_at_ms is None
    scene.settle(FindNode(node.token), None)
    ended = scene.nodes[node.token]
    assert (ended.ended_at_ms, ended.ended_by) == (scene.now_ms, by)
    assert ended.billed_from_ms == node.billed_from_ms, "its meter is known"


@pytest.mark.parametrize(("deleted", "by"), [(True, EndedBy.US), (False, EndedBy.NODE)])
def test_who_ended_what_the_cloud_calls_terminated(deleted: bool, by: EndedBy) -> None:
    scene = Scene()
    placement = scene.running()
    (node,) = scene.nodes_of(placement)
    if deleted:
        scene.job = replace(scene.job, state=JobState.SUCCEEDED)
        scene.plan()
    scene.settle(FindNode(node.token), scene.cloud(node.token, CloudState.TERMINATED))
    ended = scene.nodes[node.token]
    assert (ended.state, ended.ended_at_ms, ended.ended_by) == (NodeState.GONE, scene.now_ms, by)
    assert ended.reason == ("job succeeded" if deleted else f"ended by {by}")


def test_an_order_denied_before_it_ran_is_billed_from_its_create_on() -> None:
    scene = Scene()
    placement = scene.intend()
    create = asked(scene)
    sent_ms = scene.now_ms
    scene.settle(create, scene.cloud(create.token, CloudState.PENDING))
    scene.now_ms += 31_000
    for _ in range(2):
        scene.settle(FindNode(create.token), None)
    assert scene.nodes_of(placement)[0].billed_from_ms == sent_ms


def test_what_the_cloud_has_said_once_is_not_forgotten() -> None:
    scene = Scene()
    placement = scene.intend()
    create = asked(scene)
    scene.settle(create, scene.cloud(create.token, address="10.0.0.1", billed_from_ms=5))
    scene.settle(FindNode(create.token), scene.cloud(create.token))
    (node,) = scene.nodes_of(placement)
    assert (node.address, node.billed_from_ms) == ("10.0.0.1", 5)
