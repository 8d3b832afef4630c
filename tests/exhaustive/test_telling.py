"""What nodes tell, and what comes of it."""

from dataclasses import replace

import pytest

from broker.core.model import Cut, JobState, PlacementState, Progress
from broker.migration.effects import CreateNode, Fence
from broker.migration.plan import plan_pass
from broker.migration.probing import refused_in_a_row
from broker.migration.settle import settle_fence
from broker.wire.messages import JobNote, Notice, ProgressNote, RestoreNote
from tests.unit.migration.scene import AWS, Scene

STATES = PlacementState


def test_what_a_start_leaves_in_the_rows() -> None:
    scene = Scene()
    placement = scene.intend()
    scene.ready(placement)
    (fence,) = scene.plan()
    scene.settle(fence)
    active = scene.placements[placement]
    assert active.active_at_ms == scene.now_ms
    assert active.fenced
    scene.now_ms += 1000
    note = JobNote("running", 1, started=True, handles_term=True, restore=RestoreNote(4, 40))
    scene.beat(placement, "running", note, progress=ProgressNote(step=45))
    scene.plan()
    started = scene.placements[placement]
    assert started.training_at_ms == scene.now_ms
    assert (started.resumed_seq, started.resumed_step, started.last_step) == (4, 40, 45)
    told = next(event for event in scene.events if event.kind == "job.training")
    assert told.data == {"offer": AWS.key, "step": 40}
    began_ms = scene.now_ms
    scene.now_ms += 1000
    later = JobNote("running", 1, started=True, handles_term=True, restore=RestoreNote(9, 90))
    scene.beat(placement, "running", later, progress=ProgressNote(step=46))
    scene.plan()
    again = scene.placements[placement]
    assert (again.training_at_ms, again.resumed_seq, again.last_step) == (began_ms, 4, 46)
    assert [event.kind for event in scene.events].count("job.training") == 1


def test_beats_of_another_generation_are_not_about_this_one() -> None:
    scene = Scene()
    placement = scene.running()
    scene.beat(placement, "stopped", JobNote("exited", 7, 3, saved=True))
    scene.plan()
    assert scene.state(placement) == STATES.ACTIVE


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("lease_lost", "stopped itself: its run lease ran out"),
        ("stopped", "stopped itself: its run lease ran out"),
        ("failed", "could not start: no disk"),
    ],
)
def test_a_copy_that_has_ended_loses_its_placement(state: str, reason: str) -> None:
    scene = Scene()
    placement = scene.running()
    scene.beat(placement, "stopped", JobNote(state, 1, error="no disk"))
    scene.plan()
    assert scene.state(placement) == STATES.RELEASING
    assert scene.placements[placement].lost
    assert scene.placements[placement].reason == reason
    assert scene.job.state == JobState.RECOVERING


def test_a_copy_that_was_fenced_by_us_is_only_lost() -> None:
    scene = Scene()
    placement = scene.running()
    scene.job = replace(scene.job, generation=2)
    scene.beat(placement, "stopped", JobNote("fenced", 1))
    plan = scene.open()
    plan_pass(plan, {})
    assert plan.ahead is None
    lost = plan.placements[placement]
    assert (lost.state, lost.lost) == (STATES.RELEASING, True)
    assert lost.reason == "HEAD carries another generation"


def test_a_copy_that_was_fenced_by_nobody_unmasks_a_restored_database() -> None:
    scene = Scene()
    placement = scene.running()
    scene.beat(placement, "stopped", JobNote("fenced", 1))
    plan = scene.open()
    plan_pass(plan, {})
    assert plan.ahead == (
        "HEAD of train-1 is not of generation 1 any more: another broker has fenced it, or an older HEAD was put back"
    )


