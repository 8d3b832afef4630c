"""Rules for single nodes: create once, look up before asking again, and never take silence for death. Pure."""

from broker.core.model import JobState, Node, NodeState, Placement, PlacementState
from broker.core.time import format_duration
from broker.migration.effects import CreateNode, DeleteNode, FindNode
from broker.migration.view import Plan, beat_of

_MS = 1000
# A delete may be lost like any other request; so it is repeated, at a pace no cloud minds.
_DELETE_AGAIN_MS = 30_000


def tend_nodes(plan: Plan, placement: Placement) -> None:
    """Creates, look-ups and silence of one placement's nodes; a lost node ends its placement."""
    for node in plan.nodes_of(placement):
        match node.state:
            case NodeState.INTENDED if placement.state == PlacementState.INTENDED:
                _create(plan, node)
            case NodeState.UNKNOWN:
                _look_up(plan, node, placement)
            case NodeState.REQUESTED:
                _ask(plan, node)
            case NodeState.RUNNING | NodeState.UNREACHABLE:
                _listen(plan, node)
    if placement.state in (PlacementState.RELEASING, PlacementState.GONE):
        return
    gone = next((n for n in plan.nodes_of(placement) if n.state == NodeState.GONE), None)
    if gone is not None:
        # A gang is whole or it is nothing: one node lost ends the placement. HEAD fences whatever still runs.
        trained = placement.state in (PlacementState.ACTIVE, PlacementState.DRAINING)
        if placement.state == PlacementState.DRAINING:
            return  # draining ends by itself once every node has stopped or is gone
        plan.placement(placement, PlacementState.RELEASING, gone.reason, lost=trained)


def _create(plan: Plan, node: Node) -> None:
    """The row says `unknown` before the request leaves: whoever finds it after a crash looks the token up first."""
    if plan.paused or plan.report_only:
        return
    plan.node(node, NodeState.UNKNOWN, "create sent", create_sent_at_ms=plan.now_ms)
    plan.effects.append(CreateNode(node.token))


def _look_up(plan: Plan, node: Node, placement: Placement) -> None:
    """A create whose outcome we do not know: look, then resend the same token, never a new one."""
    sent = node.create_sent_at_ms or node.created_at_ms
    waited_s = (plan.now_ms - sent) / _MS
    wanted = (
        placement.state == PlacementState.INTENDED and plan.jobs[node.job_id].state != JobState.CANCELLING
    )
    if (
        wanted
        and node.gone_confirmations
        and waited_s > plan.rules.resend_after_s
        and not (plan.paused or plan.report_only)
    ):
        plan.node(node, reason="create sent again", create_sent_at_ms=plan.now_ms, gone_confirmations=0)
        plan.effects.append(CreateNode(node.token))
    elif (
        not wanted
        and node.gone_confirmations >= plan.rules.gone_confirmations
        and waited_s > plan.rules.forget_after_s
    ):
        plan.node(node, NodeState.GONE, "never came to be")
    else:
        plan.effects.append(FindNode(node.token))


def _ask(plan: Plan, node: Node) -> None:
    """Requested: ask until the cloud says running, or denies it often enough."""
    if node.gone_confirmations >= plan.rules.gone_confirmations:
        plan.node(node, NodeState.GONE, "the cloud no longer knows it")
    else:
        plan.effects.append(FindNode(node.token))


def _listen(plan: Plan, node: Node) -> None:
    """Unreachable is not dead: silence only makes us ask, and the cloud's word decides."""
    if node.gone_confirmations >= plan.rules.gone_confirmations:
        plan.node(node, NodeState.GONE, "ended without our asking")
        return
    if node.seen_at_ms is None:
        # Booting. Its deadline bounds that, but a spot node may be taken back before its agent ever calls.
        plan.effects.append(FindNode(node.token))
        return
    silent_s = (plan.now_ms - node.seen_at_ms) / _MS
    if silent_s <= _patience_s(plan, node):
        if node.state == NodeState.UNREACHABLE:
            plan.node(node, NodeState.RUNNING, "agent calls again", gone_confirmations=0)
        return
    if node.state == NodeState.RUNNING:
        plan.node(node, NodeState.UNREACHABLE, f"silent for {format_duration(silent_s)}")
    if silent_s > plan.rules.run_lease_s:
        # Its own lease has run out as well: it has stopped training, or HEAD will stop it. End it and recover.
        node = plan.nodes[node.token]
        placement = plan.placements[node.placement_id]
        if placement.state not in (PlacementState.RELEASING, PlacementState.GONE):
            plan.placement(
                placement, PlacementState.RELEASING, "silent for longer than its run lease", lost=True
            )
        return
    plan.effects.append(FindNode(node.token))


def _patience_s(plan: Plan, node: Node) -> float:
    """Silence that is borne before the cloud is asked: a few beats once a notice has told that the end is near."""
    beat = beat_of(node)
    if beat is not None and beat.notice is not None:
        return min(plan.rules.unreachable_after_s, 3 * plan.rules.beat_s)
    return plan.rules.unreachable_after_s


def ask_for_end(plan: Plan, node: Node, placement: Placement) -> None:
    """Releasing: delete until the cloud no longer knows it; a node that was never asked for is gone at once."""
    if node.state == NodeState.GONE:
        return
    if node.state == NodeState.INTENDED:
        plan.node(node, NodeState.GONE, "never asked for")
        return
    if node.state == NodeState.UNKNOWN:
        return  # `_look_up` finds it, or gives it up after every late request must have arrived
    if node.state != NodeState.RELEASING:
        node = plan.node(node, NodeState.RELEASING, placement.reason, gone_confirmations=0)
    if node.gone_confirmations >= plan.rules.gone_confirmations:
        plan.node(node, NodeState.GONE, node.reason)
        return
    if plan.report_only:
        return
    if node.delete_sent_at_ms is not None:
        plan.effects.append(FindNode(node.token))
    if node.delete_sent_at_ms is None or plan.now_ms >= node.delete_sent_at_ms + _DELETE_AGAIN_MS:
        plan.node(node, delete_sent_at_ms=plan.now_ms)
        plan.effects.append(DeleteNode(node.token))
