"""One job on this node, in a thread of its own: the beat loop hands over wishes and never waits.

    idle -> preparing -> ready -> restoring -> running -> draining -> stopped

A wish is kept until it is met: the newest run order, and the sternest reason to stop. A generation that has ended
here stays ended, whatever orders repeat; only a newer generation starts the job again.
"""

import hashlib
import json
import os
import secrets
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Dict, Optional, Tuple

from broker.node.checkpoints import QUIET_S, Writer
from broker.node.committer import Committer
from broker.node.config import Home, write_atomically
from broker.node.lease import boot_s, kill_marked
from broker.node.link import Link, LinkDown
from broker.node.log import say
from broker.node.metrics import MetricsReader
from broker.node.restoring import restore_for_start
from broker.node.runner import Shell, job_environment
from broker.node.set_aside import resume_path
from broker.node.source import BadSource, unpack_source
from broker.node.state import NodeState
from broker.wire import messages as wire
from broker.wire.commit import prefetch
from broker.wire.errors import Damaged, WireError
from broker.wire.messages import JobNote, RunOrder, StoreAccess, decode
from broker.wire.store_client import open_store

_TICK_S = 1.0
_RETRY_S = 2.0
# Why to stop, mildest first: a sterner reason replaces a milder one.
_STERNNESS = (wire.JOB_STOPPED, wire.JOB_LEASE_LOST, wire.JOB_FENCED)
_FINAL = (wire.JOB_EXITED, wire.JOB_STOPPED, wire.JOB_FENCED, wire.JOB_LEASE_LOST, wire.JOB_FAILED)
# How long the last commit of a job that crashed may keep its failure from being told.
_CRASH_COMMIT_S = 60.0


@dataclass(frozen=True)
class Stop:
    """A wish to stop.

    Attributes:
        state: The ``JOB_*`` that this ends in.
        save: Ask the job to save if it handles SIGTERM, and commit what it has saved.
        kill_at_s: On the boot clock: SIGKILL what is left.
        commit_until_s: Give up the last commit after this.
        linger: A job that cannot be asked trains on until `kill_at_s`: the node ends anyway.
    """

    state: str
    save: bool
    kill_at_s: float
    commit_until_s: float
    linger: bool = False

    def and_also(self, other: "Stop") -> "Stop":
        """Both wishes as one."""
        sterner = max(self.state, other.state, key=_STERNNESS.index)
        return Stop(
            state=sterner,
            save=self.save and other.save,
            kill_at_s=min(self.kill_at_s, other.kill_at_s),
            commit_until_s=min(self.commit_until_s, other.commit_until_s),
            linger=self.linger and other.linger,
        )


class _Failed(Exception):
    """The job cannot be started; the text says why."""


class _Interrupted(Exception):
    """A wish to stop came before the job was started."""


