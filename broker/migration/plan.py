"""One pass over the rows: what changes by itself, and what is to be done outside. Pure.

`plan_pass` is level-triggered: it takes no input but the rows and the time, and a second pass over its own result
asks for nothing new. Rules are kept one a function, in the order in which a placement lives:

    nodes    create, look up, notice silence            `nodes.py`
    landing  intended .. ready                          `land`
    handing  grant, fence, drain                        `handover.py`
    leaving  draining, releasing, gone                  `leave`
    jobs     follow their placements                    `follow`
"""

from broker.core.model import Job, JobState, NodeState, Placement, PlacementState, Purpose
from broker.core.time import format_duration
from broker.migration.handover import active, finished_draining, hand_over
from broker.migration.nodes import ask_for_end, tend_nodes
from broker.migration.probing import judge
from broker.migration.view import STOPPED, STORE_AWAITED, Plan, beat_of
from broker.policy.schema import OnInconclusive
from broker.wire import messages as wire
from broker.wire.messages import Beat


def plan_pass(plan: Plan, on_inconclusive: dict[str, OnInconclusive]) -> Plan:
    """Plan one pass in place.

    Args:
        plan: The open rows.
        on_inconclusive: By placement id: what its job's policy says of a probe that could not judge.

    Returns:
        The same plan, with `changed`, `events` and `effects` filled in.
    """
    for job in list(plan.jobs.values()):
        _cancel(plan, job)
        for placement in plan.placements_of(job):
            tend_nodes(plan, placement)
            placement = plan.placements[placement.id]
            placement = _overdue(plan, placement)
            placement = _land(plan, placement, on_inconclusive.get(placement.id, OnInconclusive.REJECT))
            active(plan, placement)
        hand_over(plan, plan.jobs[job.id])
        for placement in plan.placements_of(job):
            _leave(plan, plan.placements[placement.id])
        _follow(plan, plan.jobs[job.id])
    return plan


def _cancel(plan: Plan, job: Job) -> None:
    """A job that is wanted no more gives up all its placements; what trains may save first."""
    if job.state == JobState.CANCELLING:
        reason = _why_cancelled(job)
    elif job.state.final:
        reason = f"job {job.state}"
    else:
        return
    for placement in plan.placements_of(job):
        if placement.state == PlacementState.ACTIVE and job.state == JobState.CANCELLING:
            plan.placement(placement, PlacementState.DRAINING, reason)
        elif placement.state not in (PlacementState.DRAINING, PlacementState.RELEASING, PlacementState.GONE):
            plan.placement(placement, PlacementState.RELEASING, reason)


def _why_cancelled(job: Job) -> str:
    return job.reason if job.reason.startswith(STOPPED) else "cancelled"


def _overdue(plan: Plan, placement: Placement) -> Placement:
    """Every state but ACTIVE ends: what does not get on is released."""
    if placement.deadline_ms is None or plan.now_ms < placement.deadline_ms:
        return placement
    lasted = format_duration((plan.now_ms - placement.state_since_ms) / 1000)
    if placement.state == PlacementState.RELEASING:
        # Nothing comes after releasing; say so loudly and go on asking.
        plan.note(
            "placement.release_overdue",
            job_id=placement.job_id,
            placement_id=placement.id,
            project_id=placement.project_id,
            lasted=lasted,
        )
        return plan.placement(placement, deadline_ms=plan.rules.deadline_ms(placement.state, plan.now_ms))
    if placement.state.landing:
        plan.avoid(placement, f"still {placement.state} after {lasted}")
    why = f"still {placement.state} after {lasted}"
    if placement.reason.startswith(STORE_AWAITED):
        why += f": {placement.reason}"
    return plan.placement(placement, PlacementState.RELEASING, why)


