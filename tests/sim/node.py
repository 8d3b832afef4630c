"""A machine's inside: an agent that says what is true and obeys, as `broker.node.agent` does, on a node that can freeze.

What it decides by itself is what a partition leaves it to decide: the run lease stops the job, the dead-man switch
ends the machine, a notice makes it save without asking.
"""

import asyncio
import copy as copying
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any, Protocol

from broker.wire import messages as wire
from broker.wire.messages import Beat, Directive
from lab import machines as lab
from tests.sim.copy import Copy, Plan, Stop
from tests.sim.faults import Chaos, Kind
from tests.sim.history import short
from tests.sim.loop import Killed, SimLoop, Worker, wait
from tests.sim.objects import StoreClient

FIRST_DEAD_MAN_S = 900.0
_DRAIN_COMMIT_S = 600.0
_PROBE_CAP_S = 150.0


class LinkDown(Exception):
    """The daemon did not answer, or not to us. `status` is the HTTP status of a refusal."""

    def __init__(self, why: str, status: int = 0) -> None:
        super().__init__(why)
        self.status = status


class Surroundings(Protocol):
    """What a node needs of the simulation."""

    loop: SimLoop
    chaos: Chaos

    async def hello(self, node: "SimNode", message: wire.Hello) -> wire.Welcome: ...
    async def beat(self, node: "SimNode", message: Beat) -> Directive: ...
    def store_client(self, node: "SimNode") -> StoreClient: ...
    def plan_of(self, job_id: str) -> Plan: ...
    def contended(self, job_id: str) -> bool: ...
    def end_machine(self, machine_id: str) -> None: ...
    def note(self, what: str, **data: object) -> None: ...
    def fell_back(self, node: "SimNode", copy: Copy) -> None: ...
    def committed(self, node: "SimNode", copy: Copy, seq: int, step: int) -> None: ...
    def watch(self, task: "asyncio.Task[None]") -> None: ...


