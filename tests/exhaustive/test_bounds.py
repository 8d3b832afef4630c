"""Numbers and words of the protocol at their edges: one moment before, and the moment itself."""

import asyncio
from dataclasses import replace

import pytest

from broker.checkpoint.commits import CheckpointStore
from broker.core.errors import Denied, OutOfCapacity, OutOfQuota, ProviderError, UnknownOutcome
from broker.core.model import Commit, Cut, EndedBy, JobState, NodeState, PlacementState, Purpose
from broker.core.ports import CloudState
from broker.migration.effects import CreateNode, DeleteNode, Fence, FindNode
from broker.migration.plan import plan_pass
from broker.store.access import REPORT_ONLY
from broker.wire.head import head_key
from broker.wire.messages import JobNote, Notice, ProgressNote, RestoreNote
from tests.exhaustive.cases import calm
from tests.exhaustive.mischief import AHEAD
from tests.exhaustive.objects import MemoryCheckpoints, Objects
from tests.exhaustive.scenarios import SCENARIOS
from tests.unit.migration.scene import AWS, GCP, Scene

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


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "scope", "reason"),
    [
        (OutOfCapacity("no p5", "zone"), "zone", "out of capacity: no p5"),
        (OutOfQuota("8 vCPU", "region"), "region", "out of quota: 8 vCPU"),
        (Denied("no"), "cloud", "denied: no"),
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


# -- what nodes tell --------------------------------------------------------------------------------------------------


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
    assert plan.placements[placement].reason == "HEAD carries a newer generation"


def test_a_copy_that_was_fenced_by_nobody_unmasks_a_restored_database() -> None:
    scene = Scene()
    placement = scene.running()
    scene.beat(placement, "stopped", JobNote("fenced", 1))
    plan = scene.open()
    plan_pass(plan, {})
    assert plan.ahead == "HEAD of train-1 is newer than generation 1"


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


# -- the store, and the shell -----------------------------------------------------------------------------------------


class Recording(Objects):
    """Remembers in which order keys were deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[str] = []

    def delete(self, key: str) -> None:
        self.deleted.append(key)
        super().delete(key)


def test_head_is_deleted_last() -> None:
    objects = Recording()
    store = MemoryCheckpoints(objects)
    store.fence("train-1", 1)
    prefix = store.prefix("train-1")
    for name in ("A-chunk", "chunk", "manifest"):
        objects.put(f"{prefix}/{name}", b"x")
    store.fence("train-10", 1)
    assert store.job_ids() == ["train-1", "train-10"]
    assert store.delete_job("train-1") == 4
    assert objects.deleted[-1] == head_key(prefix)
    assert store.job_ids() == ["train-10"]


def test_the_race_at_the_start_is_run_under_a_key_of_its_own() -> None:
    class Keys(Objects):
        seen: set[str] = set()  # noqa: RUF012

        def put(self, key: str, data: bytes, if_match: str | None = None, if_absent: bool = False) -> str:
            self.seen.add(key)
            return super().put(key, data, if_match, if_absent)

    objects = Keys()
    MemoryCheckpoints(objects).self_test()
    assert objects.seen
    assert all(key.startswith("self-test") for key in objects.seen)
    assert CheckpointStore.self_test is MemoryCheckpoints.self_test


def test_a_fence_that_comes_too_late_latches_report_only() -> None:
    run = calm(SCENARIOS["place"], False)
    number = next(call.number for call in run.end.calls.values() if call.kind == "fence")
    told = run.struck({number: AHEAD}, whole=True).disk_now().events
    latches = [event.data for event in told if event.kind == "switch.set"]
    assert [latch["value"] for latch in latches] == [True, False]
    assert latches[0]["name"] == REPORT_ONLY
    assert latches[0]["reason"] == f"job {run.end.job_id}: HEAD is ahead"


def test_settling_waits_for_what_is_under_way() -> None:
    harness = calm(SCENARIOS["place"], False).branch({})
    assert harness.daemon is not None
    reconciler, done = harness.daemon.reconciler, []

    async def work() -> None:
        await asyncio.sleep(0.01)
        done.append(1)
        raise RuntimeError("its failure is not the waiter's")

    async def both() -> None:
        task = asyncio.get_running_loop().create_task(work())
        effect = FindNode("bk-1")
        reconciler._running[effect] = task
        task.add_done_callback(lambda _: reconciler._running.pop(effect, None))
        await reconciler.settle_all()

    asyncio.run(both())
    assert done == [1]
