"""What is true on this node, in one object behind one lock. Workers write; the beat loop reads it all at once."""

import threading
from dataclasses import asdict
from typing import Any, Callable, Dict, Optional

from broker.wire.messages import PHASE_IDLE, Beat, CommitNote, JobNote, Notice, ProgressNote, decode


class NodeState:
    """The next beat, always up to date.

    Every change that the daemon should hear of at once sets `news`, which ends the beat loop's sleep. A change
    made between the loop's reading and its sleeping is not lost: the loop clears `news` before it reads.
    """

    def __init__(self, facts: Optional[Dict[str, Any]] = None) -> None:
        self._lock = threading.Lock()
        self._beat = Beat(seq=0, phase=PHASE_IDLE, facts=facts or {})
        self.news = threading.Event()

    def update(self, change: Callable[[Beat], None], news: bool = True) -> None:
        """Change the next beat under the lock. `change` must be quick and must not call back here."""
        with self._lock:
            change(self._beat)
        if news:
            self.news.set()

    def next_beat(self) -> Beat:
        """A copy with the next number."""
        with self._lock:
            self._beat.seq += 1
            return decode(Beat, asdict(self._beat))

    def read(self) -> Beat:
        """A copy, without counting."""
        with self._lock:
            return decode(Beat, asdict(self._beat))

    def phase(self, phase: str) -> None:
        """Say what the agent is doing."""

        def change(beat: Beat) -> None:
            beat.phase = phase

        self.update(change)

    def job(self, **changes: Any) -> JobNote:
        """Change fields of the job's note; returns a copy of the whole."""
        with self._lock:
            before = vars(self._beat.job).copy()
            for name, value in changes.items():
                setattr(self._beat.job, name, value)
            after = JobNote(**vars(self._beat.job))
        if vars(after) != before:
            self.news.set()
        return after

    def notice(self, notice: Notice) -> bool:
        """Keep a notice; False when one that ends no later is known already."""
        with self._lock:
            if self._beat.notice is not None:
                return False
            self._beat.notice = notice
        self.news.set()
        return True

    def committed(self, note: CommitNote) -> None:
        """HEAD names a new commit."""

        def change(beat: Beat) -> None:
            beat.commit = note
            beat.store_error = ""

        self.update(change)

    def store_error(self, text: str) -> None:
        """The store failed, or works again (empty text)."""

        def change(beat: Beat) -> None:
            beat.store_error = text

        self.update(change, news=self.read().store_error != text)

    def progress(self, note: ProgressNote) -> None:
        """The job has written metrics; they go with the next beat, whenever that is."""

        def change(beat: Beat) -> None:
            beat.progress = note

        self.update(change, news=False)
