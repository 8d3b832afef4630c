"""A whole daemon without its shell of processes: real databases, real folder store, the lab's world, scripted agents.

Time moves only when told to. Calls to clouds happen in place; agents are a few lines that answer directives the way
`broker.node` does, through the same `take_beat` that the API uses.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from broker.checkpoint.commits import CheckpointStore
from broker.checkpoint.credentials import StoreSettings
from broker.core.model import Job, Node, NodeState, Placement, PlacementState
from broker.core.ports import LaunchRequest
from broker.core.spec import Checkpoint, GpuRequest, JobSpec, Resources
from broker.decision.subject import Caps, Timing
from broker.jobs.ledger import ledger
from broker.jobs.submit import submit
from broker.market.overlay import Overlay
from broker.market.quarantine import sift
from broker.market.snapshot import build_snapshot
from broker.migration.auditor import Auditor
from broker.migration.collect import Collector
from broker.migration.decide import Decider
from broker.migration.directives import Terms, directive
from broker.migration.reconcile import Reconciler
from broker.migration.rules import Rules
from broker.policy.load import PolicySet
from broker.serve.beats import take_beat
from broker.serve.paid import Budgets, Prices
from broker.store.history import HistoryStore
from broker.store.state import StateStore
from broker.wire import messages as wire
from lab.catalog import Scenario
from lab.world import World
from tests.clocks import CountingIds, ManualClock
from tests.world_provider import WorldProvider

T = TypeVar("T")
POLICY = """\
policy: island
mode: act
objective: cheapest
candidates: {max_quote_age: 10m}
place: {order: [spot, on_demand]}
migrate: {min_saving: 20%, min_saving_usd: 0, max_payback: 6h, hold: 1m, cooldown: 5m}
verify: {on_inconclusive: accept}
limits: {migrations_per_job_per_day: 20}
"""


class InPlace:
    """`Blocking` without threads."""

    async def call(self, pool: str, work: Callable[[], T], timeout_s: float) -> T:
        return work()


@dataclass
class Agent:
    """One node's agent: does at once what a real one does in time.

    Attributes:
        silent: Says nothing (partition); verdict: of its probe; work_s: training left before it exits.
    """

    seq: int = 0
    silent: bool = False
    verdict: str = "inconclusive"
    beat: wire.Beat = field(default_factory=lambda: wire.Beat(0, wire.PHASE_IDLE))
    step: int = 0


class Island:
    """One installation. `turn` is one moment: prices, reconcile, decide, agents."""

    def __init__(
        self,
        folder: Path,
        *,
        prices: dict[str, str] | None = None,
        stock: dict[str, Any] | None = None,
        **rules: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.clock = ManualClock()
        self.ids = CountingIds()
        self.world = World(self.clock, Scenario.of({"prices": prices or {}, "stock": stock or {}}))
        (folder / "policies").mkdir(exist_ok=True)
        (folder / "policies" / "island.yaml").write_text(POLICY)
        self.policies = PolicySet(folder / "policies")
        self.rules = Rules(**rules)
        self.agents: dict[str, Agent] = {}
        self.steps = 1000
        self.loss: float | None = None
        self.start()

    def start(self) -> None:
        """What a daemon does when it starts; again after `stop` it is a restart."""
        self.store = StateStore.open(self.folder / "state.db", self.clock, self.ids)
        self.history = HistoryStore.open(self.folder / "history.db")
        self.clouds = {c: WorldProvider(self.world, c, self.store.installation_id) for c in ("aws", "gcp")}
        self.checkpoints = CheckpointStore(StoreSettings(kind="folder", path=str(self.folder / "ck")))
        self.reconciler = Reconciler(
            self.store, self.history, self.clouds, self.checkpoints, self.policies, self.clock, InPlace(), self.rules,
            self.launch, lambda: None,
        )  # fmt: skip
        prices = Prices(self.history, lambda c, m: self.clouds[c].billing_rule(m), Overlay)
        self.decider = Decider(
            self.store, self.policies, self.clock, self.ids, self.rules, Caps(), Timing(), self.snapshot,
            lambda a, b: self.clouds[a.cloud].egress_micro_usd_per_gib(a, b), Budgets(prices).tally,
        )  # fmt: skip
        self.collector = Collector(self.store, self.clouds, self.clock, InPlace(), self.rules)
        self.auditor = Auditor(self.collector, self.checkpoints)
        asyncio.run(self.auditor.look_first())

    def stop(self) -> None:
        self.history.close()
        self.store.close()

    def launch(self, node: Node, placement: Placement, job: Job) -> LaunchRequest:
        return LaunchRequest(node.token, placement.offer, "#!", self.store.installation_id, node.event_seq)

    def snapshot(self) -> Any:
        with self.store.read() as tx:
            return build_snapshot(self.history, tx, self.clock.now_ms())

    def poll(self) -> None:
        for provider in self.clouds.values():
            sifted = sift(list(provider.quotes()), self.clock.now_ms(), self.history.now(), {})
            self.history.ingest(sifted.quotes)

    def submit(self, nodes: int = 1) -> Job:
        spec = JobSpec(
            "train",
            "python train.py",
            Resources(gpus=(GpuRequest("H100"),), nodes=nodes),
            checkpoint=Checkpoint("ck", every_s=60),
        )
        with self.store.write() as tx:
            return submit(
                tx, self.ids, spec, project_id="default", created_by="ada", idempotency_key=f"key-{self.ids.base32(8)}",
                now_ms=self.clock.now_ms(),
            )  # fmt: skip

    def turn(self, seconds: float = 20, poll: bool = True, agents: bool = True) -> None:
        """Let time pass, then do everything once."""
        self.clock.advance(seconds)
        self.world.advance()
        if poll:
            self.poll()
        asyncio.run(self._work())
        if agents:
            self.call_agents(seconds)

    async def _work(self) -> None:
        self.reconciler.one_pass()
        await self.reconciler.settle_all()
        self.decider.one_pass()

    def until(self, holds: Callable[[], bool], turns: int = 200, **options: Any) -> None:
        for _ in range(turns):
            if holds():
                return
            self.turn(**options)
        with self.store.read() as tx:
            raise AssertionError(
                f"not in {turns} turns: {tx.jobs()} {[(p.id, p.state, p.reason) for p in tx.placements()]}"
            )

    def sweep(self) -> None:
        asyncio.run(self.collector.one_pass())

    # -- agents -----------------------------------------------------------------------------------------------------

    def use_policy(self, text: str) -> None:
        """Edit the policy, and have it read again."""
        (self.folder / "policies" / "island.yaml").write_text(text)
        assert self.policies.reload()
        assert not self.policies.errors

    def call_agents(self, seconds: float) -> None:
        with self.store.read() as tx:
            nodes = [
                n for n in tx.nodes(open_only=True) if n.state in (NodeState.RUNNING, NodeState.UNREACHABLE)
            ]
        alive = {
            m.labels["token"]
            for m in self.world.machines()
            if m.running_s is not None and m.stopping_s is None
        }
        for node in nodes:
            if node.token in alive:
                self._call(node.token, seconds)

    def _call(self, token: str, seconds: float) -> None:
        agent = self.agents.setdefault(token, Agent())
        if agent.silent:
            return
        agent.seq += 1
        beat = replace(agent.beat, seq=agent.seq)
        with self.store.write() as tx:
            node = tx.node(token)
            job = tx.job(node.job_id) if node else None
            assert node is not None
            assert job is not None
            node = replace(node, secret_sha256="s")
            taken = take_beat(node, job, beat, self.clock.now_ms(), 1.0)
            for event in taken.events:
                tx.emit(event)
            tx.save(taken.node)
            tx.save(taken.job)
            placement = tx.placement(node.placement_id)
            assert placement is not None
            policy = self.policies.policies["island"]
            terms = Terms(self.rules, 1.0, wire.StoreAccess("folder", f"jobs/{job.id}"), policy.verify)
            order = directive(taken.node, placement, taken.job, tx.nodes(placement_id=placement.id), terms)
        self._obey(agent, order, seconds)

    def _obey(self, agent: Agent, order: wire.Directive, seconds: float) -> None:
        beat = agent.beat
        match order.order:
            case wire.ORDER_PROBE:
                agent.beat = replace(beat, probe={"verdict": agent.verdict, "reasons": ["scripted"]})
            case wire.ORDER_PREPARE:
                agent.beat = replace(beat, phase=wire.PHASE_READY)
            case wire.ORDER_RUN:
                assert order.run is not None
                self._train(agent, order.run, seconds)
            case wire.ORDER_DRAIN if beat.job.state == wire.JOB_RUNNING:
                note = replace(beat.job, state=wire.JOB_STOPPED, saved=True)
                agent.beat = replace(beat, phase=wire.PHASE_STOPPED, job=note)

    def _train(self, agent: Agent, run: wire.RunOrder, seconds: float) -> None:
        head = self.checkpoints.head(run.job_id)
        assert head is not None, "nothing runs before HEAD is fenced"
        if head.generation != run.generation:
            agent.beat = replace(agent.beat, job=replace(agent.beat.job, state=wire.JOB_FENCED))
            return
        resumed = wire.RestoreNote(0, self.committed.get(run.job_id, 0))
        if agent.beat.job.state == wire.JOB_NONE:
            agent.step = resumed.step or 0
        agent.step = min(self.steps, agent.step + round(seconds))
        self.committed[run.job_id] = agent.step
        done = agent.step >= self.steps
        agent.beat = replace(
            agent.beat,
            phase=wire.PHASE_STOPPED if done else wire.PHASE_RUNNING,
            job=wire.JobNote(
                wire.JOB_EXITED if done else wire.JOB_RUNNING, run.generation, 0 if done else None, started=True,
                handles_term=True, saved=done, restore=agent.beat.job.restore or resumed,
            ),
            progress=wire.ProgressNote(
                agent.step, self.steps, 1.0, loss=self.loss, readings={} if self.loss is None else {"loss": agent.seq}
            ),
            commit=wire.CommitNote(run.generation, agent.seq, "m", "s", agent.step, 1 << 20),
        )  # fmt: skip

    @property
    def committed(self) -> dict[str, int]:
        """Step that each job's store holds; in truth a manifest, here a number."""
        return self.__dict__.setdefault("_committed", {})

    # -- what a test asks -------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job:
        with self.store.read() as tx:
            found = tx.job(job_id)
        assert found is not None
        return found

    def placements(self) -> list[Placement]:
        with self.store.read() as tx:
            return tx.placements()

    def active(self) -> Placement | None:
        return next((p for p in self.placements() if p.state == PlacementState.ACTIVE), None)

    def billed(self) -> list[Any]:
        """Machines that still cost money."""
        return [m for m in self.world.machines() if m.stopping_s is None]

    def paid_micro_usd(self) -> int:
        with self.store.read() as tx:
            segments = tx.segments()
        points = {
            s.offer.key: self.history.points(
                s.offer.key, s.started_at_ms, s.ended_at_ms or self.clock.now_ms()
            )
            for s in segments
        }
        bills = ledger(segments, points, lambda c, m: self.clouds[c].billing_rule(m), self.clock.now_ms())
        return sum(bill.paid_micro_usd for bill in bills)
