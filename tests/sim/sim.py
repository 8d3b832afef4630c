"""One seed: a world, jobs, a daemon that is killed and started again, faults, then calm, and the checks at the end."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import structlog
from sqlalchemy.exc import OperationalError

from broker.core.errors import AuthError, BrokerError
from broker.core.model import Job, JobState, NodeState, PlacementState
from broker.core.offer import Quote
from broker.core.spec import Checkpoint, GpuRequest, JobSpec, Resources
from broker.decision.subject import Caps
from broker.jobs.submit import submit
from broker.migration.rules import Rules
from broker.serve.problem import Gone, Unauthenticated
from broker.store.access import PAUSED, REPORT_ONLY
from broker.store.rows import Saved
from broker.wire import messages as wire
from lab import machines as lab
from lab.catalog import Scenario
from lab.machines import EndedBy, Happening
from tests.clocks import START_MS
from tests.sim.cloud import CloudTruth, SimCloud, SimWorld
from tests.sim.copy import Copy, Plan
from tests.sim.daemon import CLOUDS, Crash, SimDaemon
from tests.sim.faults import Chaos, Kind
from tests.sim.history import History, Violation
from tests.sim.loop import SimClock, SimLoop, SimThread
from tests.sim.node import LinkDown, SimNode
from tests.sim.objects import Bucket, StoreClient, Weather
from tests.sim.truth import TICK_S, Truth

HOUR_S = 3600.0
# Whole polls after which a price is believed, however odd it seems.
CONFIRMED_BY = 2
_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
POLICY = """\
policy: sim
mode: act
objective: cheapest
candidates: {{max_quote_age: {age}s}}
place: {{order: [spot, on_demand]}}
migrate: {{min_saving: 15%, min_saving_usd: 0, max_payback: 12h, hold: 2m, cooldown: {cooldown}s}}
verify: {{on_inconclusive: accept}}
limits: {{migrations_per_job_per_day: {day}, concurrent_migrations: {once}}}
"""


@dataclass(frozen=True)
class Settings:
    """What a history is a function of, beside the commit.

    Attributes:
        hours: Of faults; the calm comes after.
        without: Kinds of faults left out; also: kinds that are on whatever the seed says.
    """

    seed: int
    hours: float = 1.0
    without: frozenset[Kind] = frozenset()
    also: frozenset[Kind] = frozenset()


@dataclass(frozen=True)
class PolicyNumbers:
    """What the policy of every seed says."""

    max_quote_age_s: float = 300.0
    cooldown_s: float = 600.0
    moves_per_day: int = 4
    moves_at_once: int = 2


class SeededIds:
    """Names from the seed."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def base32(self, length: int) -> str:
        return "".join(self._random.choice(_BASE32) for _ in range(length))


