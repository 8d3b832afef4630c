"""What is wanted of the job on this node: the newest order, and the sternest reason to stop. Nothing here waits.

The beat loop, the lease watch, the notice watch and the committer leave their wishes here; the job's thread takes
them up. A generation that has ended stays ended, whatever orders repeat; only a newer one starts the job again.
"""

import hashlib
import json
import threading
from dataclasses import dataclass
from typing import Optional

from broker.node.lease import boot_s
from broker.node.log import say
from broker.wire import messages as wire
from broker.wire.messages import RunOrder, StoreAccess

# Why to stop, mildest first: a sterner reason replaces a milder one.
_STERNNESS = (wire.JOB_STOPPED, wire.JOB_LEASE_LOST, wire.JOB_FENCED)


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
        return Stop(
            state=max(self.state, other.state, key=_STERNNESS.index),
            save=self.save and other.save,
            kill_at_s=min(self.kill_at_s, other.kill_at_s),
            commit_until_s=min(self.commit_until_s, other.commit_until_s),
            linger=self.linger and other.linger,
        )


def at_once(state: str) -> Stop:
    """Kill it now; nothing it could save would count."""
    return Stop(state, save=False, kill_at_s=0.0, commit_until_s=0.0)


class Interrupted(Exception):
    """A wish to stop came before the job was started."""


class Wishes:
    """Thread-safe. The job's thread calls `take` and `done`; everybody else the rest."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._order: Optional[RunOrder] = None
        self._stop: Optional[Stop] = None
        self._busy = False
        self._running_generation = 0
        self._ended_generation = 0
        self._prepared_key = ""
        self._closing = False

    # -- leaving a wish ----------------------------------------------------------------------------------------

    def order(self, order: RunOrder) -> None:
        """Prepare (generation 0), or prepare and run. A repeated order renews the store's keys."""
        with self._changed:
            if self._order is not None and order.generation < self._order.generation:
                say("order.ignored", why="an older generation", generation=order.generation)
                return
            if 0 < self._running_generation < order.generation:
                # The copy of the older generation here has been fenced: it must not train either.
                self._merge(at_once(wire.JOB_FENCED))
            self._order = order
            self._changed.notify_all()

    def stop(self, wish: Stop) -> bool:
        """Stop whatever runs or is about to, up to the generation ordered now; False when nothing was under way."""
        with self._changed:
            if self._order is not None:
                # Also an order that the thread has not taken up yet is met by this.
                self._ended_generation = max(self._ended_generation, self._order.generation)
            if self._running_generation == 0:
                self._order = None
            if self._busy:
                self._merge(wish)
            return self._busy

    def fenced(self) -> None:
        """HEAD carries another generation than the one that runs."""
        with self._changed:
            self._merge(at_once(wire.JOB_FENCED))

    def close(self) -> None:
        """The node is about to end: whatever is ordered from now on is stopped before it starts."""
        with self._changed:
            self._closing = True

    def notify(self) -> None:
        """Something that the job's thread waits for has happened."""
        with self._changed:
            self._changed.notify_all()

    @property
    def idle(self) -> bool:
        """Nothing runs, nothing is being prepared or saved."""
        with self._changed:
            return not self._busy

    # -- taking it up ------------------------------------------------------------------------------------------

    def take(self) -> RunOrder:
        """Wait for the next order that has not been met yet."""
        with self._changed:
            while not self._due():
                self._changed.wait()
            assert self._order is not None, "no order is never due"
            self._busy = True
            self._stop = None
            self._running_generation = self._order.generation
            if self._closing:
                self._merge(at_once(wire.JOB_STOPPED))
            return self._order

    def done(self, order: RunOrder) -> None:
        """An order has been met, or never will be: its repetition asks for nothing."""
        with self._changed:
            self._busy = False
            self._stop = None
            self._running_generation = 0
            if order.generation:
                self._ended_generation = max(self._ended_generation, order.generation)
            else:
                self._prepared_key = preparation_key(order)

    def ended_before(self, generation: int) -> None:
        """An agent before this one saw the end of that generation."""
        with self._changed:
            self._ended_generation = generation

    @property
    def stopping(self) -> Optional[Stop]:
        """The wish to stop, if there is one."""
        with self._changed:
            return self._stop

    @property
    def store(self) -> StoreAccess:
        """The checkpoint store with its newest keys."""
        with self._changed:
            assert self._order is not None, "while a generation runs there is an order"
            return self._order.store

    def check(self) -> None:
        """Raises:
        Interrupted: there is a wish to stop.
        """
        if self.stopping is not None:
            raise Interrupted

    def pause(self, seconds: float, through_stop: bool = False) -> None:
        """Wait that long, or until something changes."""
        with self._changed:
            if self._stop is None or through_stop:
                self._changed.wait(seconds)

    def pause_until(self, at_s: float, tick_s: float) -> None:
        """Wait for a change, a tick, or a moment on the boot clock."""
        self.pause(min(tick_s, max(0.02, at_s - boot_s())), through_stop=True)

    def _due(self) -> bool:
        if self._order is None:
            return False
        if self._order.generation:
            return self._order.generation > self._ended_generation
        return preparation_key(self._order) != self._prepared_key

    def _merge(self, wish: Stop) -> None:
        self._stop = self._stop.and_also(wish) if self._stop else wish
        self._changed.notify_all()


def preparation_key(order: RunOrder) -> str:
    """What preparing depends on."""
    text = json.dumps([order.job_id, order.source_sha256, order.setup])
    return hashlib.sha256(text.encode()).hexdigest()
