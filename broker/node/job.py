"""One job on this node, in a thread of its own.

idle -> preparing -> ready -> restoring -> running -> draining -> stopped
"""

import json
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Callable, Dict, Optional, Tuple

from broker.node.checkpoints import QUIET_S, Writer
from broker.node.committer import Committer
from broker.node.config import Home, write_atomically
from broker.node.lease import boot_s, kill_marked
from broker.node.link import Link
from broker.node.log import say
from broker.node.metrics import MetricsReader
from broker.node.preparing import CannotStart, Preparation, checkpoint_dir, start_shell
from broker.node.restoring import restore_for_start
from broker.node.runner import Shell
from broker.node.set_aside import resume_path
from broker.node.state import NodeState
from broker.node.tensorboard import EventFiles
from broker.node.wishes import Interrupted, Stop, Wishes
from broker.wire import messages as wire
from broker.wire.errors import Damaged, WireError
from broker.wire.messages import JobNote, RunOrder, decode

_TICK_S = 1.0
_RETRY_S = 2.0
_FINAL = (wire.JOB_EXITED, wire.JOB_STOPPED, wire.JOB_FENCED, wire.JOB_LEASE_LOST, wire.JOB_FAILED)
# How long the last commit of a job that crashed may keep its failure from being told.
_CRASH_COMMIT_S = 60.0
# A machine that goes down signals every process within moments of one another: us perhaps after the job.
_SIGNALLED_TOO_S = 1.5
# Exit codes of shells for SIGHUP, SIGINT, SIGKILL and SIGTERM.
_BY_SIGNAL = (129, 130, 137, 143)


