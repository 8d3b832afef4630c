"""Who trains, and how the right to commit changes hands. Pure.

    final cut      old is asked to save -> old has stopped -> fence -> new starts from what old saved
    boundary cut   old commits by itself -> fence, and old is stopped -> new starts from HEAD

At a boundary cut the grant and the order to stop are one transaction, and what follows from them has no order: a beat
may stop the old copy before HEAD is swapped. What it commits before the fence is kept, after it refused.

The final cut redoes nothing but needs a job that saves on SIGTERM. The boundary cut redoes what was trained since
the last commit, so it waits for a fresh one. In both, HEAD is the one commit point: whatever the rows say, a copy
whose generation HEAD does not carry can commit nothing.
"""

from typing import Any

from broker.core.model import Cut, Job, JobState, Placement, PlacementState, Purpose
from broker.migration.effects import Fence
from broker.migration.view import Plan, beat_of
from broker.wire import messages as wire
from broker.wire.messages import Beat


def active(plan: Plan, placement: Placement) -> None:
    """What the nodes of a training placement tell: started, finished, failed, announced to end."""
    if placement.state != PlacementState.ACTIVE:
        return
    beats = [b for n in plan.nodes_of(placement) if (b := beat_of(n)) is not None]
    newest = max((b.commit.generation for b in beats if b.commit), default=0)
    if newest > plan.jobs[placement.job_id].generation:
        plan.ahead = f"{placement.id} has committed under generation {newest}, which no row has granted"
    mine = [b for b in beats if b.job.generation == placement.generation]
    placement = _started(plan, placement, mine)
    notice = next((b.notice for b in beats if b.notice is not None), None)
    states = {b.job.state for b in mine}
    if wire.JOB_EXITED in states and _finished(plan, placement, mine):
        return
    if notice is not None:
        plan.avoid(placement, "its cloud is taking capacity back")
        plan.placement(
            placement,
            PlacementState.DRAINING,
            f"interruption notice ({notice.source})",
            cut=Cut.FINAL,
            lost=True,
        )
    elif wire.JOB_FENCED in states:
        if placement.generation == plan.jobs[placement.job_id].generation:
            plan.ahead = (
                f"HEAD of {placement.job_id} is not of generation {placement.generation} any more: "
                "another broker has fenced it, or an older HEAD was put back"
            )
        plan.placement(placement, PlacementState.RELEASING, "HEAD carries another generation", lost=True)
    elif wire.JOB_LEASE_LOST in states or wire.JOB_STOPPED in states:
        plan.placement(
            placement, PlacementState.RELEASING, "stopped itself: its run lease ran out", lost=True
        )
    elif wire.JOB_FAILED in states:
        error = next(b.job.error for b in mine if b.job.state == wire.JOB_FAILED)
        plan.start_failed(placement, error)


def _started(plan: Plan, placement: Placement, beats: list[Beat]) -> Placement:
    """Remember what was restored and how far it has come: the report of a migration is made of these."""
    fields: dict[str, Any] = {}
    head = next((b for b in beats if b.job.restore is not None), None)
    if placement.training_at_ms is None and any(b.job.state == wire.JOB_RUNNING for b in beats):
        fields["training_at_ms"] = plan.now_ms
        plan.note(
            "job.training",
            job_id=placement.job_id,
            placement_id=placement.id,
            project_id=placement.project_id,
            offer=placement.offer.key,
            step=head.job.restore.step if head and head.job.restore else None,
        )
    if head is not None and head.job.restore is not None and placement.resumed_seq is None:
        fields |= {"resumed_seq": head.job.restore.seq, "resumed_step": head.job.restore.step}
    steps = [b.progress.step for b in beats if b.progress is not None and b.progress.step is not None]
    if steps and max(steps) != placement.last_step:
        fields["last_step"] = max(steps)
    told = plan.jobs[placement.job_id].progress
    began_ms = fields.get("training_at_ms", placement.training_at_ms)
    if told is not None and told.steps_per_s and began_ms is not None and told.at_ms >= began_ms:
        fields["steps_per_s"] = told.steps_per_s
    return plan.placement(placement, **fields) if fields else placement


