"""Renting machines."""

from dataclasses import replace
from typing import Any

from broker.core.model import NodeState, PlacementState
from broker.migration.effects import CreateNode
from tests.sim.faults import Kind
from tests.sim.mutants.mutant import Mutant


def _random_token(real: Any) -> Any:
    calls = iter(range(10**9))

    async def call(self: Any, effect: Any, node: Any, placement: Any, job: Any) -> Any:
        if isinstance(effect, CreateNode):
            node = replace(node, token=f"bk-{next(calls):026d}-{node.rank}")
        return await real(self, effect, node, placement, job)

    return call


def _token_not_stored(real: Any) -> Any:
    """A token that only its process remembers: the next one draws another."""

    async def call(self: Any, effect: Any, node: Any, placement: Any, job: Any) -> Any:
        if isinstance(effect, CreateNode):
            node = replace(node, token=f"{node.token[:-4]}{self.store.epoch:02d}-{node.rank}")
        return await real(self, effect, node, placement, job)

    return call


def _create_before_its_row(real: Any) -> Any:
    """The request leaves in the state that a crash leaves behind: nothing in the rows tells of it."""

    def create(plan: Any, node: Any) -> None:
        if not (plan.paused or plan.report_only):
            plan.effects.append(CreateNode(node.token))

    return create


def _resend_at_once(real: Any) -> Any:
    def look_up(plan: Any, node: Any, placement: Any) -> None:
        if placement.state != PlacementState.INTENDED:
            plan.node(node, NodeState.GONE, "given up")
        else:
            real(plan, node, placement)

    return look_up


RENTING: dict[str, Mutant] = {
    "random_token": Mutant(
        "each create has a token of its own", "broker.migration.reconcile.Reconciler._call", _random_token
    ),
    "token_not_stored": Mutant(
        "a token is not what the row says", "broker.migration.reconcile.Reconciler._call", _token_not_stored
    ),
    "one_token_per_gang": Mutant(
        "the nodes of a gang share a token",
        "broker.migration.decide.node_token",
        lambda real: lambda stem, rank: real(stem, 0),
    ),
    "create_before_intent": Mutant(
        "a create is sent while its row says intended",
        "broker.migration.nodes._create",
        _create_before_its_row,
    ),
    "unknown_given_up": Mutant(
        "a create without an answer is forgotten",
        "broker.migration.nodes._look_up",
        _resend_at_once,
        frozenset({Kind.LATE, Kind.REPLY_LOST}),
        eager=3,
        seeds=(6,),
    ),
}
