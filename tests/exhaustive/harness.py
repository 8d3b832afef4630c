"""One installation under a microscope: every effect is counted, and may be cut off, refused, doubled or delayed.

The daemon's own planner, shell, decider and collector run over rows in memory and the lab's world, in virtual time.
Hooks sit where effects leave the daemon (`Blocking.call`) and where they get their names (`Reconciler._node_effect`,
`_fence`); production code knows nothing of them.

    run(SCENARIOS["move"], {7: Kill(deed=True)})

runs a scenario whose daemon dies after its seventh effect was done and before it wrote that down, starts another on
the same rows, and raises `Broken` with the whole history if the end is not the one that the scenario demands.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from broker.core.errors import BrokerError
from broker.core.model import Job, Node, Placement, PlacementState, Segment
from broker.core.offer import Market, MarketSnapshot, Offer, Quote
from broker.core.ports import LaunchRequest
from broker.core.spec import Checkpoint, GpuRequest, JobSpec, Resources
from broker.decision.subject import Caps, Timing
from broker.jobs.submit import submit
from broker.market.snapshot import spot_failure_share
from broker.migration.collect import Collector
from broker.migration.decide import Decider
from broker.migration.directives import Terms, directive
from broker.migration.effects import CreateNode, DeleteNode, Effect, Fence, FindNode
from broker.migration.reconcile import CALL_TIMEOUT_S, Reconciler
from broker.migration.rules import Rules
from broker.policy.load import PolicySet
from broker.policy.schema import Verify
from broker.serve.beats import take_beat
from broker.store.access import REPORT_ONLY
from broker.wire import messages as wire
from tests.clocks import ManualClock
from tests.exhaustive import checks
from tests.exhaustive.crew import Agent, Store
from tests.exhaustive.mischief import (
    AHEAD,
    EVERY,
    Act,
    Call,
    Fail,
    Kill,
    Killed,
    Mischief,
    Planted,
    Point,
    Slow,
    Spot,
    Together,
    Twice,
    told,
)
from tests.exhaustive.objects import MemoryCheckpoints, Objects
from tests.exhaustive.rows import Disk, MemoryStore
from tests.exhaustive.scenarios import AWS_FAR, AWS_NEAR, GCP, POLICIES, PRICES, Outside, Scenario
from tests.exhaustive.worlds import Forgetful, Names, SmallWorld, clone_world, open_world
from tests.world_provider import WorldProvider

T = TypeVar("T")
TURN_S = 20.0
LIMIT = 220
"""Turns after which a run is said never to end: more than the longest deadline and the longest outage together."""

_EFFECT: ContextVar[Effect | str] = ContextVar("effect")
_LOOP = asyncio.new_event_loop()


class Broken(AssertionError):
    """A run that did not end as it must; the text is the whole story.

    Attributes:
        where: Scenario and mischief, in one line.
    """

    def __init__(self, harness: "Harness", error: Exception) -> None:
        super().__init__(checks.story(harness, error))
        self.where = f"{harness.scenario.name}: {harness.told()}: {error}"


class Watched(Reconciler):
    """The reconciler, telling the hook which effect a call belongs to, and of every error that it would only log."""

    problems: list[str]

    @property
    def busy(self) -> bool:
        """Effects are under way."""
        return bool(self._running)

    async def _node_effect(self, effect: CreateNode | FindNode | DeleteNode) -> None:
        _EFFECT.set(effect)
        with self._honest():
            await super()._node_effect(effect)

    async def _fence(self, effect: Fence) -> None:
        _EFFECT.set(effect)
        with self._honest():
            await super()._fence(effect)

    @contextmanager
    def _honest(self) -> Iterator[None]:
        try:
            yield
        except Planted:
            raise
        except Exception as error:
            self.problems.append(f"{_EFFECT.get()}: {type(error).__name__}: {error}")
            raise


class Gate:
    """`Blocking` of one daemon. Once that is dead, nothing of it reaches the outside any more."""

    def __init__(self, perform: Callable[["Gate", str, Callable[[], Any]], Awaitable[Any]]) -> None:
        self.dead = False
        self.down_s = 0.0
        self._perform = perform

    async def call(self, pool: str, work: Callable[[], T], timeout_s: float) -> T:
        """Hand the deed over."""
        if self.dead:
            await _never()
        assert timeout_s == CALL_TIMEOUT_S, f"{pool}: {timeout_s} s"
        answer: T = await self._perform(self, pool, work)
        return answer

    def kill(self, act: Kill) -> None:
        """From here on the daemon is dead."""
        self.dead, self.down_s = True, act.down_s


@dataclass
class Daemon:
    """Everything that a crash forgets."""

    gate: Gate
    store: Any
    reconciler: Watched
    decider: Decider
    collector: Collector
    sweep: asyncio.Task[None] | None = None

    def remember(self, other: "Daemon") -> None:
        """Take over what `other` has in memory: between two turns, this is all of it."""
        self.reconciler._started_ms = other.reconciler._started_ms.copy()
        self.decider._answered = other.decider._answered.copy()
        self.collector.sweeps = other.collector.sweeps.copy()


class Harness(Outside):
    """The durable outside (world, objects, rows, agents, clock), and one daemon at a time.

    Attributes:
        sweep: The collector runs in every turn, its list taken before and after the turn's passes by turns.
        calls: What has been asked of the outside, by number.
        points: Moments between effects at which something had just been committed.
    """

    def __init__(self, scenario: Scenario, mischief: Mischief, sweep: bool = False) -> None:
        self.scenario = scenario
        self.mischief = mischief
        self.sweep = sweep
        self.clock = ManualClock()
        self.ids = Names()
        self.world: SmallWorld = open_world(self.clock, PRICES, (AWS_NEAR, AWS_FAR, GCP))
        self.objects = Objects()
        self.checkpoints = MemoryCheckpoints(self.objects)
        self.rules = Rules(run_lease_s=400, dead_man_s=200)
        self.policies: PolicySet = POLICIES["act"]
        self.agents: dict[str, Agent] = {}
        self.calls: dict[int, Call] = {}
        self.points: list[Point] = []
        self.journal: list[tuple[int, object]] = []
        self.problems: list[str] = []
        self.struck: set[Spot] = {EVERY}
        self.exit_code: int | None = None
        self.turns = 0
        self.seen_commits = 0
        self.told_commit: tuple[int, int] | None = None
        self.passes = 0
        self._under_way: list[tuple[int, Callable[[], object]]] = []
        self._passed = asyncio.Event()
        self.steps = list(scenario.script)
        for fault in scenario.faults:
            self.world.faults.add(fault)
        self.disk = self._open_disk()
        self.daemon: Daemon | None = None
        self._up_ms = 0
        self.start()
        self.job_id = self._submit()
        self.storage = Store(self.objects, self.checkpoints.prefix(self.job_id))

    def _open_disk(self) -> Disk:
        return Disk()

    def _open_store(self) -> Any:
        return MemoryStore(self.disk, self.clock)

    def _history(self) -> Any:
        """What `Reconciler` wants of the price history: which offers there are."""
        return self

    # -- one daemon's life ------------------------------------------------------------------------------------------

    def start(self) -> Daemon:
        """A daemon on whatever rows there are; nothing is remembered from the one before."""
        store = self._open_store()
        clouds: dict[str, WorldProvider] = {
            "aws": WorldProvider(self.world, "aws", store.installation_id),
            "gcp": Forgetful(self.world, "gcp", store.installation_id),
        }
        self.clouds = clouds
        gate = Gate(self._perform)
        reconciler = Watched(
            store, self._history(), clouds, self.checkpoints, self.policies, self.clock, gate, self.rules,
            self.launch, lambda: None,
        )  # fmt: skip
        decider = Decider(
            store, self.policies, self.clock, self.ids, self.rules, Caps(), Timing(), self.snapshot,
            lambda a, b: clouds[a.cloud].egress_micro_usd_per_gib(a, b),
        )  # fmt: skip
        reconciler.problems = self.problems
        collector = Collector(store, clouds, self.clock, gate, self.rules)
        self.daemon = Daemon(gate, store, reconciler, decider, collector)
        return self.daemon

    @property
    def clonable(self) -> bool:
        """Nothing is under way that would belong to one run only."""
        at_work = self.daemon is not None and (self.daemon.reconciler.busy or self.daemon.sweep is not None)
        return not self._under_way and not at_work

    def clone(self, mischief: Mischief) -> "Harness":
        """Another run that goes on from here, with other mischief from now on. Between two turns only."""
        assert self.clonable
        twin = copy(self)
        twin.mischief = mischief
        twin.clock, twin.ids, twin.objects = copy(self.clock), copy(self.ids), Objects(self.objects.content)
        twin.world = clone_world(self.world, twin.clock)
        twin.checkpoints = MemoryCheckpoints(twin.objects)
        twin.storage = self.storage.clone(twin.objects)
        twin.disk = Disk(**self.disk.image())
        twin.agents = {token: agent.clone(twin.storage) for token, agent in self.agents.items()}
        twin.calls, twin.points, twin.journal = self.calls.copy(), self.points.copy(), self.journal.copy()
        twin.problems, twin.steps, twin._under_way = [], self.steps.copy(), []
        twin.struck = self.struck.copy()
        twin._passed = asyncio.Event()
        before = self.daemon
        if before is not None:
            twin.start().remember(before)
        return twin

    def same_as(self, other: "Harness") -> bool:
        """Everything that decides what comes next is equal. Logs do not, nor what a daemon remembers of its answers."""
        return (
            self.clonable
            and (self.daemon is None) == (other.daemon is None)
            and self.disk.same_as(other.disk)
            and self.world.same_as(other.world)
            and self.storage.same_as(other.storage)
            and self.agents == other.agents
            and (self.steps, self.exit_code, self.policies) == (other.steps, other.exit_code, other.policies)
        )

    def use_policies(self, name: str) -> None:
        """The policy folder was edited, and read again."""
        self.policies = POLICIES[name]
        if self.daemon is not None:
            self.daemon.reconciler.policies = self.daemon.decider.policies = self.policies

    def _serve(self, daemon: Daemon) -> None:
        """One pass; after a death without down time, the next daemon's first one in the same moment."""
        _LOOP.run_until_complete(self._pass(daemon))
        if daemon.gate.dead:
            self.note("the daemon is dead")
            daemon.store.close()
            self.daemon = None
            self._up_ms = self.clock.now_ms() + round(daemon.gate.down_s * 1000)
            if daemon.gate.down_s == 0:
                self._serve(self.start())

    async def _pass(self, daemon: Daemon) -> None:
        """In the daemon's order: plan and commit, decide and commit; effects run when the loop is free."""
        self.passes += 1
        self._passed.clear()
        if self.sweep and daemon.sweep is None:
            daemon.sweep = asyncio.create_task(self._collect(daemon))
            for _ in range(3):  # until it waits for its lists
                await asyncio.sleep(0)
        try:
            if daemon.reconciler.one_pass():
                self._point(daemon.gate, "intent")
            if daemon.decider.one_pass():
                self._point(daemon.gate, "decision")
        except Killed:
            pass
        self._passed.set()
        for _ in range(6):  # whoever does not wait for a slow reply has finished after as many steps
            if daemon.reconciler.busy or daemon.sweep is not None:
                await asyncio.sleep(0)
        if daemon.gate.dead:
            await _forget_all()
        elif daemon.sweep is not None and daemon.sweep.done():
            sweep, daemon.sweep = daemon.sweep, None
            if not isinstance(sweep.exception(), Planted):
                sweep.result()

    async def _collect(self, daemon: Daemon) -> None:
        _EFFECT.set("collector")
        await daemon.collector.one_pass()

    def _point(self, gate: Gate, after: str) -> None:
        point = Point(self.passes, after)
        self.points.append(point)
        act = self.mischief.get(point)
        if act is not None:
            self.note(f"{point}: {act}")
            self.struck.add(point)
            assert isinstance(act, Kill)
            gate.kill(act)
            raise Killed

    # -- effects ----------------------------------------------------------------------------------------------------

    async def _perform(self, gate: Gate, pool: str, work: Callable[[], Any]) -> Any:
        call = self._named(work)
        checks.in_its_pool(self.disk_now(), call, pool)
        self.calls[call.number] = call
        act = self.mischief.get(call.number, self.mischief.get(EVERY))
        self.note(call if act is None else f"{call}: {act}")
        self.struck.add(call.number)
        if call.kind == "list" and self.turns % 2:
            await self._passed.wait()
        try:
            return await self._act(gate, act, lambda: self._deed(call, work))
        finally:
            if call.kind == "list":
                await self._passed.wait()

    async def _act(self, gate: Gate, act: Act | None, deed: Callable[[], Any]) -> Any:
        match act:
            case None:
                return deed()
            case Kill():
                if act.deed:
                    _unheard(deed)
                gate.kill(act)
                await _never()
            case Twice():
                _unheard(deed)
                return deed()
            case Together():
                outcome = deed()
                for _ in range(3):  # by then every other effect of this pass has been done as well
                    await asyncio.sleep(0)
                return outcome
            case Fail():
                if act.deed == "done":
                    _unheard(deed)
                elif act.deed == "late":
                    due_ms = self.clock.now_ms() + round(act.late_s * 1000)
                    self._under_way.append((due_ms, lambda: _unheard(deed)))
                raise act.error()
            case Slow():
                outcome = deed() if act.deed_first else None
                answered = asyncio.get_running_loop().create_future()
                due_ms = self.clock.now_ms() + round(act.turns * TURN_S * 1000)
                self._under_way.append(
                    (due_ms, lambda: None if answered.done() else answered.set_result(None))
                )
                await answered
                return outcome if act.deed_first else deed()

    def _deed(self, call: Call, work: Callable[[], Any]) -> Any:
        checks.intended(self.disk_now(), call)
        outcome = work()
        if call.kind == "fence":
            self.storage.holder = call.subject.split(" ")[0]
        return outcome

    def _named(self, work: Callable[[], Any]) -> Call:
        number, effect = len(self.calls) + 1, _EFFECT.get()
        match effect:
            case CreateNode():
                return Call(number, "create", effect.token)
            case FindNode():
                return Call(number, "find", effect.token)
            case DeleteNode():
                return Call(number, "delete", effect.token)
            case Fence():
                return Call(number, "fence", f"{effect.placement_id} {effect.generation}")
            case _:
                listing = getattr(work, "__name__", "") == "list_owned"
                return Call(number, "list" if listing else "collect", "collector")

    # -- time -------------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """The world, whoever acts from outside, the daemon, the agents: each once."""
        self.turns += 1
        self.clock.advance(TURN_S)
        self.world.advance()
        now_ms = self.clock.now_ms()
        due = [deed for at_ms, deed in self._under_way if at_ms <= now_ms]
        self._under_way = [(at_ms, deed) for at_ms, deed in self._under_way if at_ms > now_ms]
        for deed in due:
            deed()
        if self.daemon is None and now_ms >= self._up_ms:
            self.start()
        if self.daemon is not None:
            self._follow_script()
            self._serve(self.daemon)
        self._run_agents()
        checks.each_turn(self)

    def _follow_script(self) -> None:
        """What people and clouds do. A latch that a lie has set is cleared by an operator who has looked."""
        if AHEAD in self.mischief.values():
            with self.store.write() as tx:
                tx.set_switch(REPORT_ONLY, False, by="ada")
        if self.steps and self.steps[0].when(self):
            step = self.steps.pop(0)
            self.note(f"-- {step.name}")
            step.act(self)

    def run(self, before_turn: Callable[["Harness"], bool | None] | None = None) -> "Harness":
        """Until nothing is left to do.

        Args:
            before_turn: Told of every turn that is about to begin; True ends the run there.

        Raises:
            Broken: it never ends, or the end is a wrong one.
        """
        try:
            while not self._over():
                assert self.turns < LIMIT, f"no end in {LIMIT} turns"
                if before_turn is not None and before_turn(self):
                    return self
                self.turn()
            calls = len(self.calls)
            for _ in range(2):
                self.turn()
            assert self.sweep or len(self.calls) == calls, "the end is not quiet"
            checks.at_the_end(self)
        except Exception as error:
            raise Broken(self, error) from error
        finally:
            _LOOP.run_until_complete(_forget_all())
        return self

    def _over(self) -> bool:
        disk = self.disk_now()
        return (
            disk.jobs[self.job_id].state.final
            and all(p.state == PlacementState.GONE for p in disk.placements.values())
            and all(m.stopping_s is not None for m in self.world.machines())
            and not self._under_way
        )

    def note(self, what: object) -> None:
        """For the story of a run that breaks."""
        self.journal.append((self.clock.now_ms(), what))

    def told(self) -> str:
        """Where and how this run was disturbed."""
        return told(self.mischief, self.calls)

    # -- what the daemon asks of its surroundings -------------------------------------------------------------------

    def _submit(self) -> str:
        spec = JobSpec(
            "train", "python train.py", Resources(gpus=(GpuRequest("H100"),), nodes=self.scenario.nodes),
            checkpoint=Checkpoint("ck", every_s=60),
        )  # fmt: skip
        with self.store.write() as tx:
            return submit(
                tx, self.ids, spec, project_id="default", created_by="ada", idempotency_key="key",
                now_ms=self.clock.now_ms(),
            ).id  # fmt: skip

    @property
    def store(self) -> Any:
        """Of the daemon that runs."""
        assert self.daemon is not None, "no daemon runs"
        return self.daemon.store

    def disk_now(self) -> Disk:
        """The committed rows."""
        return self.disk

    def launch(self, node: Node, placement: Placement, job: Job) -> LaunchRequest:
        """A function of rows, as in the daemon."""
        return LaunchRequest(node.token, placement.offer, "#!", self.store.installation_id, node.event_seq)

    def now(self) -> dict[str, Quote]:
        """Quotes of the few offers that this world needs, as fresh as can be."""
        now_ms, found = self.clock.now_ms(), {}
        for key in (AWS_NEAR, AWS_FAR, GCP):
            change = self.world.pools[key].at(now_ms // 1000)
            offer = self._offer(key)
            found[key] = Quote(offer, change.price_micro_usd_h, change.at_s * 1000, now_ms, "world")
        return found

    def _offer(self, key: str) -> Offer:
        return self.clouds[key.split("/")[0]].offer(key)

    def snapshot(self) -> MarketSnapshot:
        """The market as of now, with what our own launches have found."""
        now_ms = self.clock.now_ms()
        with self.store.read() as tx:
            share = spot_failure_share(tx.launches(now_ms - 3_600_000))
            return MarketSnapshot(now_ms, self.now(), tx.pools(), spot_launch_failures_1h=share)

    def segments(self) -> list[Segment]:
        """What the ledger is computed from."""
        with self._open_store().read() as tx:
            found: list[Segment] = tx.segments()
        return found

    @property
    def was_down(self) -> bool:
        """Nobody ran a daemon for a while, so nodes had to help themselves."""
        return any(isinstance(act, Kill) and act.down_s for act in self.mischief.values())

    def unowned(self) -> int:
        """Machines that nobody wants, as the collector found last."""
        return (self.daemon.collector.unowned or 0) if self.daemon else 0

    def billing_rule(self, cloud: str, market: Market) -> Any:
        """Of the world's clouds."""
        return self.clouds[cloud].billing_rule(market)

    # -- agents -----------------------------------------------------------------------------------------------------

    def _run_agents(self) -> None:
        now_ms = self.clock.now_ms()
        for machine in self.world.machines():
            if machine.running_s is None or machine.stopping_s is not None:
                continue
            token = str(machine.labels["token"])
            agent = self.agents.get(token)
            if agent is None:
                part = self.scenario.part(self.placement_of(token))
                if now_ms < machine.running_s * 1000 + part.boot_s * 1000:
                    continue
                placement = self.placement_of(token)
                agent = self.agents[token] = Agent(
                    token, placement.id if placement else "", part, self.storage, now_ms
                )
            heard_s = (now_ms - agent.heard_ms) / 1000
            if heard_s > self.rules.run_lease_s:
                agent.lease_ended()
            if heard_s > self.rules.run_lease_s + self.rules.dead_man_s:
                self.end_from_inside(machine.id)
                continue
            ends = machine.interruption
            notice_s = None if ends is None else ends.deadline_s - now_ms / 1000
            agent.turn(TURN_S, now_ms, lambda beat, t=token: self._beat(t, beat), notice_s, self.exit_code)  # type: ignore[misc]

    def placement_of(self, token: str) -> Placement | None:
        """Whose node a token is."""
        disk = self.disk_now()
        node = disk.nodes.get(token)
        return None if node is None else disk.placements[node.placement_id]

    def _beat(self, token: str, beat: wire.Beat) -> wire.Directive | None:
        """`/agent/v1/beat`, without HTTP."""
        if self.daemon is None:
            return None
        with self.store.write() as tx:
            node = tx.node(token)
            if node is None:
                return None
            job, placement = tx.job(node.job_id), tx.placement(node.placement_id)
            taken = take_beat(replace(node, secret_sha256="s"), job, beat, self.clock.now_ms(), 1.0)
            for event in taken.events:
                tx.emit(event)
            tx.save(taken.node)
            tx.save(taken.job)
            policy = self.policies.policies.get(job.policy or "")
            access = wire.StoreAccess("folder", f"jobs/{job.id}")
            terms = Terms(self.rules, 1.0, access, policy.verify if policy else Verify())
            order = directive(taken.node, placement, taken.job, tx.nodes(placement_id=placement.id), terms)
            checks.ordered(placement, order)
            return order


def run(scenario: Scenario, mischief: Mischief | None = None, sweep: bool = False) -> Harness:
    """One life of one job.

    Raises:
        Broken: it did not end as it must.
    """
    return Harness(scenario, mischief or {}, sweep).run()


def _unheard(deed: Callable[[], object]) -> None:
    """A deed whose outcome nobody hears."""
    try:
        deed()
    except BrokerError:
        pass


async def _never() -> None:
    """What a dead process does next."""
    await asyncio.get_running_loop().create_future()


async def _forget_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