class JobKeeper:
    """Keeps one job in the state that was wished for. Its methods never wait.

    Args:
        last_words: Called before an end is told: sends what the job has printed.
        quiet_s: See `Scanner`.
    """

    def __init__(
        self,
        home: Home,
        state: NodeState,
        link: Link,
        last_words: Callable[[], None],
        quiet_s: float = QUIET_S,
    ) -> None:
        self._home = home
        self._state = state
        self._last_words = last_words
        self._quiet_s = quiet_s
        self._wishes = Wishes()
        self._preparation = Preparation(home, link, self._wishes)
        self._shell: Optional[Shell] = None
        self._committer: Optional[Committer] = None
        self._metrics = MetricsReader(home.metrics)
        self._adopt()
        threading.Thread(target=self._work, name="job", daemon=True).start()

    def wish(self, order: RunOrder) -> None:
        """Prepare (generation 0), or prepare and run."""
        self._wishes.order(order)

    def stop(self, wish: Stop) -> None:
        """Stop whatever runs or is about to. Without a job it only says so."""
        if not self._wishes.stop(wish) and self._state.read().job.state == wire.JOB_NONE:
            self._state.job(state=wire.JOB_STOPPED, saved=True)
            self._state.phase(wire.PHASE_STOPPED)

    def close(self) -> None:
        """The node is about to end: start nothing any more."""
        self._wishes.close()

    @property
    def idle(self) -> bool:
        """Nothing runs, nothing is being prepared or saved."""
        return self._wishes.idle

    @property
    def commit_s(self) -> float:
        """What the last commit took, in seconds."""
        return self._committer.commit_s if self._committer else 0.0

    # -- the thread --------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            order = self._wishes.take()
            if order.generation:
                self._state.job(**vars(JobNote(generation=order.generation)))
            try:
                self._prepare(order)
                if order.generation:
                    self._run(order)
            except CannotStart as error:
                self._end(order, state=wire.JOB_FAILED, error=str(error)[:1000])
            except Interrupted:
                stop = self._wishes.stopping
                self._end(order, state=stop.state if stop else wire.JOB_STOPPED, saved=True)
            except Exception as error:  # noqa: BLE001  a defect of ours must be told, not end in silence
                self._defect(order, f"agent: {type(error).__name__}: {error}"[:1000])
            finally:
                self._wishes.done(order)

    def _end(self, order: RunOrder, **note: object) -> None:
        self._last_words()
        changes = {"generation": order.generation, "handles_term": None, **note}
        final = {**asdict(self._state.read().job), **changes}
        # Kept before it is told: an agent that is killed in between must not run a finished job again.
        try:
            write_atomically(self._home.job_note, json.dumps(final).encode())
        except OSError as error:  # a full disk: the end is told all the same
            say("job.end_not_kept", error=str(error))
        self._state.job(**changes)
        self._state.phase(wire.PHASE_STOPPED if order.generation else wire.PHASE_IDLE)

    def _defect(self, order: RunOrder, text: str) -> None:
        """End the job for a fault of ours. One that had ended, or was to end, before it did not fail to start."""
        say("job.defect", error=text)
        shell, stop = self._shell, self._wishes.stopping
        state, code = wire.JOB_FAILED, None
        if shell is not None and self._state.read().job.started:
            if stop is not None:
                state = stop.state
            elif not shell.running:
                state, code = wire.JOB_EXITED, shell.exit_code
        if shell is not None:
            shell.kill()
        if self._committer is not None:
            self._committer.abandon()
        self._end(order, state=state, exit_code=code, error=text)

    def _prepare(self, order: RunOrder) -> None:
        if self._preparation.needed(order):
            self._state.phase(wire.PHASE_PREPARING)
            self._preparation.prepare(order)
        if not order.generation:
            self._preparation.prefetch(order)
            self._wishes.check()
            self._state.phase(wire.PHASE_READY)

    def _run(self, order: RunOrder) -> None:
        self._wishes.check()
        # The metrics of an earlier copy would be taken for this one's.
        self._home.metrics.unlink() if self._home.metrics.exists() else None
        self._metrics = MetricsReader(self._home.metrics)
        resume_from, committer = "", None
        root = checkpoint_dir(self._home, order)
        if root is not None:
            resume_from, committer = self._restore(order, root)
        self._wishes.check()
        self._committer = committer
        # After the restore, which may bring files that an earlier copy has written.
        self._metrics.follow(EventFiles(self._home.work))
        shell = self._shell = start_shell(self._home, order, order.run, resume_from, self._wishes)
        started = self._state.job(state=wire.JOB_RUNNING, started=True)
        write_atomically(self._home.job_note, json.dumps(asdict(started)).encode())
        self._state.phase(wire.PHASE_RUNNING)
        if committer is not None:
            committer.start()
        while shell.running and self._wishes.stopping is None:
            self._wishes.pause(_TICK_S)
            self._report(shell)
        if self._wishes.stopping is None:
            self._after_exit(order, shell, committer)
        else:
            self._after_stop(order, shell, committer)

    def _restore(self, order: RunOrder, root: Path) -> Tuple[str, Optional[Committer]]:
        self._state.phase(wire.PHASE_RESTORING)
        while True:
            self._wishes.check()
            try:
                note, unit = restore_for_start(root, self._wishes.store, self._home.prefetched)
                break
            except Damaged as error:
                raise CannotStart(f"no checkpoint can be restored: {error}") from error
            except (WireError, OSError) as error:
                say("restore.failed", error=error)
                self._state.store_error(f"{type(error).__name__}: {error}"[:500])
            self._wishes.pause(_RETRY_S)
        self._state.store_error("")
        self._state.job(restore=note)
        resume_from = str(resume_path(root, unit)) if unit else ""
        if order.rank != 0:
            return resume_from, None  # rank 0 speaks for the gang
        committer = Committer(
            root,
            order,
            access=lambda: self._wishes.store,
            home=self._home,
            state=self._state,
            metrics=self._numbers,
            fenced=self._fenced,
            quiet_s=self._quiet_s,
        )
        committer.know(unit if note.seq else None)
        return resume_from, committer

    def _report(self, shell: Shell) -> None:
        if shell.running:
            self._state.job(handles_term=shell.handles_term())
        try:
            note = self._metrics.read()
        except Exception as error:  # noqa: BLE001  what a job writes about itself must never end it
            say("metrics.unreadable", error=f"{type(error).__name__}: {error}"[:500])
            return
        if note is not None:
            self._state.progress(note)

    def _after_exit(self, order: RunOrder, shell: Shell, committer: Optional[Committer]) -> None:
        handled_term = bool(self._state.read().job.handles_term)
        shell.kill()  # what it left in the background
        self._report(shell)
        code = shell.exit_code
        self._state.phase(wire.PHASE_DRAINING)
        if (code != 0 or handled_term) and self._is_the_machines_end(code):
            say("job.cut_down", exit_code=code)
            writer = Writer.ENDED if code == 0 else Writer.KILLED
            saved = committer.finish(writer, lambda: self._stop.commit_until_s) if committer else True
            self._end(order, state=self._stop.state, exit_code=code, saved=saved)
            return
        if code == 0 and committer:
            # Told at once, though not yet saved: the node is kept until it is.
            self._state.job(state=wire.JOB_EXITED, exit_code=0, handles_term=None)
        patience_s = float("inf") if code == 0 else boot_s() + _CRASH_COMMIT_S

        def until_s() -> float:
            stop = self._wishes.stopping
            return min(patience_s, stop.commit_until_s) if stop else patience_s

        writer = Writer.ENDED if code == 0 else Writer.KILLED
        saved = committer.finish(writer, until_s) if committer else True
        fenced = committer is not None and committer.is_fenced
        self._end(order, state=wire.JOB_FENCED if fenced else wire.JOB_EXITED, exit_code=code, saved=saved)

    def _is_the_machines_end(self, code: Optional[int]) -> bool:
        """Whether a job that has ended unasked was ended by what ends its machine: then the code is no word of its own.

        A job that saves when it is signalled may even say 0. It is resumed elsewhere, where one that was finished
        after all ends at once.
        """
        until_s = boot_s() + _SIGNALLED_TOO_S
        while self._wishes.stopping is None and boot_s() < until_s:
            self._wishes.pause(0.1)
        notice, stop = self._state.read().notice, self._wishes.stopping
        if notice is None or stop is None or stop.state != wire.JOB_STOPPED:
            return False
        return notice.source == "shutdown" or code in _BY_SIGNAL

    def _after_stop(self, order: RunOrder, shell: Shell, committer: Optional[Committer]) -> None:
        self._state.phase(wire.PHASE_DRAINING)
        by_itself = False
        if self._stop.save and shell.ask_to_end():
            say("job.asked_to_save")
            by_itself = shell.wait_for_end(lambda: self._stop.kill_at_s)
        else:
            while self._stop.linger and shell.running and boot_s() < self._stop.kill_at_s:
                self._wishes.pause_until(self._stop.kill_at_s, _TICK_S)
                self._report(shell)
        if not shell.kill():
            say("job.unkillable")
        self._report(shell)
        saved = committer is None
        if committer is not None and self._stop.save:
            writer = Writer.ENDED if by_itself else Writer.KILLED
            saved = committer.finish(writer, lambda: self._stop.commit_until_s)
        elif committer is not None:
            committer.abandon()
        self._end(order, state=self._stop.state, exit_code=shell.exit_code, saved=saved)

    @property
    def _stop(self) -> Stop:
        stop = self._wishes.stopping
        assert stop is not None, "a wish to stop may change while it is met, but it does not go away"
        return stop

    def _fenced(self, why: str) -> None:
        say("job.fenced", why=why)
        self._state.job(error=why)
        self._wishes.fenced()

    def _numbers(self) -> Dict[str, float]:
        latest = self._metrics.latest
        return {**latest.metrics, **({"loss": latest.loss} if latest.loss is not None else {})}

    def _adopt(self) -> None:
        """After a restart of the agent: how the last job ended stays known; one that was cut off is cleared away.

        The same generation may then start it again from HEAD: nobody else has the right to commit.
        """
        try:
            note = decode(JobNote, json.loads(self._home.job_note.read_text()))
        except (OSError, ValueError):
            return
        if note.state in _FINAL:
            self._wishes.ended_before(note.generation)
            self._state.job(**vars(note))
            return
        try:
            kill_marked(self._home.run_id.read_text().strip())
        except OSError:
            return
