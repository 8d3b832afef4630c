"""One daemon process of the simulation: real store, reconciler, decider, collector, poller and agent API, and its death.

It is wired as `broker.daemon` wires the real one, without HTTP, threads and the scheduler. `kill` is SIGKILL: nothing
of it goes on, what was on the wire may arrive.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar, cast

from broker.core.errors import DiskFull, LeaseLost, StoreError
from broker.core.model import Decision, Event, Job, Node, Placement
from broker.core.offer import MarketSnapshot, Quote
from broker.core.ports import Ids, LaunchRequest
from broker.decision.subject import Caps, Timing
from broker.market.poller import Poller
from broker.market.snapshot import build_snapshot
from broker.migration.auditor import Auditor
from broker.migration.collect import Collector
from broker.migration.directives import Terms, directive
from broker.migration.reconcile import Reconciler
from broker.migration.rules import Rules
from broker.policy.load import PolicySet
from broker.policy.schema import Verify
from broker.serve.routes_agent import _beat, _hello
from broker.serve.services import Services
from broker.store.history import HistoryStore
from broker.store.rows import Saved
from broker.store.state import Tx
from broker.wire import messages as wire
from broker.wire.store_client import ObjectStore
from tests.sim.cloud import CloudTruth, SimCloud
from tests.sim.faults import Chaos
from tests.sim.history import History
from tests.sim.loop import SimClock, SimLoop, silent
from tests.sim.parts import Crash, SimBlocking, SimCheckpoints, SimDecider, SimStore

T = TypeVar("T")
CLOUDS = ("aws", "gcp")
PASS_EVERY_S = 40.0
BURST_S = 4.0
COLLECT_EVERY_S = 60.0
POLL_EVERY_S = 75.0


class Around(Protocol):
    """What a daemon needs of the simulation."""

    loop: SimLoop
    chaos: Chaos
    history: History
    folder: Path
    rules: Rules
    caps: Caps
    ids: Ids
    policies: PolicySet
    clouds: dict[str, CloudTruth]
    whole_polls: dict[str, dict[int, tuple[float, float]]]

    def open_cloud(self, daemon: "SimDaemon", cloud: str, part: str) -> SimCloud: ...
    def open_bucket(self, daemon: "SimDaemon") -> ObjectStore: ...
    def committed_rows(
        self,
        daemon: "SimDaemon",
        saved: list[Saved],
        events: list[Event],
        decisions: list[Decision],
        switches: list[tuple[str, bool]],
    ) -> None: ...
    def crash_armed(self, point: str) -> bool: ...
    def disk_is_full(self) -> bool: ...
    def prices_taken_in(self, now: Mapping[str, Quote], odd: set[str]) -> None: ...
    def daemon_failed(self, daemon: "SimDaemon", error: BaseException) -> None: ...


class SimDaemon:
    """One process, from its start to its end.

    Attributes:
        ended: Set when it has died or given up.
    """

    def __init__(self, around: Around, number: int, clock: SimClock) -> None:
        self.around = around
        self.number = number
        self.clock = clock
        self.alive = True
        self.ended = asyncio.Event()
        self.why = ""
        self.started_s = around.loop.now_s
        self._tasks: dict[asyncio.Task[Any], None] = {}  # a set has the order of addresses
        self._woken = asyncio.Event()
        folder = around.folder
        opened = SimStore.open(folder / "state.db", clock, around.ids)
        self.store = cast(SimStore, opened)
        self.store.daemon = self
        self.history = HistoryStore.open(folder / "history.db")
        self.policies = around.policies
        clouds = {c: around.open_cloud(self, c, "reconciler") for c in CLOUDS}
        sweep = {c: around.open_cloud(self, c, "collector") for c in CLOUDS}
        self.clouds = clouds
        blocking_calls = SimBlocking(self)
        rules = around.rules
        checkpoints = SimCheckpoints(around.open_bucket(self), self.crash_point)
        self.reconciler = Reconciler(
            self.store, self.history, clouds, checkpoints, self.policies, clock,
            blocking_calls, rules, self.launch, self.wake,
        )  # fmt: skip
        self.decider = SimDecider(
            self.store, self.policies, clock, around.ids, rules, around.caps, Timing(60, 45, 20), self.snapshot,
            lambda a, b: clouds[a.cloud].egress_micro_usd_per_gib(a, b),
        )  # fmt: skip
        self.decider.daemon = self
        self.collector = Collector(self.store, sweep, clock, blocking_calls, rules)
        self.auditor = Auditor(self.collector, checkpoints)
        self.poller = Poller(
            clouds, self.history, clock, intervals_s=dict.fromkeys(CLOUDS, POLL_EVERY_S), polled=self.wake
        )
        self.services = cast(
            Services,
            SimpleNamespace(
                store=self.store, clock=clock, wake=self.wake, directive=self.directive,
                settings=SimpleNamespace(timing=rules),
            ),
        )  # fmt: skip

    # -- life and death -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the loops."""
        for work in (self._reconcile(), self._collect(), self._tick(), *(self._poll(c) for c in CLOUDS)):
            self.spawn(self._guarded(work))

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = self.around.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        task.add_done_callback(silent)
        return task

    def kill(self, why: str) -> None:
        """SIGKILL."""
        if not self.alive:
            return
        self.alive, self.why = False, why
        self.around.history.note("daemon.killed", daemon=self.number, why=why)
        for task in list(self._tasks):
            task.cancel()
        self.ended.set()

    async def close(self) -> None:
        """What the kernel does with a dead process's files."""
        for task in [*self._tasks, *self.reconciler._running.values()]:
            task.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        self.history.close()
        self.store.close()

    def check_alive(self) -> None:
        if not self.alive:
            raise Crash(self.why)

    def crash_point(self, point: str) -> None:
        """A moment at which the process may die."""
        self.check_alive()
        if self.around.crash_armed(point):
            self.around.chaos.reached(f"crash {point}")
            self.kill(point)
            raise Crash(point)

    def crash_soon(self, point: str) -> None:
        """A stretch of time in which the process may die: it waits for something."""
        if self.alive and self.around.crash_armed(point):
            self.around.loop.call_soon(self.kill, point)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except LeaseLost:
            self.around.chaos.reached("a replaced daemon stopped")
            self.kill("lease lost")
        except Crash:
            pass

    def wake(self) -> None:
        if self.alive:
            self.around.loop.call_soon(self._woken.set)

    # -- loops, as in `broker.daemon` ---------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            self._woken.set()
            await asyncio.sleep(PASS_EVERY_S)

    async def _reconcile(self) -> None:
        await self._look_first()
        while True:
            await self._woken.wait()
            await asyncio.sleep(BURST_S)  # what comes in a burst is one pass, as passes take time
            self._woken.clear()
            try:
                self.reconciler.one_pass()
                if self.decider.one_pass():
                    self._woken.set()
            except LeaseLost:
                raise
            except DiskFull:
                await asyncio.sleep(1.0)
            except Exception as error:  # noqa: BLE001 - the real loop logs and goes on; here it is a finding
                self.around.daemon_failed(self, error)

    async def _look_first(self) -> None:
        while True:
            try:
                return await self.auditor.look_first()
            except (StoreError, DiskFull):
                await asyncio.sleep(5.0)

    async def _collect(self) -> None:
        while True:
            try:
                await self.collector.one_pass()
            except LeaseLost:
                raise
            except DiskFull:
                pass
            except Exception as error:  # noqa: BLE001 - as above
                self.around.daemon_failed(self, error)
            await asyncio.sleep(COLLECT_EVERY_S)

    async def _poll(self, cloud: str) -> None:
        """The poller's own loop, and what the market has taken in after each poll."""
        state = self.poller._clouds[cloud]
        while True:
            if not state.failures or state.left_s(self.clock.now_ms()) <= 0:
                await asyncio.sleep(self.around.chaos.random(f"poll/{cloud}").uniform(0.5, 5))
                before = len(self.around.whole_polls[cloud])
                await self.poller.poll_now(cloud)
                if len(self.around.whole_polls[cloud]) > before:
                    before_odd, odd = self.around.clouds[cloud].odd, self.clouds[cloud].odd
                    self.around.clouds[cloud].odd = odd
                    # A reading that is wrong twice in a row counts as confirmed: nobody could know better.
                    self.around.prices_taken_in(self.history.now(), odd - before_odd)
            await asyncio.sleep(POLL_EVERY_S)

    # -- what parts ask of each other ---------------------------------------------------------------------------------

    def launch(self, node: Node, placement: Placement, job: Job) -> LaunchRequest:
        return LaunchRequest(
            node.token, placement.offer, "#!", self.store.installation_id, node.event_seq,
            notice_s=self.around.rules.notice_s,
        )  # fmt: skip

    def snapshot(self) -> MarketSnapshot:
        with self.store.read() as tx:
            return build_snapshot(self.history, tx, self.clock.now_ms())

    def directive(self, tx: Tx, node: Node) -> wire.Directive:
        placement, job = tx.placement(node.placement_id), tx.job(node.job_id)
        assert placement is not None
        assert job is not None
        policy = self.policies.policies.get(job.policy or "")
        access = wire.StoreAccess("folder", f"jobs/{job.id}", path="-")
        terms = Terms(self.around.rules, 1.0, access, policy.verify if policy else Verify())
        return directive(node, placement, job, tx.nodes(placement_id=placement.id), terms)

    # -- the agents' API ----------------------------------------------------------------------------------------------

    def serve_hello(self, message: wire.Hello) -> wire.Welcome:
        return self._serve(lambda: _hello(self.services, message))

    def serve_beat(self, token: str, secret: str, message: wire.Beat) -> wire.Directive:
        return self._serve(lambda: _beat(self.services, f"Bearer {token}:{secret}", message))

    def _serve(self, handler: Callable[[], T]) -> T:
        try:
            return handler()
        except LeaseLost:
            self.kill("lease lost")
            raise
