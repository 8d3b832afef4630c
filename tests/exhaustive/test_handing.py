"""Hand-over and draining: one moment before, and the moment itself."""

from dataclasses import replace

import pytest

from broker.core.model import Commit, Cut, JobState, PlacementState, Purpose
from broker.core.ports import CloudState
from broker.migration.effects import Fence, FindNode
from broker.wire.messages import JobNote
from tests.unit.migration.scene import GCP, Scene

STATES = PlacementState


# -- hand-over --------------------------------------------------------------------------------------------------------


def moving(handles_term: bool = False, every_s: int = 60) -> tuple[Scene, str, str]:
    """A job that trains at one place and is ready at another."""
    scene = Scene()
    assert scene.job.spec.checkpoint is not None
    spec = replace(scene.job.spec, checkpoint=replace(scene.job.spec.checkpoint, every_s=every_s))
    scene.job = replace(scene.job, spec=spec)
    old = scene.running(handles_term=handles_term)
    new = scene.intend(GCP, Purpose.MOVE)
    scene.ready(new)
    return scene, old, new


def committed(scene: Scene, at_ms: int) -> None:
    scene.job = replace(scene.job, commit=Commit(1, 7, "m", "s", 70, 1, at_ms))


def test_a_commit_of_the_moment_of_readiness_is_fresh() -> None:
    scene, old, new = moving()
    ready_ms = scene.placements[new].ready_at_ms or 0
    committed(scene, ready_ms - 1)
    assert scene.plan() == []
    committed(scene, ready_ms)
    assert scene.plan() == [Fence("train-1", new, 2)]
    assert scene.placements[old].cut == Cut.BOUNDARY
    assert scene.placements[old].reason == f"moving to {GCP.key}"


def test_a_boundary_is_waited_for_one_and_a_half_intervals() -> None:
    scene, old, new = moving()
    scene.now_ms = (scene.placements[new].ready_at_ms or 0) + 90_000
    for placement in (old, new):
        scene.nodes |= {n.token: replace(n, seen_at_ms=scene.now_ms) for n in scene.nodes_of(placement)}
    assert scene.plan() == []
    scene.now_ms += 1
    assert scene.plan() == [Fence("train-1", new, 2)]


def test_a_job_without_checkpoints_has_nothing_to_wait_for() -> None:
    scene = Scene(checkpoint=False)
    old = scene.running(handles_term=False)
    new = scene.intend(GCP, Purpose.MOVE)
    scene.ready(new)
    scene.now_ms += 1
    scene.plan()
    assert scene.state(old) == STATES.DRAINING


def test_a_job_that_saves_says_where_it_goes() -> None:
    scene, old, _ = moving(handles_term=True)
    scene.plan()
    assert (scene.state(old), scene.placements[old].cut) == (STATES.DRAINING, Cut.FINAL)
    assert scene.placements[old].reason == f"moving to {GCP.key}"


@pytest.mark.parametrize("purpose", [Purpose.PLACE, Purpose.RECOVER])
def test_only_a_move_takes_a_job_from_where_it_trains(purpose: Purpose) -> None:
    scene = Scene()
    old = scene.running()
    new = scene.intend(GCP, purpose)
    scene.ready(new)
    scene.plan()
    assert scene.state(old) == STATES.ACTIVE
    assert scene.state(new) == STATES.RELEASING
    assert scene.placements[new].reason == "no longer needed: the job trains"


def test_nothing_is_handed_over_by_a_job_that_is_over() -> None:
    for state in (JobState.CANCELLING, JobState.SUCCEEDED):
        scene, _, new = moving(handles_term=True)
        scene.job = replace(scene.job, state=state)
        assert not any(isinstance(effect, Fence) for effect in scene.plan())
        assert scene.placements[new].generation is None


def test_a_move_whose_goal_is_lost_while_the_old_saves_is_a_recovery() -> None:
    scene, old, new = moving(handles_term=True)
    scene.plan()
    assert (scene.state(old), scene.job.state) == (STATES.DRAINING, JobState.MOVING)
    scene.now_ms += 1000
    (node,) = scene.nodes_of(new)
    scene.settle(FindNode(node.token), scene.cloud(node.token, CloudState.TERMINATED))
    scene.plan()
    assert scene.state(new) == STATES.GONE
    assert (scene.state(old), scene.job.state) == (STATES.DRAINING, JobState.RECOVERING)
    assert scene.job.reason == f"moving to {GCP.key}"


