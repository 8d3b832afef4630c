"""One pass over the rows: the rules of the protocol, each as somebody would miss it."""

from dataclasses import replace

import pytest

from broker.core.errors import OutOfCapacity, UnknownOutcome
from broker.core.model import Commit, Cut, EndedBy, JobState, NodeState, PlacementState, Purpose
from broker.core.ports import CloudState
from broker.migration.effects import CreateNode, DeleteNode, Fence, FindNode
from broker.migration.plan import plan_pass
from broker.policy.schema import OnInconclusive
from broker.wire.messages import CommitNote, JobNote, Notice, RestoreNote

from .scene import AWS, GCP, Scene


def kinds(effects):
    return [type(effect) for effect in effects]


def test_intent_is_in_the_row_before_the_create_is_sent():
    scene = Scene()
    placement = scene.intend()
    assert kinds(scene.plan()) == [CreateNode]
    (node,) = scene.nodes_of(placement)
    assert (node.state, node.create_sent_at_ms) == (NodeState.UNKNOWN, scene.now_ms)


def test_a_lost_reply_is_looked_up_and_the_same_token_resent_only_when_the_cloud_denies_it():
    scene = Scene()
    placement = scene.intend()
    (create,) = scene.plan()
    scene.settle(create, UnknownOutcome("no answer"))
    (look,) = scene.after(1).plan()
    assert look == FindNode(create.token)
    scene.settle(look, None)
    assert kinds(scene.after(5).plan()) == [FindNode], "too early: the list may lag"
    assert scene.after(60).plan() == [create], "the same token, never a new one"
    scene.settle(create, scene.cloud(create.token, billed_from_ms=5))
    assert scene.nodes_of(placement)[0].billed_from_ms == 5


def test_a_nodes_events_name_it():
    scene = Scene()
    scene.intend()
    (create,) = scene.plan()
    scene.settle(create, scene.cloud(create.token))
    events = [event for event in scene.events if event.kind.startswith("node.")]
    assert [(event.kind, event.node_token) for event in events] == [
        ("node.unknown", create.token),
        ("node.running", create.token),
    ]


def test_a_found_node_is_adopted():
    scene = Scene()
    placement = scene.intend()
    (create,) = scene.plan()
    scene.settle(create, UnknownOutcome("no answer"))
    (look,) = scene.after(1).plan()
    scene.settle(look, scene.cloud(create.token))
    assert CreateNode not in kinds(scene.after(90).plan())
    assert scene.state(placement) == PlacementState.BOOTING


def test_a_node_that_is_taken_back_before_it_calls_is_noticed():
    scene = Scene()
    placement = scene.intend()
    (create,) = scene.plan()
    scene.settle(create, scene.cloud(create.token))
    (look,) = scene.plan()
    scene.settle(
        look, scene.cloud(create.token, CloudState.TERMINATED, ended_at_ms=7, ended_by=EndedBy.CLOUD)
    )
    scene.plan()
    assert scene.state(placement) in (PlacementState.RELEASING, PlacementState.GONE)
    assert scene.nodes[create.token].ended_by == EndedBy.CLOUD


def test_an_empty_pool_ends_the_landing_and_is_remembered():
    scene = Scene()
    placement = scene.intend()
    (create,) = scene.plan()
    scene.settle(create, OutOfCapacity("no p5 here", "region"))
    assert scene.state(placement) == PlacementState.RELEASING
    assert scene.nodes[create.token].state == NodeState.GONE
    (avoided,) = scene.avoided
    assert avoided.covers(replace(AWS, zone="use1-az1"))
    assert not avoided.covers(GCP)
    assert scene.plan() == []
    assert scene.state(placement) == PlacementState.GONE


def test_landing_ends_ready_only_after_probe_and_preparation():
    scene = Scene()
    placement = scene.intend()
    scene.ready(placement)
    assert scene.state(placement) == PlacementState.READY
    assert scene.placements[placement].ready_at_ms == scene.now_ms


