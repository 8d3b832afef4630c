"""Parts of a daemon's process, as they are when it can be killed anywhere: store, checkpoints, decisions, blocking calls."""

import asyncio
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from broker.checkpoint.commits import CheckpointStore
from broker.core.errors import DiskFull
from broker.core.model import Decision, Event
from broker.decision.subject import Subject
from broker.jobs.submit import cancel
from broker.migration.decide import Decider
from broker.store.rows import Saved
from broker.store.state import StateStore, Tx
from broker.wire.head import Head
from broker.wire.store_client import ObjectStore
from tests.sim.faults import Kind
from tests.sim.loop import Killed, blocking, stepping

if TYPE_CHECKING:
    from tests.sim.daemon import SimDaemon

T = TypeVar("T")


class Crash(Killed):
    """This process, a daemon, is no more."""


class Written:
    """What a transaction writes, kept until it has come true."""

    def __init__(self, tx: Tx) -> None:
        self.rows: list[Saved] = []
        self.events: list[Event] = []
        self.decisions: list[Decision] = []
        self.switches: list[tuple[str, bool]] = []
        save, emit, save_decision, set_switch = tx.save, tx.emit, tx.save_decision, tx.set_switch

        def kept(value: Saved) -> None:
            save(value)
            self.rows.append(value)

        def emitted(event: Event) -> int:
            self.events.append(event)
            return emit(event)

        def decided(decision: Decision) -> None:
            save_decision(decision)
            self.decisions.append(decision)

        def switched(name: str, value: bool, **more: Any) -> bool:
            changed = set_switch(name, value, **more)
            if changed:
                self.switches.append((name, value))
            return changed

        tx.save, tx.emit, tx.save_decision, tx.set_switch = kept, emitted, decided, switched  # type: ignore[method-assign,assignment]


class SimStore(StateStore):
    """The real store of one daemon, with a process around it that can die and a disk that can be full."""

    daemon: "SimDaemon"

    @contextmanager
    def write(self) -> Iterator[Tx]:
        daemon = self.daemon
        daemon.check_alive()
        with super().write() as tx:
            written = Written(tx)
            yield tx
            if daemon.around.disk_is_full():
                raise DiskFull("no room left")
            daemon.crash_point("before commit")
        daemon.around.committed_rows(
            daemon, written.rows, written.events, written.decisions, written.switches
        )
        daemon.crash_point("after commit")


class SimCheckpoints(CheckpointStore):
    """The daemon's side of the checkpoint store, over the simulated one."""

    def __init__(self, store: ObjectStore, crash_point: Callable[[str], None]) -> None:
        self._store = store
        self._crash_point = crash_point
        self._settings = cast(Any, SimpleNamespace(job_prefix=lambda job_id: f"jobs/{job_id}", prefix=""))

    def fence(self, job_id: str, generation: int, holder: str = "", must_exist: bool = False) -> Head:
        head = super().fence(job_id, generation, holder, must_exist)
        self._crash_point("after fence")
        return head


class SimDecider(Decider):
    """The real one; between its answer and the commit of it, as other threads go on, a person may cancel the job."""

    daemon: "SimDaemon"

    def _keep(self, subject: Subject, *answer: Any, **more: Any) -> int:
        acts = more.get("acts", answer[3] if len(answer) > 3 else False)
        if acts and self.daemon.around.chaos.strikes(Kind.OVERTAKEN):
            with self.store.write() as tx:
                job = tx.job(subject.job.id)
                assert job is not None
                cancel(tx, job, "ada", self.clock.now_ms())
            self.daemon.around.history.note("fault.overtaken", job=job.id)
        return super()._keep(subject, *answer, **more)


class SimBlocking:
    """`Blocking` with virtual time-outs; a call that is given up goes on without its caller, like a hung thread."""

    def __init__(self, daemon: "SimDaemon") -> None:
        self._daemon = daemon

    async def call(self, pool: str, work: Callable[[], T], timeout_s: float) -> T:
        task = self._daemon.spawn(self._run(pool, work))
        async with asyncio.timeout(timeout_s):
            return cast(T, await asyncio.shield(task))

    @staticmethod
    async def _run(pool: str, work: Callable[[], T]) -> T:
        if pool == "store":
            return await blocking(work)
        said = work()
        return cast(T, await stepping(said)) if isinstance(said, Generator) else said