class Sim:
    """Everything of one seed. See `tests.sim.run` for what runs it."""

    def __init__(self, settings: Settings, folder: Path, *, echo: bool) -> None:
        seed = settings.seed
        self.seed = seed
        self.folder = folder
        self.hours = settings.hours
        self.chaos = Chaos(seed, settings.without, settings.also)
        self.loop = SimLoop(self.chaos.random("schedule"))
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
        self.bucket.watchers.append(self.truth.put)
        self.violation: Violation | None = None
        self.clock_was_wrong = False
        self.restored_at_s: float | None = None
        self.disk_full_until_s = 0.0
        self.armed: list[str] = []
        self.between_lives: list[Callable[[], None]] = []
        self.stay_down_s = 0.0
        self.without_lock = False
        self.over = False
        self._opened = 0
        self._failed = asyncio.Event()
        self._disowned: set[str] = set()
        self.orphans: set[str] = set()
        self.cleared = False
        (folder / "policies").mkdir(parents=True)
        numbers = self.policy
        (folder / "policies" / "sim.yaml").write_text(
            POLICY.format(
                age=round(numbers.max_quote_age_s), cooldown=round(numbers.cooldown_s),
                day=numbers.moves_per_day, once=numbers.moves_at_once,
            )
        )  # fmt: skip

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

    def daemon_failed(self, daemon: SimDaemon, error: BaseException) -> None:
        self.failed(error, f"daemon {daemon.number}")

    def logged(self, logger: Any, method: str, event: dict[str, Any]) -> dict[str, Any]:
        """structlog's processor: the shell logs what it swallows, and a defect must not stay in a log."""
        error = event.get("exc_info")
        if error is True:
            import sys

            error = sys.exc_info()[1]
        if isinstance(error, BaseException) and not isinstance(error, OperationalError | Crash):
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
            f"{part}-{daemon.number}", daemon.crash_point, self.truth.deed, self.whole_polls[cloud], daemon.clock,
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
                if value and self.restored_at_s is not None:
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
        if self.chaos.calm or not self.armed or not point.startswith(self.armed[0]):
            return False
        self.armed.pop(0)
        return True

    def disk_is_full(self) -> bool:
        full = not self.chaos.calm and self.loop.now_s < self.disk_full_until_s
        if full:
            self.chaos.reached("a commit failed on a full disk")
        return full

    # -- what a node asks ---------------------------------------------------------------------------------------------

    async def hello(self, node: SimNode, message: wire.Hello) -> wire.Welcome:
        return await self._call(node, lambda daemon: daemon.serve_hello(message))

    async def beat(self, node: SimNode, message: wire.Beat) -> wire.Directive:
        return await self._call(node, lambda daemon: daemon.serve_beat(node.token, node.secret, message))

    async def _call(self, node: SimNode, handler: Callable[[SimDaemon], Any]) -> Any:
        random = node.random
        await asyncio.sleep(random.uniform(0.02, 0.3))
        up = [d for d in self.daemons if d.alive]
        if self.loop.now_s < node.cut_until_s and not self.chaos.calm:
            await asyncio.sleep(10)
            raise LinkDown("no route")
        if not up or self.chaos.strikes(Kind.CALL_LOST):
            await asyncio.sleep(2)
            raise LinkDown("connection refused")
        try:
            answer = handler(random.choice(up))
        except (AuthError, Unauthenticated) as error:
            if self.restored_at_s is not None:
                self.chaos.reached("a node that the restored rows do not know was refused")
            raise LinkDown(str(error), 403) from error
        except (Gone, BrokerError, OperationalError) as error:
            raise LinkDown(str(error), 500) from error
        except Crash as error:
            raise LinkDown("connection reset") from error
        await asyncio.sleep(random.uniform(0.02, 0.3))
        if self.chaos.strikes(Kind.CALL_LOST) or self.loop.now_s < node.cut_until_s:
            raise LinkDown("the reply was lost")
        return answer

    def store_client(self, node: SimNode) -> StoreClient:
        return StoreClient(self.bucket, self.weather, node.token, self.chaos, self.loop, node.gate)

    def plan_of(self, job_id: str) -> Plan:
        return self.plans[job_id]

    def contended(self, job_id: str) -> bool:
        """Whether more than one placement may touch the job's objects."""
        if self.chaos.calm:
            return False
        placements = [p for p in self.truth.placements.values() if p.job_id == job_id]
        return sum(p.state in ("ready", "active", "draining", "releasing") for p in placements) != 1

    def end_machine(self, machine_id: str) -> None:
        self.world.terminate(machine_id, EndedBy.NODE)

    def fell_back(self, node: SimNode, copy: Copy) -> None:
        self.truth.fell_back(node, copy)

    def committed(self, node: SimNode, copy: Copy, seq: int, step: int) -> None:
        self.truth.said_committed(node, copy, seq, step)

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
        truth, now_s = self.clouds[machine.cloud], self.loop.now_s
        up = any(d.alive and now_s - d.started_s > 60 for d in self.daemons)
        fine = now_s > max(truth.cut_until_s, truth.expired_until_s, truth.visible_at_s.get(machine.id, 0.0))
        writes = now_s > self.disk_full_until_s
        return up and fine and writes and self.truth.report_only_since_s is None

    # -- the world's side ---------------------------------------------------------------------------------------------

    def _happened(self, what: Happening, machine: lab.Machine) -> None:
        node = self.fleet.get(machine.id)
        self.note(
            f"world.{what}",
            machine=machine.id,
            token=machine.labels["token"][:14],
            by=machine.ended_by or "-",
        )
        if what is Happening.RUNNING:
            self.fleet[machine.id] = SimNode(self, machine, self.folder / "nodes")
        elif what is Happening.NOTICED and node is not None and machine.interruption is not None:
            left_s = machine.interruption.deadline_s - machine.interruption.noticed_s
            heard = self.chaos.random("notices").uniform(0, 10)
            if left_s > 15:
                self.loop.call_later(heard, lambda: node.hear(max(1.0, left_s - heard)))
        elif what in (Happening.STOPPING, Happening.TERMINATED) and node is not None:
            node.die()

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def submit(self, name: str, *, nodes: int, steps: int, handles_term: bool) -> Job | None:
        """What a person does, through whichever daemon is up."""
        spec = JobSpec(
            name,
            "python train.py",
            Resources(gpus=(GpuRequest("H100"),), nodes=nodes),
            checkpoint=Checkpoint("ck", every_s=120, keep_last=3),
        )
        for daemon in self.daemons:
            if daemon.alive:
                try:
                    with daemon.store.write() as tx:
                        job = submit(
                            tx, self.ids, spec, project_id="default", created_by="ada", idempotency_key=f"key-of-{name}-{self.seed:08d}",
                            now_ms=self.clock.now_ms(),
                        )  # fmt: skip
                        self.plans[job.id] = Plan(steps, handles_term)
                except (OperationalError, Crash, BrokerError):
                    return None
                self.note("job.submitted", job=job.id, nodes=nodes, steps=steps, handles_term=handles_term)
                return job
        return None

    async def submits(self) -> None:
        """Three kinds of job: one that saves when asked, one that does not, and a gang."""
        random = self.chaos.random("jobs")
        wishes = [
            ("saves", 1, True),
            ("stubborn", 1, False),
            ("gang", 2, True),
            ("short", 1, True),
        ]
        for name, nodes, handles_term in wishes:
            steps = random.randrange(600, 1500) if name == "short" else random.randrange(2000, 20000)
            while self.submit(name, nodes=nodes, steps=steps, handles_term=handles_term) is None:
                await asyncio.sleep(20)
            await asyncio.sleep(random.uniform(5, 120))

    # -- daemons ------------------------------------------------------------------------------------------------------

    def open_daemon(self) -> SimDaemon:
        self._opened += 1
        with patch("broker.store.state.FileLock", _NoLock) if self.without_lock else nullcontext():
            daemon = SimDaemon(self, self._opened, self.clock)
        self.daemons.append(daemon)
        self.truth.reload(daemon)
        with daemon.store.read() as tx:
            on = {name: tx.switch(name) for name in (PAUSED, REPORT_ONLY)}
        self.truth.report_only_since_s = self.loop.now_s if on[REPORT_ONLY] else None
        self.truth.paused_since_s = self.loop.now_s if on[PAUSED] else None
        self.note("daemon.started", daemon=daemon.number, epoch=daemon.store.epoch)
        daemon.start()
        return daemon

    async def supervise(self) -> None:
        """systemd: start it again whenever it ends."""
        random = self.chaos.random("supervisor")
        while not self.over:
            for deed in self.between_lives:
                deed()
            self.between_lives.clear()
            daemon = self.open_daemon()
            await daemon.ended.wait()
            await daemon.close()
            if not self.over:
                await asyncio.sleep(self.stay_down_s or random.expovariate(1 / 10))
                self.stay_down_s = 0.0
        self.without_lock = False

    async def watch_time(self) -> None:
        while not self.over:
            await asyncio.sleep(TICK_S)
            self.truth.tick()

    async def operate(self) -> None:
        """A person who looks every few minutes, in the calm only: lifts the pause, clears report-only."""
        while not self.over:
            await asyncio.sleep(120)
            daemon = self.newest_daemon()
            if daemon is None or not self.chaos.calm:
                continue
            with daemon.store.write() as tx:
                tx.set_switch(PAUSED, False, by="olga", reason="looked")
                latched = tx.switch(REPORT_ONLY)
            if latched:
                await daemon.auditor.clear("olga", "looked")
                self.cleared = True

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

    # -- the end ------------------------------------------------------------------------------------------------------

    def unsettled(self) -> str | None:
        """Why the world is not at rest yet, or None."""
        truth = self.truth
        if not any(d.alive and self.loop.now_s - d.started_s > 90 for d in self.daemons):
            return "no daemon has been up for a while"
        wanted: set[str] = set()
        for job in truth.jobs.values():
            if job.state.final:
                continue
            active = [
                p
                for p in truth.placements.values()
                if p.job_id == job.id and p.state == PlacementState.ACTIVE
            ]
            if job.state != JobState.RUNNING or len(active) != 1:
                return f"{job.id} is {job.state}: {job.reason}"
            nodes = [n for n in truth.nodes.values() if n.placement_id == active[0].id]
            for node in nodes:
                if node.state != NodeState.RUNNING:
                    return f"{node.token} is {node.state}"
                copy = self.training_on(node.token)
                if copy is None or copy.generation != truth.head(job.id).generation:
                    return f"{job.id} should train on {node.token}"
                wanted.add(node.token)
        open_placements = [p.id for p in truth.placements.values() if p.state not in ("gone", "active")]
        if open_placements:
            return f"{open_placements} are not gone"
        billed = [m for m in self.world.machines() if m.holds_stock]
        extra = [m.labels["token"] for m in billed if m.labels["token"] not in wanted]
        if extra:
            return f"{extra} are billed and do no work"
        open_nodes = {n.token for n in truth.nodes.values() if n.state != NodeState.GONE}
        if open_nodes != wanted:
            return f"rows are open without use: {open_nodes - wanted}"
        if truth.report_only_since_s is not None:
            return "report-only"
        return self._prices_missing()

    def _prices_missing(self) -> str | None:
        """A price that seemed odd is believed when a second poll confirms it; then the ledger can be the bill."""
        for cloud in CLOUDS:
            since_calm = [began for began, _ in self.whole_polls[cloud].values() if began > self.calm_since_s]
            if len(since_calm) < CONFIRMED_BY:
                return f"{cloud} has been polled {len(since_calm)} times since the calm"
        return None


