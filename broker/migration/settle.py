"""What an effect's outcome changes. Pure, and tolerant of rows that moved on meanwhile.

An outcome is written to the rows as they are *now*, not as they were when the effect was sent: a placement may have
been released while its create was on its way, and then the node that came is one to delete, not one to boot.
"""

from typing import Any

from broker.core.errors import (
    Denied,
    Invalid,
    OutOfCapacity,
    OutOfQuota,
    ProviderError,
)
from broker.core.model import EndedBy, JobState, Node, NodeState, PlacementState
from broker.core.ports import CloudNode, CloudState
from broker.migration.effects import Fence
from broker.migration.view import STORE_AWAITED, Plan

Outcome = CloudNode | ProviderError | None

# Answers after which a create has certainly not happened and will not.
_REFUSALS = (OutOfCapacity, OutOfQuota, Invalid, Denied)


def settle_create(plan: Plan, node: Node, outcome: Outcome) -> None:
    """The reply to a create, or its absence."""
    if isinstance(outcome, CloudNode):
        _seen(plan, node, outcome)
        return
    if isinstance(outcome, _REFUSALS) and node.state == NodeState.UNKNOWN:
        plan.node(node, NodeState.GONE, f"refused: {outcome}")
        placement = plan.placements[node.placement_id]
        scope = outcome.scope if isinstance(outcome, OutOfCapacity | OutOfQuota) else "zone"
        plan.avoid(placement, str(outcome), "cloud" if isinstance(outcome, Denied) else scope)
        if placement.state not in (PlacementState.RELEASING, PlacementState.GONE):
            plan.placement(
                placement, PlacementState.RELEASING, f"{outcome.code.replace('_', ' ')}: {outcome}"
            )
        return
    # Lost, throttled or down: the token stays unknown, and the next pass looks it up.
    plan.node(node, reason=f"create unanswered: {outcome}")


def settle_find(plan: Plan, node: Node, outcome: Outcome) -> None:
    """The cloud's word about a token. An error is no word at all."""
    if isinstance(outcome, ProviderError):
        return
    if outcome is not None:
        _seen(plan, node, outcome)
        return
    if node.state != NodeState.UNKNOWN and _within_list_lag(plan, node):
        return  # it has been taken and may not be listed yet: a denial is no word either
    count = node.gone_confirmations + 1
    if node.state not in (NodeState.UNKNOWN, NodeState.GONE) and count >= plan.rules.gone_confirmations:
        # The cloud keeps no record of the end; the meter stopped at the latest when it first denied the node. Nor of
        # the start, where the node was ended before we saw it run: not before its create was sent.
        by = EndedBy.US if node.delete_sent_at_ms is not None else EndedBy.NODE
        fields: dict[str, Any] = {
            "billed_from_ms": node.billed_from_ms or (node.create_sent_at_ms if node.provider_id else None),
            "ended_at_ms": node.ended_at_ms or plan.now_ms,
            "ended_by": node.ended_by or by,
        }
        plan.node(node, gone_confirmations=count, **fields)
        return
    plan.node(node, gone_confirmations=count)


def _within_list_lag(plan: Plan, node: Node) -> bool:
    sent_ms = node.create_sent_at_ms or node.created_at_ms
    return plan.now_ms - sent_ms <= plan.rules.resend_after_s * 1000


def _seen(plan: Plan, node: Node, seen: CloudNode) -> None:
    """The cloud shows the node: take over its id, its meter and its state."""
    facts: dict[str, Any] = {
        "provider_id": seen.provider_id,
        "address": seen.address or node.address,
        "billed_from_ms": seen.billed_from_ms or node.billed_from_ms,
        "ended_at_ms": seen.ended_at_ms or node.ended_at_ms,
        "ended_by": seen.ended_by or node.ended_by,
        "gone_confirmations": 0,
    }
    if node.state == NodeState.GONE:
        # A create that arrived after its row was given up. The collector ends the machine; the row stays final.
        return
    if seen.state == CloudState.TERMINATED:
        if facts["ended_by"] is None:
            facts["ended_by"] = EndedBy.US if node.delete_sent_at_ms is not None else EndedBy.NODE
        facts["ended_at_ms"] = facts["ended_at_ms"] or plan.now_ms
        ours = node.state == NodeState.RELEASING
        plan.node(node, NodeState.GONE, node.reason if ours else f"ended by {facts['ended_by']}", **facts)
    elif node.state in (NodeState.UNKNOWN, NodeState.REQUESTED):
        running = seen.state == CloudState.RUNNING
        state = NodeState.RUNNING if running else NodeState.REQUESTED
        plan.node(
            node, state, "running at the cloud" if running else "the cloud has taken the order", **facts
        )
    else:
        plan.node(node, **facts)


def settle_fence(plan: Plan, effect: Fence, error: str | None = None) -> None:
    """HEAD carries the generation: from here on this placement, and no other, can commit.

    Args:
        error: Why that is not known yet; the fence is repeated, and whoever looks at the job reads why it waits.
    """
    placement = plan.placements.get(effect.placement_id)
    job = plan.jobs.get(effect.job_id)
    if placement is None or job is None or placement.state != PlacementState.READY:
        return  # released meanwhile; its generation is spent, the next placement gets a newer one
    if job.state.final or job.state == JobState.CANCELLING or placement.generation != effect.generation:
        return
    if error is not None:
        reason = f"{STORE_AWAITED}: {error}"
        plan.placement(placement, reason=reason)
        plan.job(job, reason=reason)
        return
    plan.note(
        "checkpoint.fenced",
        job_id=job.id,
        placement_id=placement.id,
        project_id=job.project_id,
        generation=effect.generation,
    )
    reason = f"trains on {placement.offer.key}"
    plan.placement(placement, PlacementState.ACTIVE, reason, fenced=True, active_at_ms=plan.now_ms)
    plan.job(job, JobState.RUNNING, reason, active_placement_id=placement.id)
