"""One copy of a job on a node: prepares, restores, trains, commits, stops. It does what `broker.node.job` does.

Files, chunks, manifests and HEAD are real (`broker.wire`); only training is arithmetic: one step a second.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from broker.wire import messages as wire
from broker.wire.commit import restore, retain, write_commit
from broker.wire.errors import Damaged, Fenced, LostRace, SourceChanged, WireError
from broker.wire.head import read_head
from tests.sim.loop import blocking
from tests.sim.objects import StoreClient

T = TypeVar("T")
SAVE_S = 6.0
_COMMIT_PAUSE_S = 5.0
_FINAL = (wire.JOB_EXITED, wire.JOB_STOPPED, wire.JOB_FENCED, wire.JOB_LEASE_LOST, wire.JOB_FAILED)
_STERNNESS = (wire.JOB_STOPPED, wire.JOB_LEASE_LOST, wire.JOB_FENCED)


@dataclass(frozen=True)
class Stop:
    """A wish to stop, as `broker.node.wishes.Stop`; times are the loop's."""

    state: str
    save: bool
    kill_at_s: float
    commit_until_s: float
    linger: bool = False

    def and_also(self, other: "Stop") -> "Stop":
        return Stop(
            max(self.state, other.state, key=_STERNNESS.index),
            self.save and other.save,
            min(self.kill_at_s, other.kill_at_s),
            min(self.commit_until_s, other.commit_until_s),
            self.linger and other.linger,
        )


class Host(Protocol):
    """What a copy needs of its node."""

    token: str
    folder: Path
    beat: wire.Beat

    @property
    def now_s(self) -> float: ...
    def say(self) -> None: ...
    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...
    async def sleep(self, seconds: float) -> None: ...
    def store(self) -> StoreClient: ...
    def setup_fails(self) -> bool: ...
    def nonce(self) -> str: ...
    def note(self, what: str, **data: object) -> None: ...
    def ended(self, state: str) -> None: ...
    def step_by_step(self, copy: "Copy") -> bool: ...
    def fell_back(self, copy: "Copy") -> None: ...
    def committed(self, copy: "Copy", seq: int, step: int) -> None: ...


@dataclass(frozen=True)
class Plan:
    """How the job behaves.

    Attributes:
        total_steps: It exits by itself then.
        handles_term: It saves when it is asked to stop.
    """

    total_steps: int
    handles_term: bool