@contextmanager
def simulation(settings: Settings, *, echo: bool = False) -> Iterator[Sim]:
    """A simulation with its folder, its loop, and the few parts of the broker that would reach outside replaced."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="sim-", dir=memory if memory.is_dir() else None))
    sim = Sim(settings, folder, echo=echo)
    nonces = sim.chaos.random("nonces")
    structlog.configure(processors=[sim.logged], cache_logger_on_first_use=False)
    try:
        with ExitStack() as stack:
            for name, stand_in in (
                ("broker.checkpoint.commits._nonce", lambda: f"{nonces.getrandbits(128):032x}"),
                ("broker.market.reader.threading", _Threading),
                ("broker.wire.commit.run_all", _one_by_one),
                ("broker.wire.restore.run_all", _one_by_one),
                ("broker.wire.retention.run_all", _one_by_one),
            ):
                stack.enter_context(patch(name, stand_in))
            yield sim
    finally:
        asyncio.set_event_loop(None)
        sim.loop.close()
        structlog.reset_defaults()
        shutil.rmtree(folder, ignore_errors=True)


class _NoLock:
    """A lock that locks nothing."""

    def __init__(self, path: Path, now_ms: int) -> None:
        self.holder = "nobody"

    def release(self) -> None:
        pass


class _Threading:
    Thread = SimThread


def _one_by_one(threads: int, work: Callable[[Any], Any], items: Any) -> list[Any]:
    return [work(item) for item in items]
