"""What is known to be true, and the invariants of rows (I5, I7, I11, I14, I15, I16, I17), checked as they are committed.

`docs/internals/migration.md` lists all. They are checked at the moment something happens, against the world's own truth:
machines, HEAD, bills. Rows are looked at only where the rule is about rows, and then as they were committed. Every check
may name what made it let something pass: a lie of the cloud, a restored database. The others: the modules `check_*.py`.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.core.model import (
    Decision,
    Event,
    Job,
    JobState,
    Node,
    NodeState,
    Placement,
    PlacementState,
    Purpose,
)
from broker.migration.states import JOB_EDGES, NODE_EDGES, PLACEMENT_EDGES
from broker.store.rows import Saved
from tests.sim import check_handing_over, check_limits
from tests.sim.daemon import SimDaemon
from tests.sim.history import short

if TYPE_CHECKING:
    from tests.sim.sim import Sim


HOUR_MS = 3_600_000
# A machine may be unowned this long while somebody looks: grace, two sweeps, a lost delete or two.
UNOWNED_S = 900.0
OVERLAP_SLACK_S = 45.0

_EDGES = {Job: JOB_EDGES, Placement: PLACEMENT_EDGES, Node: NODE_EDGES}
_FIRST = {Job: JobState.QUEUED, Placement: PlacementState.INTENDED, Node: NodeState.INTENDED}
_MACHINES = {"job": JOB_EDGES, "placement": PLACEMENT_EDGES, "node": NODE_EDGES}
_STATES = {"job": JobState, "placement": PlacementState, "node": NodeState}


@dataclass
class JobTruth:
    """What the store's objects say of one job.

    Attributes:
        step: Of the last commit; commits: seq to (generation, step, writer).
        fenced_at_s: When HEAD got its generation.
        damaged: Chunks of it have been corrupted.
    """

    generation: int = 0
    seq: int = 0
    step: int = 0
    fenced_at_s: float = 0.0
    damaged: bool = False
    commits: dict[int, tuple[int, int, str]] = field(default_factory=dict)
    owner: dict[int, str] = field(default_factory=dict)


class Truth:
    """All checks of one seed."""

    def __init__(self, sim: "Sim") -> None:
        self.sim = sim
        self.jobs: dict[str, Job] = {}
        self.placements: dict[str, Placement] = {}
        self.nodes: dict[str, Node] = {}
        self.metered: set[str] = set()  # tokens whose row has once had the start of a meter
        self.heads: dict[str, JobTruth] = {}
        self.newest_epoch = 0
        self.report_only_since_s: float | None = None
        self.paused_since_s: float | None = None
        self.unowned_s: dict[str, float] = {}
        self.half_s: dict[str, float] = {}

    def head(self, job_id: str) -> JobTruth:
        return self.heads.setdefault(job_id, JobTruth())

    # -- rows ---------------------------------------------------------------------------------------------------------

    def reload(self, daemon: SimDaemon) -> None:
        """A daemon has opened the database: what it holds is what counts, also when it is an older one."""
        with daemon.store.read() as tx:
            self.jobs = {j.id: j for j in tx.jobs()}
            self.placements = {p.id: p for p in tx.placements()}
            self.nodes = {n.token: n for n in tx.nodes()}
        self.newest_epoch = daemon.store.epoch

    def rows(
        self, daemon: SimDaemon, saved: list[Saved], events: list[Event], decisions: list[Decision]
    ) -> None:
        """A transaction has been committed."""
        if daemon.store.epoch != self.newest_epoch:
            self.sim.violate("I7 stale epoch", f"daemon {daemon.number} wrote under {daemon.store.epoch}")
        for event in events:
            self._event(event)
        if any("recoveries in the last hour" in decision.summary for decision in decisions):
            self.sim.chaos.reached("recoveries reached their cap")
        placements = [v for v in saved if isinstance(v, Placement)]
        new = [p for p in placements if p.id not in self.placements]
        active = {p.id for p in self.placements.values() if p.state == PlacementState.ACTIVE}
        for value in saved:
            self._row(value)
        for placement in placements:
            if placement.id in active and placement.state != PlacementState.ACTIVE:
                check_handing_over.stopped(self, placement)
        for value in saved:
            if isinstance(value, Placement) and value.state == PlacementState.GONE:
                self._whole(value)
        for placement in new:
            decision = next((d for d in decisions if d.id == placement.decision_id), None)
            check_limits.intended(self, placement, decision)
            check_handing_over.intended(self, placement)

    def _event(self, event: Event) -> None:
        machine, _, after = event.kind.partition(".")
        before = event.data.get("before")
        if machine not in _MACHINES or before is None:
            return
        state = _STATES[machine]
        edges = _MACHINES[machine][state(before)]  # type: ignore[index]
        if state(after) not in edges:
            self.sim.violate("I5 edges", f"{machine} went {before} -> {after}")

    def _row(self, value: Saved) -> None:
        kind = type(value)
        key = value.token if isinstance(value, Node) else value.id
        table: dict[str, Saved] = {Job: self.jobs, Placement: self.placements, Node: self.nodes}[kind]  # type: ignore[assignment]
        before = table.get(key)
        if isinstance(value, Node) and value.billed_from_ms is not None:
            self.metered.add(key)
        if not value.reason:
            self.sim.violate("I11 reason", f"{key} is {value.state} without a reason")
        if before is None:
            if value.state != _FIRST[kind]:
                self.sim.violate("I5 edges", f"{key} began as {value.state}")
        elif before.state != value.state:
            self._moved(before, value)
        table[key] = value

    def _moved(self, before: Saved, after: Saved) -> None:
        if after.state not in _reachable(_EDGES[type(after)], before.state):
            self.sim.violate("I5 edges", f"{after} came from {before.state}")
        key = after.token if isinstance(after, Node) else after.id
        self.sim.note(
            "row",
            key=short(key),
            state=after.state,
            reason=f"'{after.reason[:70]}'",
        )
        if isinstance(after, Node) and after.state == NodeState.GONE:
            assert isinstance(before, Node)
            self._node_gone(before, after)
        if isinstance(after, Placement) and after.state == PlacementState.RELEASING:
            states = {n.state for n in self.nodes.values() if n.placement_id == after.id}
            if NodeState.GONE in states and len(states) > 1:
                self.sim.chaos.reached("a gang was released because one node failed")
        if isinstance(after, Placement) and after.state == PlacementState.ACTIVE:
            head = self.head(after.job_id)
            nodes = [n for n in self.nodes.values() if n.placement_id == after.id]
            if len(nodes) != self.jobs[after.job_id].spec.resources.nodes:
                self.sim.violate("I15 all or none", f"{after.id} trains on {len(nodes)} nodes")
            if after.purpose == Purpose.MOVE:
                self.sim.chaos.reached("a move was carried out")
            if after.generation is None or head.generation < after.generation:
                self.sim.violate(
                    "I16 fence first",
                    f"{after.id} trains under generation {after.generation}, HEAD has generation {head.generation}",
                )
        if isinstance(after, Job) and after.state == JobState.SUCCEEDED:
            head, plan = self.head(after.id), self.sim.plans[after.id]
            if head.step != plan.total_steps:
                self.sim.violate(
                    "I17 finished", f"{after.id} succeeded; HEAD holds step {head.step} of {plan.total_steps}"
                )

    def _whole(self, placement: Placement) -> None:
        nodes = [n for n in self.nodes.values() if n.placement_id == placement.id]
        left = [n.token for n in nodes if n.state != NodeState.GONE]
        if left:
            self.sim.violate("I15 all or none", f"{placement.id} is gone and {left} are not")

    def _node_gone(self, before: Node, after: Node) -> None:
        """A row may close only on the cloud's word, said often enough, and when no request can arrive any more."""
        said = after.reason.startswith(("refused", "ended by"))
        if before.state == NodeState.UNKNOWN and not said and before.create_sent_at_ms is not None:
            waited_s = (after.state_since_ms - before.create_sent_at_ms) / 1000
            if waited_s <= self.sim.rules.forget_after_s and not self.sim.clock_was_wrong:
                self.sim.violate(
                    "I14 confirmed", f"{after.token} is given up {waited_s:.0f} s after its create"
                )
        for machine in self.sim.machines_of(after.token):
            if not machine.holds_stock:
                continue
            if before.state in (NodeState.INTENDED, NodeState.UNKNOWN):
                self.sim.chaos.reached("a row was given up and its machine exists")
                self.sim.orphans.add(after.token)
                continue
            denied = self.sim.clouds[machine.cloud].denied.get(machine.id, 0)
            if denied < self.sim.rules.gone_confirmations:
                self.sim.violate(
                    "I14 confirmed", f"{after.token} is gone by its row ({after.reason}) and runs"
                )
            self.sim.chaos.reached("the cloud denied a machine that runs, often enough")
            self.sim.disown(after.token)


def _reachable(edges: dict[object, frozenset[object]], start: object) -> set[object]:
    """Several steps of one pass are one save."""
    found: set[object] = set()
    todo = [start]
    while todo:
        for state in edges[todo.pop()]:
            if state not in found:
                found.add(state)
                todo.append(state)
    return found
