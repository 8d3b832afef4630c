"""Faults that come by themselves: each kind in a task of its own, at times of its own."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

from broker.core.errors import BrokerError
from broker.core.model import PlacementState
from broker.jobs.submit import cancel
from broker.store.access import PAUSED
from tests.sim.daemon import SimDaemon
from tests.sim.faults import EVERY_S, Kind
from tests.sim.node import SimNode
from tests.sim.parts import Crash
from tests.sim.sim import Sim
from tests.sim.supervisor import open_daemon

CRASH_POINTS = (
    "before commit", "after commit", "after commit", "before create", "during create", "after create", "before find",
    "after find", "before delete", "during delete", "after delete", "before list", "at the store", "at the store",
    "after fence",
)  # fmt: skip
# How old a backup may be when it is put back.
BACKUP_S = (300.0, 3600.0)


class Nemesis:
    """All of them, until `end`."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self._tasks: list[asyncio.Task[None]] = []
        self._backups: list[tuple[float, Path]] = []
        self._history: Path | None = None

    def start(self) -> None:
        """Begin."""
        deeds: dict[Kind, Callable[[], object]] = {
            Kind.EXPIRED: self.expire,
            Kind.STOCK: self.stock,
            Kind.PRICE_JUMP: self.price,
            Kind.FEED_STOPS: self.feed,
            Kind.RECLAIM: self.reclaim,
            Kind.NOTICE: self.notice,
            Kind.STORM: self.storm,
            Kind.PAUSE: self.pause,
            Kind.AGENT_RESTART: self.restart_agent,
            Kind.NODE_CUT: self.cut_node,
            Kind.CLOUD_CUT: self.cut_cloud,
            Kind.STORE_SLOW: self.slow_store,
            Kind.STORE_FAILS: self.fail_store,
            Kind.CORRUPT: self.corrupt,
            Kind.CRASH: self.crash,
            Kind.LONG_DOWN: self.long_down,
            Kind.DISK_FULL: self.fill_disk,
            Kind.POWER: self.power_loss,
            Kind.TWO_DAEMONS: self.second_daemon,
            Kind.CLOCK: self.clock,
            Kind.RESTORE: self.restore,
            Kind.CANCEL: self.cancel,
            Kind.PAUSED: self.pause_broker,
        }
        assert deeds.keys() == EVERY_S.keys()
        for kind, deed in deeds.items():
            if kind in self.sim.chaos.on:
                self._tasks.append(self.sim.spawn(self._again(kind, deed)))
        if self.sim.chaos.on & {Kind.RESTORE, Kind.POWER}:
            self._tasks.append(self.sim.spawn(self._back_up()))

    def end(self) -> None:
        """Calm: what is broken is mended, what was cut is joined."""
        sim = self.sim
        for task in self._tasks:
            task.cancel()
        sim.chaos.calm = True
        sim.armed.clear()
        for truth in sim.clouds.values():
            truth.cut_until_s = truth.expired_until_s = truth.feed_until_s = 0.0
        for node in sim.fleet.values():
            node.cut_until_s = 0.0
        sim.weather.fails_until_s = sim.weather.slow_until_s = sim.disk_full_until_s = 0.0
        sim.clock.offset_ms = max(0, sim.clock.offset_ms)
        for key in sim.world.pools:
            sim.world.set_stock(key, None)

    async def _again(self, kind: Kind, deed: Callable[[], object]) -> None:
        random = self.sim.chaos.random(f"when/{kind}")
        while True:
            await asyncio.sleep(random.expovariate(1 / self.sim.chaos.every_s(kind)))
            said = deed()
            if said is not None:
                self.sim.chaos.struck(kind)
                self.sim.note(f"fault.{kind}", on=said)

    # -- clouds and market --------------------------------------------------------------------------------------------

    def _spell(self, name: str, low: float, high: float) -> float:
        return self.sim.loop.now_s + self.sim.chaos.random(name).uniform(low, high)

    def _cloud(self, name: str) -> str:
        return self.sim.chaos.random(name).choice(sorted(self.sim.clouds))

    def expire(self) -> str:
        cloud = self._cloud("expire")
        self.sim.clouds[cloud].expired_until_s = self._spell("expire", 60, 400)
        return cloud

    def cut_cloud(self) -> str:
        cloud = self._cloud("cut")
        self.sim.clouds[cloud].cut_until_s = self._spell("cut", 60, 600)
        return cloud

    def feed(self) -> str:
        cloud = self._cloud("feed")
        self.sim.clouds[cloud].feed_until_s = self._spell("feed", 120, 1200)
        return cloud

    def stock(self) -> str:
        """A pool runs empty or is filled again; now and then a whole region."""
        random, world = self.sim.chaos.random("stock"), self.sim.world
        key = random.choice(sorted(world.pools))
        stock = random.choice([0, 0, 1, 2, None])
        region = world.pools[key].listing.zone.region
        keys = (
            [k for k, p in world.pools.items() if p.listing.zone.region == region]
            if random.random() < 0.2
            else [key]
        )
        for each in keys:
            world.set_stock(each, stock)
        return f"{keys[0]}={stock}"

    def price(self) -> str:
        """Prices that really change, within what one poll to the next may believe."""
        random, world = self.sim.chaos.random("price"), self.sim.world
        key = random.choice([k for k in sorted(world.pools) if k.endswith("/spot")])
        price = world.pools[key].changes[-1].price_micro_usd_h
        new = min(
            14_000_000, max(500_000, round(price * random.choice([0.3, 0.5, 0.8, 1.1, 1.5, 2.5]) / 100) * 100)
        )
        world.set_price(key, new)
        return f"{key}={new}"

    # -- machines -----------------------------------------------------------------------------------------------------

    def _node(self, name: str) -> SimNode | None:
        """One that is up; those that train first."""
        alive = [
            n for n in self.sim.fleet.values() if n.alive and self.sim.world.machine(n.machine.id).holds_stock
        ]
        training = [n for n in alive if n.copy is not None and n.copy.training]
        random = self.sim.chaos.random(name)
        pool = training if training and random.random() < 0.7 else alive
        return random.choice(pool) if pool else None

    def _handing_over(self, name: str) -> SimNode | None:
        """Half the time one whose job is about to go on elsewhere, if there is any: what is said last decides."""
        if self.sim.chaos.random(f"{name}/hand over").random() < 0.5:
            return None
        rows = self.sim.truth.placements.values()
        leaving = {p.replaces for p in rows if p.state.landing or p.state == PlacementState.READY}
        tokens = {n.token for n in self.sim.truth.nodes.values() if n.placement_id in leaving}
        return next((n for n in self.sim.fleet.values() if n.alive and n.token in tokens), None)

    def _take(self, node: SimNode, notice_s: int | None) -> str:
        self.sim.world.interrupt(node.machine.id, notice_s)
        return node.machine.id

    def reclaim(self) -> str | None:
        node = self._node("reclaim")
        return self._take(node, 0) if node else None

    def notice(self) -> str | None:
        node = self._node("notice")
        return self._take(node, self.sim.chaos.random("notice").choice([30, 60, 120])) if node else None

    def storm(self) -> str | None:
        """The cloud takes back half of what we have."""
        alive = [n for n in self.sim.fleet.values() if n.alive]
        for node in alive[::2]:
            self._take(node, 0)
        return f"{len(alive[::2])} machines" if alive else None

    def pause(self) -> str | None:
        node = self._node("pause")
        if node is None:
            return None
        node.pause(self.sim.chaos.random("pause").choice([20, 120, 400, 1200]))
        return node.machine.id

    def restart_agent(self) -> str | None:
        node = self._node("restart")
        if node is None or node.now_s < node.paused_until_s:
            return None
        node.restart_agent()
        return node.machine.id

    def cut_node(self) -> str | None:
        node = self._handing_over("cut_node") or self._node("cut_node")
        if node is None:
            return None
        node.cut_until_s = self.sim.loop.now_s + self.sim.chaos.random("cut_node").choice(
            [30, 150, 600, 2000]
        )
        return f"{node.machine.id} until {node.cut_until_s:.0f}"

    # -- the checkpoint store -----------------------------------------------------------------------------------------

    def slow_store(self) -> str:
        self.sim.weather.slow_until_s = self._spell("slow", 60, 600)
        return "slow"

    def fail_store(self) -> str:
        self.sim.weather.fails_until_s = self._spell("fails", 30, 300)
        return "fails"

    def corrupt(self) -> str | None:
        """One chunk of one job rots; never all of them, or the job would rightly fail."""
        random, objects = self.sim.chaos.random("corrupt"), self.sim.bucket.objects
        jobs = sorted({key.split("/")[1] for key in objects if "/chunks/" in key})
        for job_id in jobs:
            truth = self.sim.truth.head(job_id)
            chunks = sorted(key for key in objects if key.startswith(f"jobs/{job_id}/chunks/"))
            if truth.damaged or len(chunks) < 3 or random.random() < 0.5:
                continue
            key = chunks[-1]
            objects[key] = b"rotten" + objects[key]
            truth.damaged = True
            return key[-40:]
        return None

    # -- the daemon ---------------------------------------------------------------------------------------------------

    def _daemon(self) -> SimDaemon | None:
        return next((d for d in self.sim.daemons if d.alive), None)

    def crash(self) -> None:
        """The next time that a daemon comes to one of these points, it dies there; that is when it counts."""
        point = self.sim.chaos.random("crash").choice(CRASH_POINTS)
        self.sim.armed.append(point)
        self.sim.note("crash.armed", point=point)

    def long_down(self) -> str | None:
        daemon = self._daemon()
        if daemon is None:
            return None
        self.sim.stay_down_s = self.sim.chaos.random("down").uniform(300, 2000)
        daemon.kill("long downtime")
        return f"{self.sim.stay_down_s:.0f} s"

    def fill_disk(self) -> str:
        self.sim.disk_full_until_s = self._spell("disk", 20, 240)
        return "full"

    def power_loss(self) -> str | None:
        """`state.db` is synchronous=FULL: what was committed is there. `history.db` may lose its last commits."""
        on = [daemon for daemon in self.sim.daemons if daemon.alive]
        if not on:
            return None
        if self._history is not None:
            saved, self._history = self._history, None
            self.sim.between_lives.append(lambda: _put_back(saved, self.sim.folder / "history.db"))
            self.sim.chaos.reached("power loss took the last prices")
        # It takes the machine, and every daemon on it: none may go on with files that another life puts back.
        for daemon in on:
            daemon.kill("power loss")
        return "off"

    async def _back_up(self) -> None:
        """What an operator's cron job does, and what a disk had before its last seconds."""
        number = 0
        while True:
            await asyncio.sleep(240)
            if self._daemon() is None:
                continue
            number += 1
            state = self.sim.folder / f"backup-{number}.db"
            _copy(self.sim.folder / "state.db", state)
            self._backups.append((self.sim.loop.now_s, state))
            self._history = self.sim.folder / f"history-{number}.db"
            _copy(self.sim.folder / "history.db", self._history)

    def restore(self) -> str | None:
        """Somebody puts an old copy of the database in place."""
        now_s, daemon = self.sim.loop.now_s, self._daemon()
        old = [(at, path) for at, path in self._backups if BACKUP_S[0] <= now_s - at <= BACKUP_S[1]]
        if not old or daemon is None or len([d for d in self.sim.daemons if d.alive]) > 1:
            return None
        at_s, path = self.sim.chaos.random("restore").choice(old)
        self._backups = [(at, p) for at, p in self._backups if at <= at_s]
        self.sim.between_lives.append(lambda: self._put_back_state(path))
        daemon.kill("restore")
        return f"{now_s - at_s:.0f} s old"

    def _put_back_state(self, path: Path) -> None:
        _put_back(path, self.sim.folder / "state.db")
        self.sim.restored_at_s = self.sim.loop.now_s
        self.sim.chaos.reached("a database was restored from a backup")

    def second_daemon(self) -> str | None:
        """The file lock has failed us (a network disk, a copied container): two daemons, one database."""
        if len([d for d in self.sim.daemons if d.alive]) != 1:
            return None
        self.sim.without_lock = True
        second = open_daemon(self.sim)
        self.sim.spawn(self._end_second(second))
        return f"daemon {second.number}"

    async def _end_second(self, daemon: SimDaemon) -> None:
        try:
            async with asyncio.timeout(self.sim.chaos.random("second").uniform(30, 600)):
                await daemon.ended.wait()
        except TimeoutError:
            daemon.kill("stopped by hand")
        await daemon.close()

    def clock(self) -> str:
        """NTP gone wrong, or right again."""
        offset_s = self.sim.chaos.random("clock").choice([-600, -120, 60, 300, 1200, 0])
        self.sim.clock.offset_ms = offset_s * 1000
        self.sim.clock_was_wrong = True
        return f"{offset_s} s"

    # -- people -------------------------------------------------------------------------------------------------------

    def cancel(self) -> str | None:
        daemon = self._daemon()
        open_jobs = sorted(j.id for j in self.sim.truth.jobs.values() if not j.state.final)
        if daemon is None or len(open_jobs) < 2:
            return None
        job_id = self.sim.chaos.random("cancel").choice(open_jobs)
        try:
            with daemon.store.write() as tx:
                job = tx.job(job_id)
                if job is not None:
                    cancel(tx, job, "ada", self.sim.clock.now_ms())
        except (Crash, BrokerError):
            return None
        return job_id

    def pause_broker(self) -> str | None:
        daemon = self._daemon()
        if daemon is None:
            return None
        try:
            with daemon.store.write() as tx:
                tx.set_switch(PAUSED, True, by="olga", reason="invoice")
        except (Crash, BrokerError):
            return None
        self._tasks.append(self.sim.spawn(self._resume()))
        return "paused"

    async def _resume(self) -> None:
        await asyncio.sleep(self.sim.chaos.random("resume").uniform(60, 600))
        while True:
            daemon = self._daemon()
            try:
                if daemon is not None:
                    with daemon.store.write() as tx:
                        tx.set_switch(PAUSED, False, by="olga", reason="paid")
                    return
            except (Crash, BrokerError):
                pass
            await asyncio.sleep(20)


def _copy(source: Path, target: Path) -> None:
    """A consistent copy of a database that is in use."""
    with sqlite3.connect(source) as before, sqlite3.connect(target) as after:
        before.backup(after)
    before.close()
    after.close()


def _put_back(source: Path, target: Path) -> None:
    for suffix in ("-wal", "-shm"):
        Path(f"{target}{suffix}").unlink(missing_ok=True)
    shutil.copy(source, target)