class Copy:
    """One order that is being met.

    Attributes:
        training: A process of the job runs. Truth: the checkers look at it.
    """

    def __init__(self, host: Host, order: wire.RunOrder, plan: Plan) -> None:
        self.host = host
        self.order = order
        self.plan = plan
        self.stopping: Stop | None = None
        self.training = False
        self.busy = True
        self.restored_step = 0
        self.fell_back = False
        self._base_step = 0
        self._since_s = 0.0
        self._committed_step = -1
        self._changed = asyncio.Event()
        self._fenced = False
        self._enough = False
        self._working = asyncio.Lock()

    @property
    def generation(self) -> int:
        return self.order.generation

    @property
    def step(self) -> int:
        """How far training has come."""
        ran_s = max(0.0, self.host.now_s - self._since_s) if self.training else 0.0
        return min(self.plan.total_steps, self._base_step + int(ran_s))

    def stop(self, wish: Stop) -> None:
        """Also while it prepares."""
        self.stopping = self.stopping.and_also(wish) if self.stopping else wish
        self._changed.set()

    async def run(self) -> None:
        """Meet the order; the node's beat tells how it goes."""
        host, job = self.host, self.host.beat.job
        if self.generation:
            host.beat.job = wire.JobNote(generation=self.generation)
        try:
            if job.state == wire.JOB_NONE:
                host.beat.phase = wire.PHASE_PREPARING
                await self._pause(8.0)
                if host.setup_fails():
                    return self._end(wire.JOB_FAILED, error="setup ended with exit code 1")
            if not self.generation:
                host.beat.phase = wire.PHASE_READY
                return host.say()
            await self._restore()
            await self._train()
        except _Interrupted:
            assert self.stopping is not None
            self._end(self.stopping.state, saved=True)
        except Damaged as error:
            self._end(wire.JOB_FAILED, error=f"no checkpoint can be restored: {error}")
        finally:
            self.busy = False

    async def _restore(self) -> None:
        host = self.host
        host.beat.phase = wire.PHASE_RESTORING
        prefix, folder = self.order.store.prefix, host.folder
        while True:
            self._check()
            try:
                done = await self._blocking(lambda: restore(host.store(), prefix, folder))
                break
            except Damaged:
                raise
            except WireError as error:
                host.beat.store_error = str(error)
            await self._pause(2.0)
        host.beat.store_error = ""
        fell_back = [f"{manifest}: {why}" for manifest, why in done.fell_back]
        self.fell_back = bool(fell_back)
        if done.manifest is None or done.link is None:
            host.beat.job.restore = wire.RestoreNote(0)
        else:
            step = int((folder / "state").read_text())
            assert step == done.manifest.step, "the files are those of the manifest"
            self.restored_step = step
            host.beat.job.restore = wire.RestoreNote(done.manifest.seq, step, done.link.manifest, fell_back)
        if self.fell_back:
            host.fell_back(self)

    async def _train(self) -> None:
        host = self.host
        await self._pause(5.0)
        self._base_step, self._since_s = self.restored_step, host.now_s
        self._committed_step = self.restored_step if self.restored_step else -1
        self.training = True
        host.beat.job.state, host.beat.job.started = wire.JOB_RUNNING, True
        host.beat.job.handles_term = self.plan.handles_term
        host.beat.phase = wire.PHASE_RUNNING
        host.note("copy.trains", job=self.order.job_id, generation=self.generation, step=self.step)
        host.say()
        if self.order.rank == 0:
            host.spawn(self._watch())
        try:
            while self.stopping is None and self.step < self.plan.total_steps:
                await self._wait(self.plan.total_steps - self.step + 0.01)
                self._report()
            if self.stopping is None:
                await self._after_exit()
            else:
                await self._after_stop()
        finally:
            self._halt()

    async def _watch(self) -> None:
        """The committer's own thread: commits while training goes on, whatever the job's thread does."""
        pause_s = self.order.checkpoint_every_s
        while not self._enough and not self._fenced:
            await self.host.sleep(pause_s)
            if self._enough or self._fenced:
                return
            fine = await self._commit(self.step)
            pause_s = self.order.checkpoint_every_s if fine else _COMMIT_PAUSE_S

    async def _after_exit(self) -> None:
        step = self.step
        self._halt()
        note = self.host.beat.job
        note.state, note.exit_code, note.handles_term = wire.JOB_EXITED, 0, None
        self._report(step)
        self.host.say()
        saved = await self._last_commit(step, lambda: self.stopping.commit_until_s if self.stopping else None)
        self._end(wire.JOB_FENCED if self._fenced else wire.JOB_EXITED, saved=saved, exit_code=0)

    async def _after_stop(self) -> None:
        assert self.stopping is not None
        self.host.beat.phase = wire.PHASE_DRAINING
        saved_step = None
        if self.stopping.save and self.plan.handles_term:
            until_s = min(self.host.now_s + SAVE_S, self.stopping.kill_at_s)
            while self.host.now_s < min(until_s, self.stopping.kill_at_s) - 0.001:
                await self._wait(until_s - self.host.now_s)
            if self.host.now_s >= until_s - 0.001 and until_s < self.stopping.kill_at_s:
                saved_step = self.step
        while self.stopping.linger and self.host.now_s < self.stopping.kill_at_s - 0.001:
            await self._wait(self.stopping.kill_at_s - self.host.now_s)
        self._halt()
        saved = True
        if self.stopping.save and saved_step is not None and not self._fenced:
            saved = await self._last_commit(
                saved_step, lambda: self.stopping.commit_until_s if self.stopping else None
            )
        state = wire.JOB_FENCED if self._fenced else self.stopping.state
        self._end(state, saved=saved and not self._fenced)

    def _halt(self) -> None:
        """No process of the job runs here any more."""
        if self.training:
            self._base_step = self.step
            self.training = False
        self._enough = True

    def freeze(self) -> None:
        """The process gets no time any more."""
        self._base_step, self._since_s = self.step, float("inf")

    def thaw(self) -> None:
        """And now it does again."""
        self._since_s = self.host.now_s

    async def _last_commit(self, step: int, until_s: Callable[[], float | None]) -> bool:
        if self.order.rank != 0 or step <= self._committed_step:
            return True
        while not self._fenced:
            if await self._commit(step):
                return True
            limit_s = until_s()
            if limit_s is not None and self.host.now_s + _COMMIT_PAUSE_S > limit_s:
                return False
            await self.host.sleep(_COMMIT_PAUSE_S)
        return False

    async def _commit(self, step: int) -> bool:
        """What `broker.node.committer` does with one complete checkpoint; one at a time."""
        async with self._working:
            if self.order.rank != 0 or step <= self._committed_step:
                return True
            return await self._commit_now(step)

    async def _commit_now(self, step: int) -> bool:
        host, prefix, generation = self.host, self.order.store.prefix, self.generation
        folder = host.folder.parent / f"snapshot-{host.folder.name}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "state").write_text(str(step))
        os.utime(folder / "state", ns=(step * 10**9, step * 10**9))
        store, nonce = host.store(), host.nonce()
        try:
            head = await self._blocking(
                lambda: write_commit(store, prefix, generation, nonce, folder, ["state"], step=step)
            )
        except (SourceChanged, LostRace):
            return False
        except Fenced:
            await self._lost_the_right()
            return False
        except WireError as error:
            host.beat.store_error = str(error)
            return False
        host.beat.store_error = ""
        self._committed_step = step
        host.beat.commit = wire.CommitNote(
            head.generation, head.seq, head.manifest, head.manifest_sha256, step, 1 << 30
        )
        host.committed(self, head.seq, step)
        host.say()
        try:
            await self._blocking(lambda: retain(host.store(), prefix, generation, self.order.keep_last))
        except Fenced:
            await self._lost_the_right()
        except WireError:
            pass  # the next commit's turn
        return True

    async def _blocking(self, work: Callable[[], T]) -> T:
        """Step by step where somebody else may touch the same objects, and now and then anyway."""
        return await blocking(work, at_once=not self.host.step_by_step(self))

    async def _lost_the_right(self) -> None:
        """Stop, unless HEAD is not there at all: then nobody can have taken over."""
        host, prefix = self.host, self.order.store.prefix
        try:
            missing = await self._blocking(lambda: read_head(host.store(), prefix)) is None
        except WireError:
            missing = True
        if missing:
            host.beat.store_error = "HEAD is not in the checkpoint store any more"
            return
        self._fenced = True
        self.stop(Stop(wire.JOB_FENCED, False, 0.0, 0.0))

    def _end(self, state: str, **note: object) -> None:
        job = self.host.beat.job
        job.state, job.generation, job.handles_term = state, self.generation, None
        for name, value in note.items():
            setattr(job, name, value)
        self.host.beat.phase = wire.PHASE_STOPPED if self.generation else wire.PHASE_IDLE
        self.host.note("copy.ends", job=self.order.job_id, generation=self.generation, state=state, **note)
        self.host.ended(state)
        self.host.say()

    def _report(self, step: int | None = None) -> None:
        at = self.step if step is None else step
        self.host.beat.progress = wire.ProgressNote(at, self.plan.total_steps, 1.0)

    def _check(self) -> None:
        if self.stopping is not None:
            raise _Interrupted

    async def _pause(self, seconds: float, through: bool = False) -> None:
        """Sleep, or until there is a wish to stop."""
        if not through:
            self._check()
        await self._wait(seconds)
        if not through:
            self._check()

    async def _wait(self, seconds: float) -> None:
        """Sleep, or until a wish changes."""
        self._changed.clear()
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._changed.wait()
        except TimeoutError:
            pass
        await self.host.sleep(0.0)


class _Interrupted(Exception):
    """A wish to stop came before the job was started."""
