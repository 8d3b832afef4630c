"""Carrying out an answer that takes a place away: a pause, after which the job waits, or a stop, which is its end.

What trains may save first: it drains like a copy that is moved, and what it commits then is what it goes on from.
"""

from broker.core.model import Cut, Decision, DecisionKind, Job, JobState, PlacementState
from broker.migration.rules import Rules
from broker.migration.view import STOPPED, Plan
from broker.store.state import Tx


def give_up(tx: Tx, job: Job, decision: Decision, rules: Rules) -> bool:
    """Write it. False when the copy that was meant trains no more: then the next pass asks again.

    Args:
        job: As it stands now.
        decision: PAUSE or STOP.
    """
    placements = tx.placements(job_id=job.id)
    training = next((p for p in placements if p.state == PlacementState.ACTIVE), None)
    if (training.id if training else None) != job.active_placement_id:
        return False
    plan, reason = Plan.of(decision.at_ms, rules, [job], placements, []), decision.summary
    match decision.kind:
        case DecisionKind.PAUSE:
            if training is not None:
                plan.placement(training, PlacementState.DRAINING, reason, cut=Cut.FINAL)
            plan.job(job, JobState.PAUSED, reason, active_placement_id=None)
        case DecisionKind.STOP:
            # The next pass drains what trains and releases the rest, as for a job that is cancelled.
            why = f"{STOPPED} {decision.policy}: {reason.removeprefix('stops the job: ')}"
            plan.job(job, JobState.CANCELLING, why)
        case _:
            raise AssertionError(f"{decision.kind} takes no place away")
    for event in plan.events:
        tx.emit(event)
    for row in plan.changed.values():
        tx.save(row)
    return True