# -- draining ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "note", "over"),
    [
        ("running", JobNote("exited", 1, 0, saved=False), False),
        ("running", JobNote("exited", 1, 3, saved=True), True),
        ("stopped", JobNote("exited", 1, 0, saved=False), True),
        ("draining", JobNote("running", 1), False),
        ("stopped", JobNote("stopped", 1), True),
        ("stopped", JobNote("fenced", 1), True),
        ("stopped", JobNote("lease_lost", 1), True),
        ("stopped", JobNote("failed", 1), True),
    ],
)
def test_when_a_drain_is_over(phase: str, note: JobNote, over: bool) -> None:
    scene, old, _ = moving(handles_term=True)
    scene.plan()
    scene.now_ms += 1000
    scene.beat(old, phase, note)
    scene.plan()
    drained = scene.placements[old]
    assert drained.drained == over
    assert (drained.state == STATES.RELEASING) == over
    assert drained.stopped_at_ms == (scene.now_ms if over else None)


def test_a_job_that_finishes_instead_of_stopping_has_finished() -> None:
    scene, old, new = moving(handles_term=True)
    scene.plan()
    scene.now_ms += 1000
    scene.beat(old, "stopped", JobNote("exited", 1, 0, saved=True))
    assert not any(isinstance(effect, Fence) for effect in scene.plan())
    assert (scene.job.state, scene.job.reason, scene.job.exit_code) == (JobState.SUCCEEDED, "finished", 0)
    assert (scene.state(old), scene.placements[old].reason) == (STATES.RELEASING, "job finished")
    assert scene.placements[old].stopped_at_ms == scene.now_ms
    scene.plan()
    assert scene.state(new) == STATES.RELEASING


@pytest.mark.parametrize(
    "note",
    [
        JobNote("exited", 1, 3, saved=True),
        JobNote("exited", 1, 0, saved=False),
        JobNote("exited", 0, 0, saved=True),
        JobNote("stopped", 1, 0, saved=True),
    ],
)
def test_what_is_no_finish_goes_on_elsewhere(note: JobNote) -> None:
    scene, old, new = moving(handles_term=True)
    scene.plan()
    scene.beat(old, "stopped", note)
    scene.plan()
    assert scene.state(old) == STATES.RELEASING
    assert scene.plan()[0] == Fence("train-1", new, 2)


def test_a_finish_after_the_next_generation_was_granted_goes_on_there() -> None:
    scene, old, new = moving()
    committed(scene, scene.now_ms)
    (fence,) = scene.plan()
    scene.beat(old, "stopped", JobNote("exited", 1, 0, saved=True))
    scene.plan()
    scene.settle(fence)
    assert (scene.state(old), scene.state(new)) == (STATES.RELEASING, STATES.ACTIVE)
    assert scene.job.state == JobState.RUNNING


def test_a_gang_has_stopped_when_all_of_it_has() -> None:
    scene = Scene(nodes=2)
    placement = scene.intend()
    scene.ready(placement)
    scene.train(placement)
    scene.job = replace(scene.job, state=JobState.CANCELLING)
    scene.plan()
    first, second = scene.nodes_of(placement)
    scene.beat(placement, "stopped", JobNote("stopped", 1, saved=True))
    stopped = scene.nodes[first.token].report
    scene.nodes[second.token] = replace(scene.nodes[second.token], report={})
    scene.plan()
    assert scene.state(placement) == STATES.DRAINING
    scene.nodes[second.token] = replace(scene.nodes[second.token], report=stopped)
    scene.plan()
    assert scene.state(placement) == STATES.RELEASING


def test_a_cancelled_job_that_finishes_while_it_may_save_is_cancelled() -> None:
    scene = Scene()
    placement = scene.running()
    scene.job = replace(scene.job, state=JobState.CANCELLING)
    scene.plan()
    scene.beat(placement, "stopped", JobNote("exited", 1, 0, saved=True))
    scene.plan()
    assert scene.state(placement) == STATES.RELEASING
    assert (scene.job.state, scene.job.exit_code) == (JobState.CANCELLED, None)
