"""One installation under a microscope: every effect is counted, and may be cut off, refused, doubled or delayed.

The daemon's own planner, shell, decider and collector run over rows in memory and the lab's world, in virtual time.
Hooks sit where effects leave the daemon (`Blocking.call`) and where they get their names (`Reconciler._node_effect`,
`_fence`); production code knows nothing of them.

    run(SCENARIOS["move"], {7: Kill(deed=True)})

runs a scenario whose daemon dies after its seventh effect was done and before it wrote that down, starts another on
the same rows, and raises `Broken` with the whole history if the end is not the one that the scenario demands.
"""

import asyncio
from collections.abc import Callable
from copy import copy
from typing import Any

from broker.core.errors import BrokerError
from broker.core.model import PlacementState
from broker.core.spec import Checkpoint, GpuRequest, JobSpec, Resources
from broker.decision.subject import Caps, Timing
from broker.jobs.submit import submit
from broker.migration.collect import Collector
from broker.migration.decide import Decider
from broker.migration.rules import Rules
from broker.policy.load import PolicySet
from broker.store.access import REPORT_ONLY
from tests.clocks import ManualClock
from tests.exhaustive import checks
from tests.exhaustive.crew import Agent, Store
from tests.exhaustive.daemon import EFFECT, Daemon, Gate, Watched, forget_all, named, never
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
from tests.exhaustive.rows import Disk
from tests.exhaustive.script import AWS_FAR, AWS_NEAR, GCP, POLICIES, PRICES, Scenario
from tests.exhaustive.surroundings import TURN_S, Surroundings, a_dollar_each
from tests.exhaustive.worlds import Forgetful, Names, SmallWorld, clone_world, open_world
from tests.world_provider import WorldProvider

LIMIT = 220
"""Turns after which a run is said never to end: more than the longest deadline and the longest outage together."""

_LOOP = asyncio.new_event_loop()


class Broken(AssertionError):
    """A run that did not end as it must; the text is the whole story.

    Attributes:
        where: Scenario and mischief, in one line.
    """

    def __init__(self, harness: "Harness", error: Exception) -> None:
        super().__init__(checks.story(harness, error))
        self.where = f"{harness.scenario.name}: {harness.told()}: {error}"


class Harness(Surroundings):
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
            lambda a, b: clouds[a.cloud].egress_micro_usd_per_gib(a, b), a_dollar_each,
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
            await forget_all()
        elif daemon.sweep is not None and daemon.sweep.done():
            sweep, daemon.sweep = daemon.sweep, None
            if not isinstance(sweep.exception(), Planted):
                sweep.result()

    async def _collect(self, daemon: Daemon) -> None:
        EFFECT.set("collector")
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
        call = named(len(self.calls) + 1, work)
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
                await never()
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
            _LOOP.run_until_complete(forget_all())
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