@pytest.mark.parametrize("verdict", ["reject", "inconclusive"])
def test_a_refused_node_is_released_and_the_old_placement_never_stops(verdict):
    scene = Scene()
    old = scene.running()
    scene.on_inconclusive = OnInconclusive.REJECT
    new = scene.intend(GCP, Purpose.MOVE)
    for effect in scene.plan():
        scene.settle(effect, scene.cloud(effect.token))
    scene.plan()
    scene.beat(new, "idle")
    scene.plan()
    scene.beat(new, "idle", probe={"verdict": verdict, "reasons": ["7 of 8 GPUs"]})
    scene.plan()
    assert scene.state(new) == PlacementState.RELEASING
    assert "7 of 8 GPUs" in scene.placements[new].reason
    assert scene.state(old) == PlacementState.ACTIVE
    assert scene.job.state == JobState.RUNNING
    assert scene.avoided[-1].offer == GCP


def test_the_generation_is_in_both_rows_before_head_is_swapped():
    scene = Scene()
    placement = scene.intend()
    scene.ready(placement)
    (fence,) = scene.plan()
    assert fence == Fence("train-1", placement, 1)
    assert scene.job.generation == scene.placements[placement].generation == 1
    assert scene.state(placement) == PlacementState.READY
    assert scene.plan() == [fence], "a crash before the result repeats the same fence"
    scene.settle(fence)
    assert scene.state(placement) == PlacementState.ACTIVE
    assert scene.job.active_placement_id == placement


def test_final_cut_saves_fences_then_starts():
    scene = Scene()
    old = scene.running()
    new = scene.intend(GCP, Purpose.MOVE)
    scene.ready(new)
    assert scene.job.state == JobState.MOVING
    assert scene.plan() == [], "the old one has been asked to save; no fence yet"
    assert (scene.state(old), scene.placements[old].cut) == (PlacementState.DRAINING, Cut.FINAL)
    scene.beat(old, "stopped", JobNote("stopped", 1, saved=True))
    scene.plan()
    assert scene.job.state == JobState.MOVING, "nobody has lost anything"
    fence = next(e for e in scene.plan() if isinstance(e, Fence))
    assert fence.generation == 2
    assert scene.state(old) == PlacementState.RELEASING
    scene.settle(fence)
    assert scene.job.state == JobState.RUNNING
    assert scene.job.active_placement_id == new


def test_boundary_cut_waits_for_a_commit_then_fences_and_stops_in_one_step():
    scene = Scene()
    old = scene.running(handles_term=False)
    new = scene.intend(GCP, Purpose.MOVE)
    scene.ready(new)
    assert scene.plan() == []
    assert scene.state(old) == PlacementState.ACTIVE, "waits for a fresh commit"
    scene.after(60)
    scene.training(old, handles_term=False)
    scene.job = replace(scene.job, commit=Commit(1, 7, "m", "s", 70, 1, scene.now_ms))
    (fence,) = scene.plan()
    assert isinstance(fence, Fence)
    assert (scene.state(old), scene.placements[old].cut) == (PlacementState.DRAINING, Cut.BOUNDARY)
    assert scene.job.generation == scene.placements[new].generation == 2, "granted in the step that drains"
    scene.settle(fence)
    assert scene.state(new) == PlacementState.ACTIVE


def test_a_notice_drains_here_and_recovers_elsewhere():
    scene = Scene()
    old = scene.running()
    scene.beat(old, "draining", JobNote("running", 1), notice=Notice("gcp:preempted", 30))
    scene.plan()
    assert scene.state(old) == PlacementState.DRAINING
    assert scene.placements[old].lost
    assert scene.job.state == JobState.RECOVERING
    new = scene.intend(GCP, Purpose.RECOVER)
    scene.ready(new)
    assert not any(isinstance(e, Fence) for e in scene.plan()), "it may still save"
    scene.beat(old, "stopped", JobNote("stopped", 1, saved=True), notice=Notice("gcp:preempted", 30))
    scene.plan()
    scene.train(new)
    assert scene.job.state == JobState.RUNNING