def test_a_job_whose_fence_fails_says_what_it_waits_for_until_it_succeeds() -> None:
    scene = Scene()
    placement = scene.intend()
    scene.ready(placement)
    fence = next(effect for effect in scene.plan() if isinstance(effect, Fence))
    plan = scene.open()
    settle_fence(plan, fence, "no answer in time")
    waits = "waits for its checkpoint store: no answer in time"
    assert (plan.jobs["train-1"].reason, plan.placements[placement].reason) == (waits, waits)
    assert plan.placements[placement].state == STATES.READY
    scene._take(plan)
    scene.now_ms += 3_600_000
    scene.beat(placement, "ready", probe={"verdict": "accept", "reasons": []})
    late = scene.open()
    plan_pass(late, {})
    given_up = late.placements[placement]
    assert given_up.reason == f"still ready after 1h: {waits}"
    assert refused_in_a_row([given_up]) == [given_up], "the next node would wait as long, and be paid"
    settle_fence(plan, fence)
    assert plan.jobs["train-1"].reason.startswith("trains on ")
    assert plan.placements[placement].state == STATES.ACTIVE


def test_an_exit_outranks_a_notice() -> None:
    scene = Scene()
    placement = scene.running()
    scene.beat(placement, "stopped", JobNote("exited", 1, 0, saved=True), notice=Notice("gcp:preempted", 30))
    scene.plan()
    assert scene.job.state == JobState.SUCCEEDED
    assert scene.job.reason == "finished"
    ended = scene.placements[placement]
    assert (ended.reason, ended.stopped_at_ms, ended.lost) == ("job finished", scene.now_ms, False)
    assert scene.job.active_placement_id is None
    assert scene.job.finished_at_ms == scene.now_ms


def test_a_notice_says_who_gave_it_and_what_to_avoid() -> None:
    scene = Scene()
    placement = scene.running()
    scene.beat(placement, "draining", JobNote("running", 1), notice=Notice("gcp:preempted", 30))
    scene.plan()
    noticed = scene.placements[placement]
    assert (noticed.cut, noticed.lost) == (Cut.FINAL, True)
    assert noticed.reason == "interruption notice (gcp:preempted)"
    assert [(a.offer, a.why) for a in scene.avoided] == [(AWS, "its cloud is taking capacity back")]


def test_a_gang_is_finished_when_every_rank_is() -> None:
    scene = Scene(nodes=2)
    placement = scene.intend()
    scene.ready(placement)
    scene.train(placement)
    first, second = scene.nodes_of(placement)
    scene.beat(placement, "stopped", JobNote("exited", 1, 0, saved=True))
    running = scene.nodes[first.token].report
    scene.nodes[second.token] = replace(
        scene.nodes[second.token],
        report={**running, "job": {**running["job"], "state": "running", "exit_code": None}},
    )
    scene.plan()
    assert scene.job.state == JobState.RUNNING
    scene.nodes[second.token] = replace(
        scene.nodes[second.token], report={**running, "job": {**running["job"], "exit_code": 5}}
    )
    scene.plan()
    assert (scene.job.state, scene.job.exit_code) == (JobState.FAILED, 5)


def test_a_finish_that_is_not_saved_says_what_it_waits_for() -> None:
    scene = Scene()
    placement = scene.running()
    scene.beat(placement, "running", JobNote("exited", 1, 0, saved=False))
    scene.plan()
    waiting = "finished, last checkpoint not yet in the store: uploading"
    assert scene.placements[placement].reason == waiting
    assert scene.job.state == JobState.RUNNING


def steps_told(scene: Scene, at_ms: int, steps_per_s: float | None = 2.5) -> None:
    scene.job = replace(scene.job, progress=Progress(at_ms, 50, steps_per_s=steps_per_s))


def test_the_pace_of_a_placement_is_what_its_job_has_told_since_it_trains() -> None:
    scene = Scene()
    placement = scene.intend()
    scene.ready(placement)
    (fence,) = scene.plan()
    scene.settle(fence)
    steps_told(scene, scene.now_ms - 1)
    scene.training(placement)
    scene.plan()
    assert scene.placements[placement].training_at_ms == scene.now_ms
    assert scene.placements[placement].steps_per_s is None, "a reading of the placement before"
    steps_told(scene, scene.now_ms)
    scene.after(60).plan()
    assert scene.placements[placement].steps_per_s == 2.5
    steps_told(scene, scene.now_ms, None)
    scene.plan()
    assert scene.placements[placement].steps_per_s == 2.5, "a line without a pace takes none back"


