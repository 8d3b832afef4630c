"""One seed: a world, its clouds, nodes and daemons, and what is found out about them."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from broker.core.errors import DiskFull
from broker.core.offer import Quote
from broker.decision.subject import Caps
from broker.migration.rules import Rules
from broker.policy.load import PolicySet
from broker.store.access import REPORT_ONLY
from broker.store.rows import Saved
from lab import machines as lab
from lab.catalog import Scenario
from lab.machines import Happening
from tests.clocks import START_MS
from tests.sim import check_clouds, check_head, check_time
from tests.sim.check_time import TICK_S
from tests.sim.cloud import CloudTruth, SimCloud, SimWorld
from tests.sim.copy import Copy, Plan
from tests.sim.daemon import CLOUDS, SimDaemon
from tests.sim.faults import Chaos, Kind
from tests.sim.history import History, Violation, short
from tests.sim.loop import Killed, SimClock, SimLoop
from tests.sim.node import SimNode
from tests.sim.objects import Bucket, StoreClient, Weather
from tests.sim.parts import Crash
from tests.sim.settings import PolicyNumbers, SeededIds, Settings
from tests.sim.surroundings import Surroundings
from tests.sim.truth import Truth


class Sim:
    """Everything of one seed. See `tests.sim.run` for what runs it."""

    def __init__(self, settings: Settings, folder: Path, *, echo: bool) -> None:
        seed = settings.seed
        self.seed = seed
        self.folder = folder
        self.hours = settings.hours
        self.chaos = Chaos(seed, settings.without, settings.also, settings.eager)
        self.loop = SimLoop(self.chaos.random("schedule"))
        self.loop.set_exception_handler(self._unheard)
        self.history = History(lambda: self.loop.now_s, echo)
        self.ids = SeededIds(self.chaos.random("ids"))
        self.rules = Rules(
            beat_s=30.0, unreachable_after_s=100.0, run_lease_s=900.0, dead_man_s=600.0, recoveries_per_hour=12,
            empty_pool_s=300.0, start_failures=2,
        )  # fmt: skip
        self.caps = Caps(max_micro_usd_per_hour=40_000_000, max_nodes=8)
        self.policy = PolicyNumbers()
        self.world_clock = SimClock(self.loop)
        self.clock = SimClock(self.loop)
        self.world = SimWorld(self.world_clock, Scenario.of({"seed": seed}), self.loop)
        self.world.subscribe(self._happened)
        self.clouds = {cloud: CloudTruth() for cloud in CLOUDS}
        self.calm_since_s = float("inf")
        self.whole_polls: dict[str, dict[int, tuple[float, float]]] = {cloud: {} for cloud in CLOUDS}
        self.bucket = Bucket()
        self.weather = Weather()
        self.fleet: dict[str, SimNode] = {}
        self.daemons: list[SimDaemon] = []
        self.plans: dict[str, Plan] = {}
        self.truth = Truth(self)
        self.bucket.watchers.append(partial(check_head.put, self.truth))
        self.surroundings = Surroundings(self)
        self.violation: Violation | None = None
        self.clock_was_wrong = False
        self.restored_at_s: float | None = None
        self.disk_full_until_s = 0.0
        self.armed: list[str] = []
        self.between_lives: list[Callable[[], None]] = []
        self.stay_down_s = 0.0
        self.without_lock = False
        self.over = False
        self._failed = asyncio.Event()
        self._disowned: set[str] = set()
        self.orphans: set[str] = set()
        self.cleared = False
        (folder / "policies").mkdir(parents=True)
        (folder / "policies" / "sim.yaml").write_text(self.policy.written())
        self.policies = PolicySet(folder / "policies")

    # -- findings -----------------------------------------------------------------------------------------------------

    def violate(self, rule: str, text: str) -> None:
        """Keep the first violation, and stop whoever caused it. The code under test may swallow the exception."""
        violation = Violation(rule, text)
        if self.violation is None:
            self.violation = violation
            self.history.note("VIOLATION", rule=f"'{rule}'", text=text)
            self._failed.set()
        raise violation

    def failed(self, error: BaseException, where: str) -> None:
        """Something that must not happen, and no rule speaks of: an assertion, a KeyError."""
        if self.violation is None:
            self.violation = (
                error if isinstance(error, Violation) else Violation("I0 no defects", f"{where}: {error!r}")
            )
            self.violation.__cause__ = error if error is not self.violation else None
            self.history.note("VIOLATION", rule=f"'{self.violation.rule}'", text=repr(error))
            self._failed.set()

    def _unheard(self, loop: object, context: dict[str, Any]) -> None:
        """A task has ended badly and nobody has asked how; those of a process that was killed may."""
        error = context.get("exception")
        if isinstance(error, BaseException) and not isinstance(error, Killed | Violation) and not self.over:
            self.failed(error, str(context.get("message")))

    def daemon_failed(self, daemon: SimDaemon, error: BaseException) -> None:
        self.failed(error, f"daemon {daemon.number}")

    def logged(self, logger: Any, method: str, event: dict[str, Any]) -> dict[str, Any]:
        """structlog's processor: the shell logs what it swallows, and a defect must not stay in a log."""
        error = event.get("exc_info")
        if error is True:
            import sys

            error = sys.exc_info()[1]
        if isinstance(error, BaseException) and not isinstance(error, DiskFull | Crash):
            self.failed(error, str(event.get("event")))
        raise structlog.DropEvent

    def note(self, what: str, **data: object) -> None:
        self.history.note(what, **data)

    def watch(self, task: "asyncio.Task[Any]") -> None:
        def done(ended: "asyncio.Task[Any]") -> None:
            error = None if ended.cancelled() else ended.exception()
            if error is not None and not isinstance(error, Crash):
                self.failed(error, "a task of the simulation")

        task.add_done_callback(done)

    def spawn(self, work: Any) -> "asyncio.Task[Any]":
        task = self.loop.create_task(work)
        self.watch(task)
        return task

    # -- what a daemon asks -------------------------------------------------------------------------------------------

    def open_cloud(self, daemon: SimDaemon, cloud: str, part: str) -> SimCloud:
        return SimCloud(
            self.world, cloud, daemon.store.installation_id, self.clouds[cloud], self.chaos, self.history, self.loop,
            f"{part}-{daemon.number}", daemon.crash_point, daemon.crash_soon, partial(check_clouds.judge, self.truth), self.whole_polls[cloud], daemon.clock,
        )  # fmt: skip

    def open_bucket(self, daemon: SimDaemon) -> StoreClient:
        return StoreClient(
            self.bucket, self.weather, f"daemon-{daemon.number}", self.chaos, self.loop,
            lambda: daemon.crash_point("at the store"),
        )  # fmt: skip

    def committed_rows(
        self, daemon: SimDaemon, saved: list[Saved], events: Any, decisions: Any, switches: Any
    ) -> None:
        for name, value in switches:
            since = self.loop.now_s if value else None
            if name == REPORT_ONLY:
                self.truth.report_only_since_s = since
                self.note("switch", name=name, value=value)
                if value and self.restored_at_s is None:
                    self.violate("I18 report-only", "latched, and no database was ever put back")
                if value:
                    self.chaos.reached("a restored database is in report-only mode")
            else:
                self.truth.paused_since_s = since
        self.truth.rows(daemon, saved, events, decisions)

    def prices_taken_in(self, now: Mapping[str, Quote], odd: set[str]) -> None:
        """After a whole poll: a reading that was wrong once is not what the market believes."""
        for key in sorted(odd & now.keys()):
            true = {change.price_micro_usd_h for change in self.world.pools[key].changes}
            if now[key].price_micro_usd_h not in true:
                self.violate("I9 prices", f"{key} is believed to cost {now[key].price_micro_usd_h}, a glitch")

    def crash_armed(self, point: str) -> bool:
        if self.chaos.calm or point not in self.armed:
            return False
        self.armed.remove(point)
        self.chaos.struck(Kind.CRASH)
        return True

    def disk_is_full(self) -> bool:
        full = not self.chaos.calm and self.loop.now_s < self.disk_full_until_s
        if full:
            self.chaos.reached("a commit failed on a full disk")
        return full

    # -- what the checkers ask ----------------------------------------------------------------------------------------

    def machines_of(self, token: str) -> Iterator[lab.Machine]:
        return (m for m in self.world.machines() if m.labels["token"] == token)

    def training_on(self, token: str) -> Copy | None:
        for node in self.fleet.values():
            if node.token == token and node.alive and node.copy is not None and node.copy.training:
                return node.copy
        return None

    def price_at(self, offer_key: str, at_s: int) -> int:
        return self.world.pools[offer_key].at(START_MS // 1000 + at_s).price_micro_usd_h

    def stale(self, who: str) -> bool:
        """A process that is dead, or whose epoch is over."""
        number = int(who.rpartition("-")[2])
        daemon = next(d for d in self.daemons if d.number == number)
        return not daemon.alive or daemon.store.epoch != self.truth.newest_epoch

    def restored_lately(self) -> bool:
        return self.restored_at_s is not None

    def was_disowned(self, token: str) -> bool:
        return token in self._disowned

    def disown(self, token: str) -> None:
        """Its cloud has denied it often enough while it ran: whatever follows is the cloud's doing."""
        self._disowned.add(token)

    def collector_can_see(self, machine: lab.Machine) -> bool:
        """Whether nothing keeps the sweeps of a daemon from it."""
        truth, now_s = self.clouds[machine.cloud], self.loop.now_s
        fine = now_s > max(truth.cut_until_s, truth.expired_until_s, truth.visible_at_s.get(machine.id, 0.0))
        return fine and self.daemon_can_write()

    def daemon_can_write(self) -> bool:
        """Whether one has been up for a while, has room, and is not in report-only mode."""
        now_s = self.loop.now_s
        up = any(d.alive and now_s - d.started_s > 60 for d in self.daemons)
        return up and now_s > self.disk_full_until_s and self.truth.report_only_since_s is None

    # -- the world's side ---------------------------------------------------------------------------------------------

    def _happened(self, what: Happening, machine: lab.Machine) -> None:
        node = self.fleet.get(machine.id)
        self.note(
            f"world.{what}",
            machine=machine.id,
            token=short(machine.labels["token"]),
            by=machine.ended_by or "-",
        )
        if what is Happening.RUNNING:
            self.fleet[machine.id] = SimNode(self.surroundings, machine, self.folder / "nodes")
        elif what is Happening.NOTICED and node is not None and machine.interruption is not None:
            left_s = machine.interruption.deadline_s - machine.interruption.noticed_s
            heard = self.chaos.random("notices").uniform(0, 10)
            if left_s > 15:
                self.loop.call_later(heard, lambda: node.hear(max(1.0, left_s - heard)))
        elif what in (Happening.STOPPING, Happening.TERMINATED) and node is not None:
            node.die()

    async def watch_time(self) -> None:
        while not self.over:
            await asyncio.sleep(TICK_S)
            check_time.tick(self.truth)

    async def some_daemon(self) -> SimDaemon:
        """One that is up, perhaps only after a while."""
        while True:
            if daemon := self.newest_daemon():
                return daemon
            await asyncio.sleep(5)

    def newest_daemon(self) -> SimDaemon | None:
        """The one that holds the lease, if any is up: an older one may not know yet that it has been replaced."""
        return next((daemon for daemon in reversed(self.daemons) if daemon.alive), None)

    async def wait(self, seconds: float) -> None:
        """Let that much time pass, or less if something is found."""
        try:
            async with asyncio.timeout(seconds):
                await self._failed.wait()
        except TimeoutError:
            pass
