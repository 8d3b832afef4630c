"""Commits complete checkpoints while training goes on, and prunes the store after each."""

import secrets
import threading
from pathlib import Path
from typing import Callable, Dict, Mapping, Optional, Tuple

from broker.node.checkpoints import QUIET_S, Scanner, Unit, UnitState, Writer
from broker.node.config import Home
from broker.node.formats import read_trainer_state
from broker.node.lease import boot_s
from broker.node.log import say
from broker.node.snapshot import Changed, Snapshot
from broker.node.state import NodeState
from broker.wire.bounds import float_or_none
from broker.wire.commit import retain, write_commit
from broker.wire.errors import Fenced, LostRace, SourceChanged, WireError
from broker.wire.head import read_head
from broker.wire.messages import CommitNote, RunOrder, StoreAccess
from broker.wire.store_client import open_store

_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.5, 30.0


class Committer:
    """One job's commits on this node. Its thread looks; `finish` takes over when the job has ended.

    Args:
        root: The checkpoint directory.
        order: Generation and retention.
        access: The store with its newest keys; asked for every commit, since keys are short-lived.
        metrics: The job's latest numbers, kept with each commit for ``keep_best``.
        fenced: Called when HEAD carries another generation: this copy must stop.
        quiet_s: See `Scanner`; looks are a fifth of it apart.
    """

    def __init__(
        self,
        root: Path,
        order: RunOrder,
        access: Callable[[], StoreAccess],
        home: Home,
        state: NodeState,
        metrics: Callable[[], Mapping[str, float]],
        fenced: Callable[[str], None],
        quiet_s: float = QUIET_S,
    ) -> None:
        self._root = root
        self._order = order
        self._access = access
        self._snapshots = home.snapshots
        self._state = state
        self._metrics = metrics
        self._fenced = fenced
        self._scanner = Scanner(root, quiet_s)
        self._look_s = quiet_s / 5
        self._committed: Optional[Tuple[int, int]] = None
        self._working = threading.Lock()
        self._enough = threading.Event()
        self.commit_s = 0.0  # what the last commit took: a notice keeps that much back
        self.is_fenced = False

    def know(self, unit: Optional[Unit]) -> None:
        """What was restored is in the store already."""
        self._committed = unit.order if unit else None

    def start(self) -> None:
        """Look and commit until told to finish."""
        threading.Thread(target=self._watch, name="commits", daemon=True).start()

    def finish(self, writer: Writer, until_s: Callable[[], float]) -> bool:
        """After the job has ended: commit the newest complete checkpoint that is not in the store.

        Args:
            writer: How the job ended: decides what may be trusted.
            until_s: On the boot clock; asked again and again.

        Returns:
            Whether everything complete is committed.
        """
        self._enough.set()
        pause_s = _FIRST_PAUSE_S
        while not self.is_fenced:
            with self._working:
                if self._try(writer):
                    return True
            if boot_s() + pause_s > until_s():
                return False
            threading.Event().wait(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)
        return False

    def abandon(self) -> None:
        """Stop looking; nothing more may or need be committed."""
        self._enough.set()

    def _watch(self) -> None:
        pause_s = self._look_s
        while not self._enough.wait(pause_s) and not self.is_fenced:
            with self._working:
                if self._enough.is_set():
                    return
                fine = self._try(Writer.ALIVE)
            pause_s = self._look_s if fine else min(max(2 * pause_s, _FIRST_PAUSE_S), _MAX_PAUSE_S)

    def _try(self, writer: Writer) -> bool:
        try:
            return self._commit_newest(writer)
        except Exception as error:  # noqa: BLE001  a defect that nobody hears of would end all commits in silence
            say("commit.defect", error=f"{type(error).__name__}: {error}"[:500])
            self._state.store_error(f"agent: {type(error).__name__}: {error}"[:500])
            return False

    def _commit_newest(self, writer: Writer) -> bool:
        """Commit what is newer than the last commit; True when nothing of that is left to do."""
        whole = [unit for unit in self._scanner.scan(writer) if unit.state is UnitState.COMPLETE]
        if not whole or (self._committed is not None and whole[-1].order <= self._committed):
            return True
        unit = whole[-1]
        try:
            self._commit(unit)
        except (Changed, SourceChanged, LostRace) as error:
            say("commit.postponed", unit=unit.name, why=error)
            return False
        except Fenced as error:
            return self._lost_the_right(error)
        except (WireError, OSError) as error:
            say("commit.failed", unit=unit.name, error=error)
            self._state.store_error(f"{type(error).__name__}: {error}"[:500])
            return False
        self._committed = unit.order
        self._prune()
        return True

    def _lost_the_right(self, error: Fenced) -> bool:
        """Stop training, unless HEAD is not there at all: nobody ever deletes it, so the store is broken
        (a volume that is not mounted, a bucket that was emptied) and no other copy can have taken over."""
        access = self._access()
        try:
            missing = read_head(open_store(access), access.prefix) is None
        except WireError:
            missing = True
        if missing:
            self._state.store_error("HEAD is not in the checkpoint store any more")
        else:
            self.is_fenced = True
            self._fenced(str(error))
        return False

    def _commit(self, unit: Unit) -> None:
        began_s = boot_s()
        into = self._snapshots / unit.name.replace("*", "files")
        snapshot = Snapshot(unit, self._root, self._scanner.companions(), into)
        try:
            access = self._access()
            head = write_commit(
                open_store(access),
                access.prefix,
                self._order.generation,
                secrets.token_hex(8),
                into,
                sorted(snapshot.files),
                step=unit.step,
                metrics=self._numbers(unit),
                created_ms=unit.mtime_ns // 1_000_000,
            )
        finally:
            snapshot.discard()
        self.commit_s = boot_s() - began_s
        say("commit.made", unit=unit.name, seq=head.seq, seconds=round(self.commit_s, 2))
        self._state.committed(
            CommitNote(
                head.generation, head.seq, head.manifest, head.manifest_sha256, unit.step, unit.size_bytes
            )
        )

    def _numbers(self, unit: Unit) -> Dict[str, float]:
        """The metrics lines' numbers, and over them what the trainer itself wrote beside the weights."""
        numbers = dict(self._metrics())
        history = (read_trainer_state(self._root / unit.name) or {}).get("log_history")
        for entry in history if isinstance(history, list) else []:
            for name, value in entry.items() if isinstance(entry, dict) else ():
                number = float_or_none(value)
                if number is not None:
                    numbers[name] = number
        return numbers

    def _prune(self) -> None:
        best = (self._order.keep_metric, self._order.keep_mode) if self._order.keep_metric else None
        access = self._access()
        try:
            retain(
                open_store(access), access.prefix, self._order.generation, max(1, self._order.keep_last), best
            )
        except Fenced as error:
            self._lost_the_right(error)
        except WireError as error:
            say("retention.failed", error=error)  # the next commit's turn
