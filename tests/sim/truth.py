"""The invariants, checked at the moment something happens, against the world's own truth: machines, HEAD, bills.

`docs/internals/migration.md` lists them. Rows are looked at only where the rule is about rows, and then as they were
committed. Every check may name what made it let something pass: a lie of the cloud, a restored database.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.core.model import (
    Decision,
    DecisionKind,
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
from broker.wire.head import HEAD_NAME, Head, decode_head
from broker.wire.manifest import decode_manifest
from lab import machines as lab
from tests.sim.cloud import Deed
from tests.sim.copy import Copy
from tests.sim.daemon import COLLECT_EVERY_S, SimDaemon

if TYPE_CHECKING:
    from tests.sim.node import SimNode
    from tests.sim.sim import Sim

TICK_S = 15.0
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
        self.heads: dict[str, JobTruth] = {}
        self.newest_epoch = 0
        self.report_only_since_s: float | None = None
        self.paused_since_s: float | None = None
        self._unowned_s: dict[str, float] = {}
        self._zombie_since_s: dict[tuple[str, int], float] = {}

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
        new = [v for v in saved if isinstance(v, Placement) and v.id not in self.placements]
        for value in saved:
            self._row(value)
        for value in saved:
            if isinstance(value, Placement) and value.state == PlacementState.GONE:
                self._whole(value)
        for placement in new:
            decision = next((d for d in decisions if d.id == placement.decision_id), None)
            self._intended(placement, decision, daemon)

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
            key=key[:14] if isinstance(after, Node) else key,
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
                    f"{after.id} trains under {after.generation}, HEAD has {head.generation}",
                )
        if isinstance(after, Job) and after.state == JobState.SUCCEEDED:
            head, plan = self.head(after.id), self.sim.plan_of(after.id)
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

    def _intended(self, placement: Placement, decision: Decision | None, daemon: SimDaemon) -> None:
        sim, rows = self.sim, self.placements
        if decision is None:
            return sim.violate("I11 reason", f"{placement.id} has no decision")
        open_nodes = [n for n in self.nodes.values() if n.state != NodeState.GONE]
        burn = sum(rows[n.placement_id].price_micro_usd_h for n in open_nodes)
        caps, rules, policy = sim.caps, sim.rules, sim.policy
        assert caps.max_nodes is not None
        assert caps.max_micro_usd_per_hour is not None
        if len(open_nodes) > caps.max_nodes:
            sim.violate("I10 caps", f"{placement.id} makes {len(open_nodes)} nodes")
        if burn > caps.max_micro_usd_per_hour:
            sim.violate("I10 caps", f"{placement.id} makes {burn} micro-USD/h")
        if placement.purpose == Purpose.RECOVER:
            recent = [
                p
                for p in rows.values()
                if p.purpose == Purpose.RECOVER and p.created_at_ms > decision.at_ms - HOUR_MS
            ]
            if len(recent) > rules.recoveries_per_hour:
                sim.violate("I10 caps", f"{placement.id} is recovery {len(recent)} of this hour")
        if placement.purpose != Purpose.MOVE:
            return None
        if decision.kind != DecisionKind.MOVE or not decision.acted:
            sim.violate("I9 prices", f"{placement.id} moves by a decision that says {decision.kind}")
        moves = [p for p in rows.values() if p.job_id == placement.job_id and p.purpose == Purpose.MOVE]
        done_ms = [p.active_at_ms for p in moves if p.active_at_ms is not None]
        if any(decision.at_ms - at < policy.cooldown_s * 1000 for at in done_ms):
            sim.violate("I10 caps", f"{placement.id} moves within the cooldown")
        if sum(at > decision.at_ms - 24 * HOUR_MS for at in done_ms) >= policy.moves_per_day:
            sim.violate("I10 caps", f"{placement.id} is one move too many for today")
        landing = [
            p for p in rows.values() if p.purpose == Purpose.MOVE and (p.state.landing or p.state == "ready")
        ]
        if len(landing) > policy.moves_at_once:
            sim.violate("I10 caps", f"{placement.id} is move {len(landing)} at once")
        self._prices(placement, decision, daemon)
        return None

    def _prices(self, placement: Placement, decision: Decision, daemon: SimDaemon) -> None:
        """No move on a price that was not read whole, lately, and so that it may be believed."""
        target, sim = decision.target, self.sim
        assert target is not None
        seen_ms = decision.at_ms - round(target.quote_age_s * 1000)
        max_age_ms = sim.policy.max_quote_age_s * 1000
        polls = sim.whole_polls[target.offer.cloud]
        when = next((w for ms, w in polls.items() if abs(ms - seen_ms) <= 1), None)
        if when is None:
            return sim.violate("I9 prices", f"{placement.id}: its quote comes from no whole poll")
        if target.quote_age_s > sim.policy.max_quote_age_s:
            sim.violate("I9 prices", f"{placement.id}: its quote is {target.quote_age_s} s old")
        true = {sim.price_at(target.offer.key, at_s) for at_s in range(int(when[0]) - 1, int(when[1]) + 2)}
        if target.price_micro_usd_h not in true:
            sim.violate(
                "I9 prices", f"{placement.id}: {target.price_micro_usd_h} was never the price: {sorted(true)}"
            )
        here = self.placements[placement.replaces or ""].offer
        if max(sim.whole_polls[here.cloud], default=0) < decision.at_ms - max_age_ms:
            sim.violate("I9 prices", f"{placement.id}: the price of its own place is stale")
        odd = [o.key for o in (here, target.offer) if o.key in sim.clouds[o.cloud].odd]
        if odd:
            sim.violate("I9 prices", f"{placement.id}: the newest readings of {odd} are glitches")
        return None

    # -- HEAD ---------------------------------------------------------------------------------------------------------

    def put(self, key: str, before: bytes | None, data: bytes, who: str) -> None:
        """An object of the checkpoint store has been written."""
        if not key.endswith(f"/{HEAD_NAME}"):
            return
        job_id = key.split("/")[1]
        old, new, truth = decode_head(before) if before else None, decode_head(data), self.head(job_id)
        if old is not None and new.generation < old.generation:
            self.sim.violate("I1 one commit point", f"{who} set HEAD of {job_id} back to {new.generation}")
        if old is None or new.generation > old.generation:
            self._fenced(job_id, old, new, who)
        if new.manifest and (old is None or new.manifest != old.manifest):
            self._commit(job_id, old, new, who)
        truth.generation, truth.seq = new.generation, new.seq
        self.sim.note(
            "head", job=job_id, generation=new.generation, seq=new.seq, step=truth.step, who=who[:14]
        )

    def _fenced(self, job_id: str, old: Head | None, new: Head, who: str) -> None:
        truth = self.head(job_id)
        truth.fenced_at_s = self.sim.loop.now_s
        if not who.startswith("daemon"):
            self.sim.violate("I1 one commit point", f"{who} fenced {job_id}")
        if old is not None and (new.seq, new.manifest) != (old.seq, old.manifest):
            self.sim.violate("I2 never back", f"a fence of {job_id} dropped commit {old.seq}")
        job = self.jobs.get(job_id)
        if (job is None or job.generation < new.generation) and not self.sim.restored_lately():
            self.sim.violate("I12 intent first", f"{job_id}: fenced {new.generation} before a row named it")

    def _commit(self, job_id: str, old: Head | None, new: Head, who: str) -> None:
        truth, sim = self.head(job_id), self.sim
        step = self._step_of(job_id, new)
        if old is None or new.generation != old.generation:
            sim.violate(
                "I1 one commit point", f"{who} committed {job_id} under {new.generation}, HEAD had {old}"
            )
        if truth.owner.setdefault(new.generation, who) != who:
            sim.violate(
                "I1 one commit point",
                f"{who} and {truth.owner[new.generation]} commit under {new.generation}",
            )
        if new.seq != truth.seq + 1:
            sim.violate("I2 never back", f"{job_id}: commit {new.seq} after {truth.seq}")
        if step < truth.step:
            sim.violate("I2 never back", f"{job_id}: step {step} after {truth.step}, no fallback recorded")
        truth.step = step
        truth.commits[new.seq] = (new.generation, step, who)

    def _step_of(self, job_id: str, head: Head) -> int:
        data = self.sim.bucket.objects.get(f"jobs/{job_id}/{head.manifest}")
        if data is None:
            self.sim.violate("I2 never back", f"HEAD of {job_id} names {head.manifest}, which is not there")
            return 0
        manifest = decode_manifest(data)
        for entry in manifest.files:
            for chunk in entry.chunks:
                if f"jobs/{job_id}/{chunk.key}" not in self.sim.bucket.objects:
                    self.sim.violate("I2 never back", f"HEAD of {job_id} names a chunk that is not there")
        return manifest.step or 0

    def fell_back(self, node: "SimNode", copy: Copy) -> None:
        """A copy has restored an older commit, and its beat says so."""
        truth = self.head(copy.order.job_id)
        if not truth.damaged:
            self.sim.violate("I2 never back", f"{node.token} fell back although nothing is damaged")
        truth.step = copy.restored_step
        self.sim.chaos.reached("restore fell back over a corrupt chunk")

    def said_committed(self, node: "SimNode", copy: Copy, seq: int, step: int) -> None:
        """An agent believes that its commit is in."""
        truth = self.head(copy.order.job_id)
        if truth.commits.get(seq) != (copy.generation, step, node.token):
            self.sim.violate(
                "I13 honest commits",
                f"{node.token} believes in commit {seq}; HEAD had {truth.commits.get(seq)}",
            )

    # -- deeds --------------------------------------------------------------------------------------------------------

    def deed(self, deed: Deed) -> None:
        """One of our processes asks something of a cloud, or the cloud does it."""
        row = self.nodes.get(deed.token)
        if deed.what.startswith("ask "):
            self._asked(deed, row)
        elif deed.what == "delete" and deed.who.startswith("collector") and not deed.late:
            self._collected(deed, row)
        elif (
            deed.what == "create"
            and deed.machine is not None
            and (row is None or row.state == NodeState.GONE)
        ):
            self.sim.chaos.reached("a create arrived after its row was closed")
            self.sim.orphans.add(deed.token)

    def _asked(self, deed: Deed, row: Node | None) -> None:
        sim, now_s = self.sim, self.sim.loop.now_s
        latched = self.report_only_since_s is not None and now_s - self.report_only_since_s > 1
        paused = self.paused_since_s is not None and now_s - self.paused_since_s > 1
        if latched and deed.what in ("ask create", "ask delete"):
            sim.violate("I18 report-only", f"{deed.what} of {deed.token} by {deed.who} while latched")
        if paused and deed.what == "ask create":
            sim.violate("I18 report-only", f"{deed.what} of {deed.token} while paused")
        if sim.stale(deed.who):
            return  # its rows have moved on; what it asks for is harmless by its token, which is what we check
        if deed.what == "ask create" and (row is None or row.state != NodeState.UNKNOWN):
            sim.violate("I12 intent first", f"create of {deed.token} with its row {row and row.state}")
        if deed.what == "ask delete" and deed.who.startswith("reconciler"):
            if row is None or row.state not in (NodeState.RELEASING, NodeState.GONE):
                sim.violate("I12 intent first", f"delete of {deed.token} with its row {row and row.state}")
            self._older_than_head(deed)

    def _older_than_head(self, deed: Deed) -> None:
        """Rows that are behind HEAD must not end what runs under HEAD's generation."""
        copy = self.sim.training_on(deed.token)
        if copy is None:
            return
        job, head = self.jobs.get(copy.order.job_id), self.head(copy.order.job_id)
        if job is not None and copy.generation == head.generation > job.generation:
            self.sim.violate(
                "I18 report-only",
                f"rows at generation {job.generation} end a node that runs {copy.generation}",
            )

    def _collected(self, deed: Deed, row: Node | None) -> None:
        sim, machine = self.sim, deed.machine
        assert machine is not None
        sim.chaos.reached("the collector ended an orphan")
        if row is not None and row.state != NodeState.GONE and not sim.stale(deed.who):
            sim.violate("I4 collector", f"it ends {deed.token}, whose row is {row.state}")
        age_s = sim.world.now_s() - machine.created_s
        if age_s < sim.rules.collect_grace_s - 5 and not sim.clock_was_wrong:
            sim.violate("I4 collector", f"it ends {deed.token}, {age_s} s old")
        copy = sim.training_on(deed.token)
        if copy is None or copy.generation != self.head(copy.order.job_id).generation:
            return
        if row is None and sim.cleared:
            sim.chaos.reached("a node that the restored rows do not know was ended on an operator's word")
        elif not sim.was_disowned(deed.token):
            sim.violate("I4 collector", f"it ends {deed.token}, which runs the current generation")

    # -- time ---------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """What is wrong only when it lasts."""
        sim = self.sim
        for machine in sim.world.machines():
            if machine.holds_stock:
                self._owned(machine)
        for node in sim.fleet.values():
            copy = node.copy
            if copy is not None and copy.training and node.paused_until_s <= sim.loop.now_s:
                self._overlap(node, copy)

    def _owned(self, machine: lab.Machine) -> None:
        row = self.nodes.get(machine.labels["token"])
        if row is not None and row.state != NodeState.GONE:
            self._unowned_s.pop(machine.id, None)
            return
        if self.sim.collector_can_see(machine):
            self._unowned_s[machine.id] = self._unowned_s.get(machine.id, 0.0) + TICK_S
        if self._unowned_s.get(machine.id, 0.0) > UNOWNED_S + 2 * COLLECT_EVERY_S:
            self.sim.violate(
                "I3 no leak", f"{machine.id} ({machine.labels['token']}) is billed and nobody owns it"
            )

    def _overlap(self, node: "SimNode", copy: Copy) -> None:
        head = self.head(copy.order.job_id)
        if copy.generation >= head.generation:
            return
        overlap_s = self.sim.loop.now_s - max(head.fenced_at_s, node.thawed_at_s)
        if overlap_s > 60:
            self.sim.chaos.reached("a zombie trained beside the new copy")
        if overlap_s > self.sim.rules.run_lease_s + OVERLAP_SLACK_S:
            self.sim.violate("I8 zombies end", f"{node.token} trains {overlap_s:.0f} s after it was fenced")


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