class JobKeeper:
    """Keeps one job in the state that was wished for.

    Args:
        quiet_s: See `Scanner`.
    """

    def __init__(self, home: Home, state: NodeState, link: Link, quiet_s: float = QUIET_S) -> None:
        self._home = home
        self._state = state
        self._link = link
        self._quiet_s = quiet_s
        self._changed = threading.Condition()
        self._order: Optional[RunOrder] = None
        self._stop: Optional[Stop] = None
        self._ended_generation = 0
        self._running_generation = 0
        self._prepared = ""
        self._refused_key = ""
        self._busy = False
        self._closing = ""
        self._committer: Optional[Committer] = None
        self._adopt()
        threading.Thread(target=self._work, name="job", daemon=True).start()

    # -- wishes, from the beat loop; none of them waits --------------------------------------------------------

    def wish(self, order: RunOrder) -> None:
        """Prepare (generation 0), or prepare and run. Repeats renew the store's keys."""
        with self._changed:
            current = self._order
            if current is not None and order.generation < current.generation:
                say("order.ignored", why="an older generation", generation=order.generation)
                return
            if 0 < self._running_generation < order.generation:
                # Fenced by ourselves: the copy of the older generation here must not commit, nor train.
                self._merge(Stop(wire.JOB_FENCED, save=False, kill_at_s=0.0, commit_until_s=0.0))
            self._order = order
            self._changed.notify_all()

    def stop(self, wish: Stop) -> None:
        """Stop whatever runs or is about to, up to the generation ordered now. Without a job it only says so."""
        with self._changed:
            if self._order is not None:
                # An order that the thread has not taken up yet is met by this wish too.
                self._ended_generation = max(self._ended_generation, self._order.generation)
            if self._running_generation == 0:
                self._order = None
            if not self._busy and self._state.read().job.state in (wire.JOB_NONE, *_FINAL):
                if self._state.read().job.state == wire.JOB_NONE:
                    self._state.job(state=wire.JOB_STOPPED, saved=True)
                    self._state.phase(wire.PHASE_STOPPED)
                return
            self._merge(wish)

    def close(self, why: str) -> None:
        """The node is about to end: start nothing any more."""
        with self._changed:
            self._closing = why

    @property
    def idle(self) -> bool:
        """Nothing runs, nothing is being prepared or saved."""
        with self._changed:
            return not self._busy

    @property
    def commit_s(self) -> float:
        """What the last commit took, in seconds."""
        return self._committer.commit_s if self._committer else 0.0

    def _merge(self, wish: Stop) -> None:
        self._stop = self._stop.and_also(wish) if self._stop else wish
        self._changed.notify_all()

    def _access(self) -> StoreAccess:
        with self._changed:
            assert self._order is not None, "while a generation runs there is an order"
            return self._order.store

    def _fenced(self, why: str) -> None:
        say("job.fenced", why=why)
        self._state.job(error=why)
        with self._changed:
            self._merge(Stop(wire.JOB_FENCED, save=False, kill_at_s=0.0, commit_until_s=0.0))

    # -- the thread --------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._due():
                    self._changed.wait()
                order = self._order
                assert order is not None
                self._busy = True
                if order.generation:
                    self._begin(order)
            try:
                self._prepare(order)
                if order.generation:
                    self._run(order)
            except _Failed as error:
                self._end(order, state=wire.JOB_FAILED, error=str(error)[:1000])
            except _Interrupted:
                state = self._stop.state if self._stop else wire.JOB_STOPPED
                self._end(order, state=state, saved=True)
            except Exception as error:  # noqa: BLE001  a defect of ours must be told, not end in silence
                say("job.defect", error=f"{type(error).__name__}: {error}")
                self._end(
                    order, state=wire.JOB_FAILED, error=f"agent: {type(error).__name__}: {error}"[:1000]
                )
            finally:
                with self._changed:
                    self._busy = False
                    self._running_generation = 0
                    self._stop = None

    def _due(self) -> bool:
        order = self._order
        if order is None:
            return False
        if order.generation:
            return order.generation > self._ended_generation
        return _key(order) not in (self._prepared, self._refused_key)

    def _begin(self, order: RunOrder) -> None:
        self._stop = None
        self._running_generation = order.generation
        self._state.job(**vars(JobNote(generation=order.generation)))
        if self._closing:
            self._merge(Stop(wire.JOB_STOPPED, save=False, kill_at_s=0.0, commit_until_s=0.0))

    def _end(self, order: RunOrder, **note: object) -> None:
        with self._changed:
            self._ended_generation = max(self._ended_generation, order.generation)
        if not order.generation and note.get("state") == wire.JOB_FAILED:
            self._refused_key = _key(order)
        final = self._state.job(generation=order.generation, handles_term=None, **note)
        self._keep(final)
        self._state.phase(wire.PHASE_STOPPED if order.generation else wire.PHASE_IDLE)

    def _check(self) -> None:
        with self._changed:
            if self._stop is not None:
                raise _Interrupted

    # -- preparing ---------------------------------------------------------------------------------------------

    def _prepare(self, order: RunOrder) -> None:
        key = _key(order)
        if key != self._prepared:
            self._state.phase(wire.PHASE_PREPARING)
            self._fetch_source(order)
            self._run_setup(order)
            self._prepared = key
        if not order.generation:
            self._prefetch(order)
            self._state.phase(wire.PHASE_READY)

    def _fetch_source(self, order: RunOrder) -> None:
        if not order.source_sha256:
            self._home.work.mkdir(parents=True, exist_ok=True)
            return
        while True:
            self._check()
            try:
                unpack_source(order.source_sha256, self._link.fetch_source, self._home.work)
                return
            except LinkDown as error:
                say("source.failed", error=error)
            except BadSource as error:
                raise _Failed(str(error)) from error
            self._pause(_RETRY_S)

    def _run_setup(self, order: RunOrder) -> None:
        if not order.setup:
            return
        shell = self._shell(order, order.setup, resume_from="")
        while shell.running:
            with self._changed:
                if self._stop is None:
                    self._changed.wait(_TICK_S)
                stopped = self._stop is not None
            if stopped:
                shell.kill()
                raise _Interrupted
        if shell.exit_code:
            raise _Failed(f"setup ended with exit code {shell.exit_code}; see the job's log")

    def _prefetch(self, order: RunOrder) -> None:
        try:
            prefetch(open_store(order.store), order.store.prefix, self._home.prefetched)
        except (WireError, OSError) as error:
            say("prefetch.failed", error=error)  # the restore fetches for itself

    def _pause(self, seconds: float) -> None:
        with self._changed:
            if self._stop is None:
                self._changed.wait(seconds)

    # -- running -----------------------------------------------------------------------------------------------

    def _run(self, order: RunOrder) -> None:
        self._check()
        root = self._checkpoint_dir(order)
        resume_from, committer = "", None
        metrics = MetricsReader(self._home.metrics)
        self._home.metrics.unlink() if self._home.metrics.exists() else None
        if root is not None:
            resume_from, committer = self._restore(order, root, metrics)
        self._check()
        shell = self._shell(order, order.run, resume_from)
        self._keep(self._state.job(state=wire.JOB_RUNNING, started=True))
        self._state.phase(wire.PHASE_RUNNING)
        if committer:
            committer.start()
        self._committer = committer
        stop = self._watch(shell, metrics)
        if stop is None:
            self._after_exit(order, shell, committer)
        else:
            self._after_stop(order, shell, committer, metrics)

    def _restore(
        self, order: RunOrder, root: Path, metrics: MetricsReader
    ) -> Tuple[str, Optional[Committer]]:
        self._state.phase(wire.PHASE_RESTORING)
        while True:
            self._check()
            try:
                note, unit = restore_for_start(root, self._access(), self._home.prefetched)
                break
            except Damaged as error:
                raise _Failed(f"no checkpoint can be restored: {error}") from error
            except (WireError, OSError) as error:
                self._state.store_error(f"{type(error).__name__}: {error}"[:500])
                say("restore.failed", error=error)
            self._pause(_RETRY_S)
        self._state.store_error("")
        self._state.job(restore=note)
        committer = None
        if order.rank == 0:
            committer = Committer(
                root,
                order,
                self._access,
                self._home,
                self._state,
                lambda: _numbers(metrics),
                self._fenced,
                self._quiet_s,
            )
            committer.know(unit if note.seq else None)
        return (str(resume_path(root, unit)) if unit else ""), committer

    def _watch(self, shell: Shell, metrics: MetricsReader) -> Optional[Stop]:
        """Until the job has ended (None) or must."""
        while True:
            with self._changed:
                if self._stop is not None:
                    return self._stop
                if not shell.running:
                    return None
                self._changed.wait(_TICK_S)
            self._report(shell, metrics)

    def _report(self, shell: Shell, metrics: MetricsReader) -> None:
        if shell.running:
            self._state.job(handles_term=shell.handles_term())
        note = metrics.read()
        if note is not None:
            self._state.progress(note)

    def _after_exit(self, order: RunOrder, shell: Shell, committer: Optional[Committer]) -> None:
        shell.kill()  # what it left in the background
        code = shell.exit_code
        self._state.phase(wire.PHASE_DRAINING)
        if code == 0:
            # Told at once, though not yet saved: there is no hurry with the node until it is.
            self._state.job(state=wire.JOB_EXITED, exit_code=0, handles_term=None)
        patience_s = float("inf") if code == 0 else boot_s() + _CRASH_COMMIT_S

        def until_s() -> float:
            with self._changed:
                return min(patience_s, self._stop.commit_until_s) if self._stop else patience_s

        writer = Writer.ENDED if code == 0 else Writer.KILLED
        saved = committer.finish(writer, until_s) if committer else True
        if committer and committer.is_fenced:
            self._end(order, state=wire.JOB_FENCED, exit_code=code, saved=False)
        else:
            self._end(order, state=wire.JOB_EXITED, exit_code=code, saved=saved)

    def _after_stop(
        self, order: RunOrder, shell: Shell, committer: Optional[Committer], metrics: MetricsReader
    ) -> None:
        self._state.phase(wire.PHASE_DRAINING)
        by_itself = False
        if self._now().save and shell.ask_to_end():
            say("job.asked_to_save")
            by_itself = shell.wait_for_end(lambda: self._now().kill_at_s)
        else:
            while self._now().linger and shell.running and boot_s() < self._now().kill_at_s:
                self._pause_through(min(_TICK_S, max(0.05, self._now().kill_at_s - boot_s())))
                self._report(shell, metrics)
        if not shell.kill():
            say("job.unkillable")
        note = metrics.read()
        if note is not None:
            self._state.progress(note)
        saved = False
        if self._now().save:
            writer = Writer.ENDED if by_itself else Writer.KILLED
            saved = committer.finish(writer, lambda: self._now().commit_until_s) if committer else True
        elif committer:
            committer.abandon()
        self._end(order, state=self._now().state, exit_code=shell.exit_code, saved=saved)

    def _now(self) -> Stop:
        with self._changed:
            assert self._stop is not None
            return self._stop

    def _pause_through(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait(seconds)

    # -- small parts -------------------------------------------------------------------------------------------

    def _checkpoint_dir(self, order: RunOrder) -> Optional[Path]:
        return self._home.work / order.checkpoint_dir if order.checkpoint_dir else None

    def _shell(self, order: RunOrder, text: str, resume_from: str) -> Shell:
        root = self._checkpoint_dir(order)
        own: Dict[str, str] = {
            "BROKER_JOB_ID": order.job_id,
            "BROKER_NODE_RANK": str(order.rank),
            "BROKER_NODES": str(order.nodes),
            "BROKER_NODE_IPS": "\n".join(order.node_addresses),
            "BROKER_HEAD_IP": order.node_addresses[0] if order.node_addresses else "127.0.0.1",
            "BROKER_CHECKPOINT_DIR": str(root) if root else "",
            "BROKER_RESUME_FROM": resume_from,
            "BROKER_METRICS": str(self._home.metrics),
        }
        run_id = secrets.token_hex(8)
        write_atomically(self._home.run_id, run_id.encode())
        env = job_environment(os.environ, order.env, own)
        try:
            return Shell(text, self._home.work, env, self._home.log, run_id, ended=self._notify)
        except OSError as error:
            raise _Failed(f"the job cannot be started: {error}") from error

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _keep(self, note: JobNote) -> None:
        write_atomically(self._home.job_note, json.dumps(asdict(note)).encode())

    def _adopt(self) -> None:
        """After a restart of the agent: how the last job ended stays known; one that was cut off is cleared away.

        The same generation may then start it again from HEAD: nobody else has the right to commit.
        """
        try:
            note = decode(JobNote, json.loads(self._home.job_note.read_text()))
        except (OSError, ValueError):
            return
        if note.state in _FINAL:
            self._ended_generation = note.generation
            self._state.job(**vars(note))
            return
        try:
            kill_marked(self._home.run_id.read_text().strip())
        except OSError:
            return


def _key(order: RunOrder) -> str:
    """What preparing depends on."""
    text = json.dumps([order.job_id, order.source_sha256, order.setup])
    return hashlib.sha256(text.encode()).hexdigest()


def _numbers(metrics: MetricsReader) -> Dict[str, float]:
    latest = metrics.latest
    return {**latest.metrics, **({"loss": latest.loss} if latest.loss is not None else {})}