def test_a_pace_told_in_the_moment_of_the_start_counts() -> None:
    scene = Scene()
    placement = scene.intend()
    scene.ready(placement)
    (fence,) = scene.plan()
    scene.settle(fence)
    steps_told(scene, scene.now_ms)
    scene.training(placement)
    scene.plan()
    assert scene.placements[placement].steps_per_s == 2.5


def test_a_pace_told_before_anything_trains_is_not_of_this_placement() -> None:
    scene = Scene()
    placement = scene.intend()
    scene.ready(placement)
    (fence,) = scene.plan()
    scene.settle(fence)
    steps_told(scene, scene.now_ms)
    scene.beat(placement, "running", JobNote("none", 1))
    scene.plan()
    assert scene.placements[placement].steps_per_s is None


def test_a_job_names_the_placement_that_trains_and_no_other() -> None:
    scene = Scene()
    placement = scene.running()
    scene.after(60).plan()
    assert scene.job.active_placement_id == placement
    scene.beat(placement, "draining", JobNote("running", 1), notice=Notice("gcp:preempted", 30))
    scene.plan()
    assert scene.state(placement) == STATES.DRAINING
    assert scene.job.active_placement_id is None


def test_a_job_starts_for_the_reason_of_its_placement() -> None:
    scene = Scene()
    placement = scene.intend()
    scene.placements[placement] = replace(scene.placements[placement], reason="starts on aws")
    scene.job = replace(scene.job, reason="waits for a price")
    scene.plan()
    assert (scene.job.state, scene.job.reason) == (JobState.STARTING, "starts on aws")


def test_a_job_that_trains_by_its_row_alone_recovers() -> None:
    scene = Scene()
    scene.job = replace(scene.job, state=JobState.RUNNING, reason="trains on aws")
    scene.plan()
    assert (scene.job.state, scene.job.reason) == (JobState.RECOVERING, "its placement is gone")


def test_an_agent_that_has_called_and_told_nothing_yet_is_waited_for() -> None:
    scene = Scene(nodes=2)
    placement = scene.intend()
    for effect in scene.plan():
        assert isinstance(effect, CreateNode)
        scene.settle(effect, scene.cloud(effect.token))
    scene.beat(placement, "idle", probe={"verdict": "accept", "reasons": []})
    _, second = scene.nodes_of(placement)
    scene.nodes[second.token] = replace(second, report=None)
    scene.plan()
    assert scene.state(placement) == STATES.PROBING


def test_a_rank_that_has_failed_outranks_a_notice() -> None:
    scene = Scene()
    placement = scene.running()
    scene.beat(placement, "stopped", JobNote("exited", 1, 3, saved=True), notice=Notice("gcp:preempted", 30))
    scene.plan()
    assert (scene.job.state, scene.job.exit_code) == (JobState.FAILED, 3)
    assert (scene.state(placement), scene.placements[placement].lost) == (STATES.RELEASING, False)
    assert scene.avoided == []


def test_a_notice_before_the_last_rank_has_finished_drains() -> None:
    scene = Scene(nodes=2)
    placement = scene.intend()
    scene.ready(placement)
    scene.train(placement)
    _, second = scene.nodes_of(placement)
    scene.beat(placement, "stopped", JobNote("exited", 1, 0, saved=True))
    running = {"state": "running", "exit_code": None}
    report = scene.nodes[second.token].report
    notice = {"source": "gcp:preempted", "seconds_left": 30}
    scene.nodes[second.token] = replace(
        scene.nodes[second.token], report={**report, "job": {**report["job"], **running}, "notice": notice}
    )
    scene.plan()
    assert scene.state(placement) == STATES.DRAINING
    assert scene.job.state == JobState.RECOVERING


def test_a_notice_before_the_last_checkpoint_is_in_the_store_drains() -> None:
    scene = Scene()
    placement = scene.running()
    scene.beat(placement, "running", JobNote("exited", 1, 0, saved=False), notice=Notice("gcp:preempted", 30))
    scene.plan()
    assert scene.state(placement) == STATES.DRAINING
    assert scene.placements[placement].lost
