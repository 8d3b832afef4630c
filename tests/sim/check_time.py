"""What is wrong only when it lasts (I3, I8, I15)."""

from typing import TYPE_CHECKING

from broker.core.model import NodeState, Placement, PlacementState
from lab import machines as lab
from tests.sim.copy import Copy
from tests.sim.daemon import COLLECT_EVERY_S

if TYPE_CHECKING:
    from tests.sim.node import SimNode
    from tests.sim.truth import Truth

TICK_S = 15.0
# A machine may be unowned this long while somebody looks: grace, two sweeps, a lost delete or two.
UNOWNED_S = 900.0
# A gang may be without one of its nodes this long while somebody looks: a few passes.
HALF_S = 180.0
OVERLAP_SLACK_S = 45.0
_LEAVING = (PlacementState.DRAINING, PlacementState.RELEASING, PlacementState.GONE)


def tick(truth: "Truth") -> None:
    """Every `TICK_S` seconds."""
    sim = truth.sim
    for machine in sim.world.machines():
        if machine.holds_stock:
            _owned(truth, machine)
    for placement in truth.placements.values():
        if placement.state not in _LEAVING:
            _whole(truth, placement)
    for node in sim.fleet.values():
        copy = node.copy
        if copy is not None and copy.training and node.paused_until_s <= sim.loop.now_s:
            _overlap(truth, node, copy)


def _owned(truth: "Truth", machine: lab.Machine) -> None:
    row = truth.nodes.get(machine.labels["token"])
    if row is not None and row.state != NodeState.GONE:
        truth.unowned_s.pop(machine.id, None)
        return
    if truth.sim.collector_can_see(machine):
        truth.unowned_s[machine.id] = truth.unowned_s.get(machine.id, 0.0) + TICK_S
    if truth.unowned_s.get(machine.id, 0.0) > UNOWNED_S + 2 * COLLECT_EVERY_S:
        truth.sim.violate(
            "I3 no leak", f"{machine.id} ({machine.labels['token']}) is billed and nobody owns it"
        )


def _overlap(truth: "Truth", node: "SimNode", copy: Copy) -> None:
    head = truth.head(copy.order.job_id)
    if copy.generation >= head.generation:
        return
    overlap_s = truth.sim.loop.now_s - max(head.fenced_at_s, node.thawed_at_s)
    if overlap_s > 60:
        truth.sim.chaos.reached("a zombie trained beside the new copy")
    if overlap_s > truth.sim.rules.run_lease_s + OVERLAP_SLACK_S:
        truth.sim.violate("I8 zombies end", f"{node.token} trains {overlap_s:.0f} s after it was fenced")


def _whole(truth: "Truth", placement: Placement) -> None:
    states = {n.state for n in truth.nodes.values() if n.placement_id == placement.id}
    if NodeState.GONE not in states:
        return
    if truth.sim.daemon_can_write():
        truth.half_s[placement.id] = truth.half_s.get(placement.id, 0.0) + TICK_S
    if truth.half_s.get(placement.id, 0.0) > HALF_S:
        truth.sim.violate("I15 all or none", f"{placement.id} is {placement.state} without one of its nodes")