class SimNode:
    """One machine's agent and job.

    Attributes:
        cut_until_s: The daemon cannot be reached until then; paused_until_s: nothing runs here until then.
        lease_end_s: When the run lease ends; None before the first answer.
        copies: Every order that was taken up here, newest last.
    """

    def __init__(self, around: Surroundings, machine: lab.Machine, folder: Path) -> None:
        self.around = around
        self.machine = machine
        self.token = machine.labels["token"]
        self.secret = f"secret-of-{machine.id}-0123456789"
        self.folder = folder / machine.id
        self.random: Random = around.chaos.random(f"node/{self.token}")
        self.cut_until_s = 0.0
        self.paused_until_s = 0.0
        self.thawed_at_s = 0.0
        self.lease_end_s: float | None = None
        self.alive = True
        self.copies: list[Copy] = []
        self._tasks: dict[asyncio.Task[None], None] = {}  # a set has the order of addresses
        self._begin()
        self._spawn_main()

    def _begin(self) -> None:
        """A fresh agent process."""
        self.beat = Beat(0, wire.PHASE_IDLE)
        self._seq = 0
        self._lease_s: float | None = None
        self._dead_man_at_s = self.now_s + FIRST_DEAD_MAN_S
        self._beat_s = 1.0
        self._news = asyncio.Event()
        self._over = False
        self._closing = False
        self._probing = False
        self._order: wire.RunOrder | None = None
        self._ended_generation = 0
        self._prepared = False
        self._warned = False
        self._noticed = False

    # -- what a copy asks of its host ---------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        return self.around.loop.now_s

    @property
    def copy(self) -> Copy | None:
        return self.copies[-1] if self.copies else None

    def say(self) -> None:
        self._news.set()

    def store(self) -> StoreClient:
        return self.around.store_client(self)

    def setup_fails(self) -> bool:
        return self.around.chaos.strikes(Kind.SETUP)

    def nonce(self) -> str:
        return f"{self.random.getrandbits(64):016x}"

    def note(self, what: str, **data: object) -> None:
        self.around.note(what, node=short(self.token), **data)

    def ended(self, state: str) -> None:
        if state == wire.JOB_FENCED:
            self.around.chaos.reached("a zombie was refused by HEAD")
        elif state == wire.JOB_LEASE_LOST:
            self.around.chaos.reached("a run lease ran out")

    def step_by_step(self, copy: Copy) -> bool:
        return self.random.random() < 0.1 or self.around.contended(copy.order.job_id)

    def fell_back(self, copy: Copy) -> None:
        self.around.fell_back(self, copy)

    def committed(self, copy: Copy, seq: int, step: int) -> None:
        self.around.committed(self, copy, seq, step)

    async def sleep(self, seconds: float) -> None:
        """Time on this node: none passes while it is paused, and then it is later than one thinks."""
        await asyncio.sleep(seconds)
        while self.now_s < self.paused_until_s:
            await asyncio.sleep(self.paused_until_s - self.now_s + 0.001)

    def gate(self) -> None:
        """The same for blocking code."""
        while self.alive and self.now_s < self.paused_until_s and Worker.current is not None:
            wait(self.paused_until_s - self.now_s + 0.001)
        if not self.alive:
            raise Killed

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """A thread of this node."""
        task = self.around.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        self.around.watch(task)

    # -- life ---------------------------------------------------------------------------------------------------------

    def _spawn_main(self) -> None:
        self.spawn(self._live())

    def die(self) -> None:
        """The machine is gone, with everything on it."""
        self.alive = False
        for task in list(self._tasks):
            task.cancel()
        for copy in self.copies:
            copy.training = False

    def pause(self, seconds: float) -> None:
        """SIGSTOP, a live migration, a hypervisor that hangs."""
        self.paused_until_s = self.thawed_at_s = self.now_s + seconds
        if self.copy is not None:
            self.copy.freeze()
            self.around.loop.call_later(seconds, lambda: self.copy and self.copy.thaw())

    def restart_agent(self) -> None:
        """The agent's process is killed and started again; its job dies with it, its disk stays."""
        for task in list(self._tasks):
            task.cancel()
        old, probe, notice = self.beat, self.beat.probe, self.beat.notice
        final = old.job.state in (
            wire.JOB_EXITED,
            wire.JOB_STOPPED,
            wire.JOB_FENCED,
            wire.JOB_LEASE_LOST,
            wire.JOB_FAILED,
        )
        for copy in self.copies:
            copy.training = False
        self._begin()
        self.beat.probe, self.beat.notice = probe, notice
        if final and (old.job.state != wire.JOB_EXITED or old.job.saved):
            self.beat.job, self._ended_generation = old.job, old.job.generation
            self.beat.phase = wire.PHASE_STOPPED
        self._spawn_main()

    async def _live(self) -> None:
        if self._seq == 0 and not self.copies and self.lease_end_s is None:
            await self.sleep(self.random.uniform(20, 70))
        if self.machine.request.never_boots:
            return
        self._dead_man_at_s = self.now_s + FIRST_DEAD_MAN_S
        self.spawn(self._dead_man())
        self.spawn(self._watch_lease())
        await self._hello()
        while not self._over:
            self._news.clear()
            await self._call()
            await self.sleep(0.05)
            if not self._news.is_set():
                try:
                    async with asyncio.timeout(self._beat_s):
                        await self._news.wait()
                except TimeoutError:
                    pass
            await self.sleep(0.0)
        self._closing = True
        if self.copy is not None and self.copy.busy:
            self.copy.stop(Stop(wire.JOB_STOPPED, False, 0.0, 0.0))
        await self.sleep(1.0)
        await self._last_call()

    async def _hello(self) -> None:
        pause_s = 1.0
        while True:
            try:
                welcome = await self.around.hello(self, wire.Hello(self.token, self.secret))
                self._beat_s = welcome.beat_s
                return
            except LinkDown:
                await self.sleep(pause_s)
                pause_s = min(2 * pause_s, 30.0)

    async def _call(self) -> None:
        asked_s = self.now_s
        try:
            directive = await self.around.beat(self, self._message())
        except LinkDown as error:
            if error.status in (401, 403):
                self._beat_s = 15.0
            return
        await self.sleep(0.0)
        self._beat_s = directive.beat_s
        self._lease_s = directive.run_lease_s
        self.lease_end_s = asked_s + directive.run_lease_s
        self._dead_man_at_s = self.now_s + directive.run_lease_s + directive.dead_man_s
        self._obey(directive)

    async def _last_call(self) -> None:
        try:
            await self.around.beat(self, self._message())
        except LinkDown:
            pass

    def _message(self) -> Beat:
        self._seq += 1
        self.beat.seq = self._seq
        return copying.deepcopy(self.beat)

    # -- orders -------------------------------------------------------------------------------------------------------

    def _obey(self, directive: Directive) -> None:
        match directive.order:
            case wire.ORDER_PROBE if not self._probing and self.beat.probe is None:
                self._probing = True
                self.beat.phase = wire.PHASE_PROBING
                self.spawn(self._probe())
            case wire.ORDER_PREPARE | wire.ORDER_RUN if directive.run is not None:
                self._wish(directive.run)
            case wire.ORDER_DRAIN if directive.drain is not None:
                kill_at_s = self.now_s + (directive.drain.within_s if directive.drain.save else 0.0)
                self._stop(
                    Stop(wire.JOB_STOPPED, directive.drain.save, kill_at_s, kill_at_s + _DRAIN_COMMIT_S)
                )
            case wire.ORDER_EXIT:
                self._over = True

    def _wish(self, order: wire.RunOrder) -> None:
        """See `broker.node.wishes`: a generation that has ended stays ended; a newer one fences the older here."""
        if self._order is not None and order.generation < self._order.generation:
            return
        self._order = order
        copy = self.copy
        if copy is not None and copy.busy:
            if 0 < copy.generation < order.generation:
                copy.stop(Stop(wire.JOB_FENCED, False, 0.0, 0.0))
            return
        if order.generation > self._ended_generation or (order.generation == 0 and not self._prepared):
            self._take_up(order)

    def _take_up(self, order: wire.RunOrder) -> None:
        copy = Copy(self, order, self.around.plan_of(order.job_id))
        if order.generation:
            self._ended_generation = order.generation
        self._prepared = True
        self.copies.append(copy)
        if self._closing:
            copy.stop(Stop(wire.JOB_STOPPED, False, 0.0, 0.0))
        self.spawn(self._work(copy))

    async def _work(self, copy: Copy) -> None:
        await copy.run()
        if self._order is not None and self._order.generation > self._ended_generation:
            self._take_up(self._order)  # it came while the last one was still busy

    def _stop(self, wish: Stop) -> None:
        if self._order is not None:
            self._ended_generation = max(self._ended_generation, self._order.generation)
        if self.copy is not None and self.copy.busy:
            self.copy.stop(wish)
            return
        self._order = None
        if self.beat.job.state == wire.JOB_NONE:
            self.beat.job.state, self.beat.job.saved = wire.JOB_STOPPED, True
            self.beat.phase = wire.PHASE_STOPPED
            self.say()

    async def _probe(self) -> None:
        if self.around.chaos.strikes(Kind.PROBE_HANGS):
            self.note("fault.probe_hangs")
            if self.random.random() < 0.5:
                return  # the agent's own cap fails too: only the placement's deadline is left
            await self.sleep(_PROBE_CAP_S)
            verdict, why = "inconclusive", "stage exact: still running after 150 s"
        else:
            await self.sleep(self.random.uniform(20, 60))
            verdict, why = self._verdict()
        self.beat.probe = {"verdict": verdict, "reasons": [why]}
        self.beat.phase = wire.PHASE_IDLE
        self.say()

    def _verdict(self) -> tuple[str, str]:
        if self.around.chaos.strikes(Kind.PROBE):
            verdict = self.random.choice(["reject", "inconclusive", "degraded"])
            return verdict, f"scripted {verdict}"
        return "accept", "all checks passed"

    # -- what it decides by itself ------------------------------------------------------------------------------------

    async def _watch_lease(self) -> None:
        while True:
            end_s, lease_s = self.lease_end_s, self._lease_s
            if end_s is None or lease_s is None:
                await self.sleep(5.0)
                continue
            farewell_s = min(30.0, 0.1 * lease_s)
            if self.now_s < end_s - farewell_s - 0.001:
                self._warned = False
                await self.sleep(end_s - farewell_s - self.now_s)
            elif not self._warned and self.copy is not None and self.copy.busy:
                self._warned = True
                self.note("lease.ending")
                stop_s = max(self.now_s, end_s)
                self._stop(Stop(wire.JOB_LEASE_LOST, True, stop_s, stop_s + farewell_s))
            else:
                await self.sleep(1.0)

    async def _dead_man(self) -> None:
        while self.now_s < self._dead_man_at_s:
            await self.sleep(self._dead_man_at_s - self.now_s)
        self.note("dead_man.acts")
        self.around.chaos.reached("the dead-man switch ended a machine")
        self.around.end_machine(self.machine.id)

    def hear(self, seconds_left: float) -> None:
        """An interruption notice: save what can be saved, without asking."""
        if self._noticed or not self.alive:
            return
        self._noticed = True
        self.beat.notice = wire.Notice("world", seconds_left)
        self._closing = True
        end_s = self.now_s + seconds_left
        if self.copy is not None and self.copy.busy:
            if self.beat.job.handles_term:
                reserve_s = min(0.5 * seconds_left, max(0.2 * seconds_left, 5.0))
                self._stop(Stop(wire.JOB_STOPPED, True, end_s - reserve_s, end_s))
            else:
                self._stop(
                    Stop(wire.JOB_STOPPED, True, end_s - min(5.0, 0.15 * seconds_left), end_s, linger=True)
                )
        self.say()