@pytest.mark.parametrize("end", [{"phase": "running", "saved": True}, {"phase": "stopped", "saved": False}])
def test_a_job_that_ends_while_draining_is_saved_before_its_node_goes(end):
    scene = Scene()
    old = scene.running()
    scene.beat(old, "draining", JobNote("running", 1), notice=Notice("gcp:preempted", 30))
    scene.plan()
    scene.beat(old, "draining", JobNote("exited", 1, exit_code=0, saved=False))
    scene.plan()
    assert scene.state(old) == PlacementState.DRAINING, "its last checkpoint is on its way to the store"
    scene.beat(old, end["phase"], JobNote("exited", 1, exit_code=0, saved=end["saved"]))
    scene.plan()
    assert scene.state(old) == PlacementState.RELEASING


def test_a_node_that_dies_while_draining_does_not_hold_up_the_recovery():
    scene = Scene()
    old = scene.running()
    scene.beat(old, "draining", JobNote("running", 1), notice=Notice("aws:instance-action", 120))
    scene.plan()
    (node,) = scene.nodes_of(old)
    scene.settle(
        FindNode(node.token),
        scene.cloud(node.token, CloudState.TERMINATED, ended_at_ms=9, ended_by=EndedBy.CLOUD),
    )
    scene.plan()
    assert scene.state(old) in (PlacementState.RELEASING, PlacementState.GONE)
    assert scene.nodes[node.token].ended_by == EndedBy.CLOUD


def test_after_a_notice_silence_is_asked_about_at_once():
    scene = Scene()
    old = scene.running()
    scene.beat(old, "draining", JobNote("running", 1), notice=Notice("aws:instance-action", 120))
    scene.plan()
    scene.now_ms += 20_000
    (node,) = scene.nodes_of(old)
    assert FindNode(node.token) in scene.plan()
    scene.settle(FindNode(node.token), scene.cloud(node.token, CloudState.TERMINATED, ended_at_ms=9))
    scene.plan()
    assert scene.state(old) in (PlacementState.RELEASING, PlacementState.GONE), (
        "the fence need not wait any longer"
    )


def test_silence_is_not_death():
    scene = Scene()
    placement = scene.running()
    (node,) = scene.nodes_of(placement)
    scene.now_ms += 120_000
    assert scene.plan() == [FindNode(node.token)]
    assert scene.nodes[node.token].state == NodeState.UNREACHABLE
    scene.settle(FindNode(node.token), None)
    scene.plan()
    assert scene.job.state == JobState.RUNNING, "one denial is a list that lags"
    scene.settle(FindNode(node.token), scene.cloud(node.token))
    assert scene.nodes[node.token].gone_confirmations == 0, "K in a row, not K in all"
    for _ in range(2):
        scene.settle(FindNode(node.token), None)
    scene.plan()
    assert scene.job.state == JobState.RECOVERING


def test_an_agent_that_calls_again_is_forgiven():
    scene = Scene()
    placement = scene.running()
    scene.now_ms += 120_000
    scene.plan()
    scene.training(placement)
    scene.plan()
    assert scene.nodes_of(placement)[0].state == NodeState.RUNNING
    assert scene.job.state == JobState.RUNNING


def test_success_needs_the_last_checkpoint_in_the_store():
    scene = Scene()
    placement = scene.running()
    scene.beat(placement, "running", JobNote("exited", 1, 0, saved=False), store_error="503")
    scene.plan()
    assert scene.job.state == JobState.RUNNING
    assert "503" in scene.job.reason
    scene.beat(placement, "stopped", JobNote("exited", 1, 0, saved=True, restore=RestoreNote(0)))
    scene.plan()
    assert (scene.job.state, scene.job.exit_code) == (JobState.SUCCEEDED, 0)
    scene.release()
    assert scene.state(placement) == PlacementState.GONE


def test_a_bad_exit_code_fails_the_job_and_frees_the_node():
    scene = Scene()
    placement = scene.running()
    scene.beat(placement, "stopped", JobNote("exited", 1, 3, saved=True))
    scene.plan()
    assert (scene.job.state, scene.job.exit_code, scene.job.reason) == (JobState.FAILED, 3, "exit code 3")
    scene.release()
    assert scene.state(placement) == PlacementState.GONE