def _land(plan: Plan, placement: Placement, on_inconclusive: OnInconclusive) -> Placement:
    """INTENDED to READY, as far as the gang as a whole has come: all nodes or none."""
    nodes = plan.nodes_of(placement)
    if placement.state == PlacementState.INTENDED and all(n.provider_id for n in nodes):
        placement = plan.placement(placement, PlacementState.REQUESTED, "the cloud has taken the order")
    if placement.state == PlacementState.REQUESTED and all(n.state == NodeState.RUNNING for n in nodes):
        placement = plan.placement(placement, PlacementState.BOOTING, "running at the cloud")
    if placement.state == PlacementState.BOOTING and all(n.secret_sha256 for n in nodes):
        placement = plan.placement(placement, PlacementState.PROBING, "agent has called")
    if placement.state != PlacementState.PROBING:
        return placement
    beats = [beat_of(n) for n in nodes]
    if placement.verdict is None:
        placement = judge(plan, placement, [b.probe if b else None for b in beats], on_inconclusive)
    if placement.state != PlacementState.PROBING:
        return placement
    failed = next((b.job.error for b in beats if b and b.job.state == wire.JOB_FAILED), None)
    if failed is not None:
        return plan.start_failed(placement, failed)
    if placement.verdict is not None and all(b and b.phase == wire.PHASE_READY for b in beats):
        return plan.placement(placement, PlacementState.READY, "probed and prepared", ready_at_ms=plan.now_ms)
    return placement


def _leave(plan: Plan, placement: Placement) -> None:
    """DRAINING to GONE: stopped, deleted, confirmed."""
    if placement.state == PlacementState.DRAINING:
        placement = _drained(plan, placement)
    if placement.state != PlacementState.RELEASING:
        return
    for node in plan.nodes_of(placement):
        ask_for_end(plan, node, placement)
    if all(n.state == NodeState.GONE for n in plan.nodes_of(placement)):
        plan.placement(placement, PlacementState.GONE, placement.reason, gone_at_ms=plan.now_ms)


def _drained(plan: Plan, placement: Placement) -> Placement:
    """The copy here has stopped, saved or not; a node that is no more has stopped too."""
    nodes = plan.nodes_of(placement)
    beats = {n.token: beat_of(n) for n in nodes}
    if not all(n.state == NodeState.GONE or _has_stopped(beats[n.token]) for n in nodes):
        return placement
    if finished_draining(plan, placement):
        return plan.placements[placement.id]
    return plan.placement(
        placement,
        PlacementState.RELEASING,
        placement.reason,
        drained=True,
        stopped_at_ms=placement.stopped_at_ms or plan.now_ms,
    )


def _has_stopped(beat: Beat | None) -> bool:
    """Nothing trains there and nothing is on its way to the store: a job that exits says so before it is saved."""
    if beat is None:
        return False
    if beat.job.state == wire.JOB_EXITED:
        return beat.job.saved or beat.phase == wire.PHASE_STOPPED
    return beat.job.state in (wire.JOB_STOPPED, wire.JOB_FENCED, wire.JOB_LEASE_LOST, wire.JOB_FAILED)


def _follow(plan: Plan, job: Job) -> None:
    """A job's state follows from its placements."""
    if job.state.final:
        return
    open_placements = [
        p for p in plan.placements_of(job) if p.state not in (PlacementState.RELEASING, PlacementState.GONE)
    ]
    if job.state == JobState.CANCELLING:
        if not open_placements:
            plan.job(job, JobState.CANCELLED, _why_cancelled(job))
        return
    training = next((p for p in open_placements if p.state == PlacementState.ACTIVE), None)
    coming = [p for p in open_placements if p.state.landing or p.state == PlacementState.READY]
    if job.active_placement_id and (training is None or training.id != job.active_placement_id):
        # The old copy is draining or lost; whoever commits next is decided by the fence, not by this pointer.
        job = plan.job(job, active_placement_id=None)
    if training is not None:
        moving = any(p.purpose == Purpose.MOVE for p in coming)
        plan.job(job, JobState.MOVING if moving else JobState.RUNNING, training.reason)
    elif job.state in (JobState.RUNNING, JobState.MOVING):
        draining = next((p for p in open_placements if p.state == PlacementState.DRAINING), None)
        if job.state == JobState.MOVING and coming and not any(p.lost for p in plan.placements_of(job)):
            return  # the hand-over itself: nobody trains between the drain and the fence
        lost = draining or max(plan.placements_of(job), key=lambda p: p.state_since_ms, default=None)
        plan.job(job, JobState.RECOVERING, lost.reason if lost else "its placement is gone")
    elif job.state in (JobState.QUEUED, JobState.PAUSED) and coming:
        plan.job(job, JobState.STARTING, coming[0].reason)
    elif job.state == JobState.STARTING and not coming:
        plan.job(job, JobState.QUEUED, job.reason)