def _finished(plan: Plan, placement: Placement, beats: list[Beat]) -> bool:
    """The job ended by itself: well when every rank says 0 and what it saved is in the store."""
    job = plan.jobs[placement.job_id]
    codes = [b.job.exit_code for b in beats if b.job.state == wire.JOB_EXITED]
    bad = next((code for code in codes if code), None)
    if bad is not None:
        _end(plan, job, placement, JobState.FAILED, bad, f"exit code {bad}")
        return True
    if len(codes) < len(plan.nodes_of(placement)):
        return False
    if not all(b.job.saved for b in beats):
        error = next((b.store_error for b in beats if b.store_error), "uploading")
        plan.placement(placement, reason=f"finished, last checkpoint not yet in the store: {error}")
        return False
    _end(plan, job, placement, JobState.SUCCEEDED, 0, "finished")
    return True


def finished_draining(plan: Plan, placement: Placement) -> bool:
    """A copy that was asked to stop has finished its work instead: nobody has to go on with it elsewhere.

    Not once another generation has been granted: then HEAD may say more than this copy knows.
    """
    job = plan.jobs[placement.job_id]
    beats = [beat_of(n) for n in plan.nodes_of(placement)]
    if placement.generation is None or placement.generation != job.generation:
        return False
    if not all(b and b.job.generation == placement.generation and _done(b) for b in beats):
        return False
    _end(plan, job, placement, JobState.SUCCEEDED, 0, "finished")
    return True


def _done(beat: Beat) -> bool:
    return beat.job.state == wire.JOB_EXITED and beat.job.exit_code == 0 and beat.job.saved


def _end(plan: Plan, job: Job, placement: Placement, state: JobState, code: int, reason: str) -> None:
    plan.placement(placement, PlacementState.RELEASING, f"job {reason}", stopped_at_ms=plan.now_ms)
    if not job.state.final and job.state != JobState.CANCELLING:
        plan.job(job, state, reason, exit_code=code, active_placement_id=None)


def hand_over(plan: Plan, job: Job) -> None:
    """Bring a READY placement to the point where its generation is granted and its fence asked for."""
    if job.state.final or job.state == JobState.CANCELLING or plan.report_only:
        return
    waiting = [p for p in plan.placements_of(job) if p.state == PlacementState.READY]
    if not waiting:
        return
    new = waiting[-1]
    if new.generation is not None:
        # Granted before a crash or a failed swap: the same fence again, it is idempotent for its generation.
        plan.effects.append(Fence(job.id, new.id, new.generation))
        return
    old = next((p for p in plan.placements_of(job) if p.state == PlacementState.ACTIVE), None)
    if old is not None:
        _cut(plan, job, old, new)
        return
    if any(p.state == PlacementState.DRAINING and not p.drained for p in plan.placements_of(job)):
        return  # it may still save; its deadline bounds the wait
    _grant(plan, job, new)


def _cut(plan: Plan, job: Job, old: Placement, new: Placement) -> None:
    """Take the job from a placement that trains well. Only a move may; anything else came too late."""
    if new.purpose != Purpose.MOVE:
        plan.placement(new, PlacementState.RELEASING, "no longer needed: the job trains")
        return
    beats = [beat_of(n) for n in plan.nodes_of(old)]
    if all(b is not None and b.job.handles_term for b in beats):
        plan.placement(old, PlacementState.DRAINING, f"moving to {new.offer.key}", cut=Cut.FINAL)
        return
    ready_ms = new.ready_at_ms or plan.now_ms
    every_s = job.spec.checkpoint.every_s if job.spec.checkpoint else 0
    fresh = job.commit is not None and job.commit.at_ms >= ready_ms
    if fresh or plan.now_ms - ready_ms > 1500 * every_s:
        _grant(plan, job, new)
        plan.placement(old, PlacementState.DRAINING, f"moving to {new.offer.key}", cut=Cut.BOUNDARY)


def _grant(plan: Plan, job: Job, new: Placement) -> None:
    """The intent of a fence: both rows carry the generation before HEAD does."""
    generation = job.generation + 1
    plan.job(job, generation=generation)
    plan.placement(new, generation=generation)
    plan.effects.append(Fence(job.id, new.id, generation))
