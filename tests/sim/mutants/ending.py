"""Ending machines."""

from typing import Any

from broker.core.errors import ProviderError
from broker.core.model import NodeState, PlacementState
from broker.migration.effects import DeleteNode
from tests.sim.faults import Kind
from tests.sim.mutants.mutant import Mutant


def _delete_before_its_row(real: Any) -> Any:
    def ask(plan: Any, node: Any, placement: Any) -> None:
        if node.state in (NodeState.RUNNING, NodeState.REQUESTED, NodeState.UNREACHABLE):
            plan.effects.append(DeleteNode(node.token))
        else:
            real(plan, node, placement)

    return ask


def _delete_once(real: Any) -> Any:
    def ask(plan: Any, node: Any, placement: Any) -> None:
        if node.state == NodeState.RELEASING and node.delete_sent_at_ms is not None:
            plan.node(node, NodeState.GONE, "deleted")
        else:
            real(plan, node, placement)

    return ask


def _rank_0_only(real: Any) -> Any:
    def ask(plan: Any, node: Any, placement: Any) -> None:
        if node.rank == 0 or node.state in (NodeState.INTENDED, NodeState.UNKNOWN):
            real(plan, node, placement)
        else:
            plan.node(node, NodeState.GONE, "its gang is released")

    return ask


def _gang_half_kept(real: Any) -> Any:
    """A node that is gone does not end its placement."""

    def tend(plan: Any, placement: Any) -> None:
        before = plan.placements[placement.id]
        real(plan, placement)
        gone = [n for n in plan.nodes_of(placement) if n.state == NodeState.GONE]
        now = plan.placements[placement.id]
        if (
            gone
            and len(gone) < len(plan.nodes_of(placement))
            and now.state == PlacementState.RELEASING != before.state
        ):
            plan.placements[placement.id] = plan.changed[f"placement {placement.id}"] = before

    return tend


def _silence_is_death(real: Any) -> Any:
    def listen(plan: Any, node: Any) -> None:
        if (
            node.seen_at_ms is not None
            and plan.now_ms - node.seen_at_ms > plan.rules.unreachable_after_s * 1000
        ):
            plan.node(node, NodeState.GONE, "silent")
        else:
            real(plan, node)

    return listen


def _one_denial(real: Any) -> Any:
    def settle(plan: Any, node: Any, outcome: Any) -> None:
        if outcome is None and node.state not in (NodeState.UNKNOWN, NodeState.GONE):
            plan.node(node, gone_confirmations=plan.rules.gone_confirmations)
        else:
            real(plan, node, outcome)

    return settle


def _errors_are_denials(real: Any) -> Any:
    return lambda plan, node, outcome: real(
        plan, node, None if isinstance(outcome, ProviderError) else outcome
    )


ENDING: dict[str, Mutant] = {
    "delete_before_intent": Mutant(
        "a delete is sent before the row says releasing",
        "broker.migration.plan.ask_for_end",
        _delete_before_its_row,
    ),
    "delete_not_confirmed": Mutant(
        "a delete that was sent is a delete that was done",
        "broker.migration.plan.ask_for_end",
        _delete_once,
        frozenset({Kind.REQUEST_LOST}),
    ),
    "gang_half_deleted": Mutant(
        "only rank 0 is deleted", "broker.migration.plan.ask_for_end", _rank_0_only, seeds=(1,)
    ),
    "gang_half_kept": Mutant(
        "a gang goes on without a node",
        "broker.migration.plan.tend_nodes",
        _gang_half_kept,
        frozenset({Kind.RECLAIM}),
        eager=3,
    ),
    "silence_is_death": Mutant(
        "unreachable is taken for dead",
        "broker.migration.nodes._listen",
        _silence_is_death,
        frozenset({Kind.NODE_CUT}),
    ),
    "one_denial": Mutant(
        "a cloud is believed at its first word",
        "broker.migration.reconcile.settle_find",
        _one_denial,
        frozenset({Kind.OMITTED, Kind.NODE_CUT}),
    ),
    "errors_are_denials": Mutant(
        "a cloud that does not answer has denied",
        "broker.migration.reconcile.settle_find",
        _errors_are_denials,
        seeds=(1,),
    ),
}