def test_a_node_that_never_boots_is_released_and_its_pool_avoided():
    scene = Scene()
    placement = scene.intend()
    (create,) = scene.plan()
    scene.settle(create, scene.cloud(create.token))
    scene.plan()
    scene.after(901).plan()
    assert scene.state(placement) == PlacementState.RELEASING
    assert "booting" in scene.placements[placement].reason
    assert scene.job.state == JobState.QUEUED
    assert scene.avoided[-1].offer == AWS


def test_delete_is_repeated_until_the_cloud_denies_the_node():
    scene = Scene()
    placement = scene.running()
    scene.job = replace(scene.job, state=JobState.CANCELLING)
    scene.beat(placement, "stopped", JobNote("stopped", 1, saved=True))
    effects = scene.plan() + scene.plan()
    assert DeleteNode in kinds(effects)
    assert DeleteNode in kinds(scene.after(40).plan()), "sent again: the first may have been lost"
    (look,) = scene.after(1).plan()
    scene.settle(look, None)
    assert scene.state(placement) == PlacementState.RELEASING
    scene.settle(look, None)
    scene.plan()
    assert scene.state(placement) == PlacementState.GONE
    assert scene.nodes_of(placement)[0].ended_at_ms is not None


STAGES = ["intended", "unknown", "booting", "probing", "ready", "active"]


@pytest.mark.parametrize("stage", STAGES)
def test_cancel_in_every_state_ends_cancelled_with_no_node_left(stage):
    scene = Scene()
    placement = scene.intend()
    if stage != "intended":
        (create,) = scene.plan()
        if stage == "unknown":
            scene.settle(create, UnknownOutcome("no answer"))
        else:
            scene.settle(create, scene.cloud(create.token))
            scene.plan()
    if stage == "probing":
        scene.beat(placement, "idle")
        scene.plan()
    if stage in ("ready", "active"):
        scene.beat(placement, "ready", probe={"verdict": "accept"})
        scene.plan()
        scene.plan()
    if stage == "active":
        scene.train(placement)
    scene.job = replace(scene.job, state=JobState.CANCELLING)
    scene.plan()
    if stage == "active":
        assert scene.job.state == JobState.CANCELLING, "it may save first"
        scene.beat(placement, "stopped", JobNote("stopped", 1, saved=True))
    scene.release()
    assert scene.job.state == JobState.CANCELLED
    assert scene.state(placement) == PlacementState.GONE
    assert all(n.state == NodeState.GONE for n in scene.nodes.values())


def test_a_gang_is_whole_or_released():
    scene = Scene(nodes=2)
    placement = scene.intend()
    first, second = scene.plan()
    scene.settle(first, scene.cloud(first.token))
    scene.settle(second, OutOfCapacity("only one left"))
    scene.plan()
    assert scene.state(placement) == PlacementState.RELEASING
    scene.release()
    assert all(n.state == NodeState.GONE for n in scene.nodes.values())


@pytest.mark.parametrize("switch", ["paused", "report_only"])
def test_nothing_is_created_while_stopped(switch):
    scene = Scene()
    scene.intend()
    scene.switches[switch] = True
    assert scene.plan() == []


def test_report_only_neither_fences_nor_deletes():
    scene = Scene()
    placement = scene.intend()
    scene.ready(placement)
    scene.switches["report_only"] = True
    assert scene.plan() == []
    scene.job = replace(scene.job, state=JobState.CANCELLING)
    assert not any(isinstance(e, DeleteNode) for e in scene.plan() + scene.plan())


def test_a_second_pass_has_nothing_to_add():
    scene = Scene()
    scene.running()
    before = len(scene.events)
    assert scene.plan() == []
    assert len(scene.events) == before


def test_a_commit_under_a_generation_that_no_row_granted_unmasks_a_restored_database():
    scene = Scene()
    placement = scene.running()
    scene.beat(placement, "running", JobNote("running", 1), commit=CommitNote(4, 9, "m", "s", 1, 1))
    plan = scene.open()
    plan_pass(plan, {})
    assert plan.ahead is not None
    assert "generation 4" in plan.ahead
