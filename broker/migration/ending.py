"""Carrying out an answer that takes a place away: a pause, after which the job waits, or a stop, which is its end.

What trains may save first: it drains like a copy that is moved, and what it commits then is what it goes on from.
"""

from broker.core.model import Cut, DecisionKind, Job, JobState, PlacementState
from broker.migration.rules import Rules
from broker.migration.view import Plan
from broker.store.state import Tx


def give_up(tx: Tx, job: Job, kind: DecisionKind, reason: str, rules: Rules, now_ms: int) -> bool:
    """Write it. False when the copy that was meant trains no more: then the next pass asks again.

    Args:
        job: As it stands now.
        kind: PAUSE or STOP.
        reason: For people; it stays with the job.
    """
    placements = tx.placements(job_id=job.id)
    training = next((p for p in placements if p.state == PlacementState.ACTIVE), None)
    if (training.id if training else None) != job.active_placement_id:
        return False
    plan = Plan.of(now_ms, rules, [job], placements, [])
    match kind:
        case DecisionKind.PAUSE:
            if training is not None:
                plan.placement(training, PlacementState.DRAINING, reason, cut=Cut.FINAL)
            plan.job(job, JobState.PAUSED, reason, active_placement_id=None)
        case DecisionKind.STOP:
            plan.job(
                job, JobState.CANCELLING, reason
            )  # the next pass drains what trains and releases the rest
        case _:
            raise AssertionError(f"{kind} takes no place away")
    for event in plan.events:
        tx.emit(event)
    for row in plan.changed.values():
        tx.save(row)
    return True
