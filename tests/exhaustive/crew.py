"""Scripted agents: a few lines that do at once what `broker.node` does in time, with real swaps of HEAD.

They live as long as their machine, whether a daemon runs or not: without one they train on until their run lease
ends, and end their machine a dead-man time later.
"""

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace

from broker.wire import messages as wire
from broker.wire.errors import Fenced
from broker.wire.head import Head, read_head, swap_head
from tests.exhaustive.objects import Objects

Link = Callable[[wire.Beat], wire.Directive | None]


@dataclass(frozen=True)
class Part:
    """What the agents of one placement do.

    Attributes:
        verdict: Of the probe.
        handles_term: The job saves when it is asked to stop.
        start_error: Preparing the job fails with this; empty for not at all.
        save_s: How long the job trains on after it was asked to stop; it may finish in that time.
        boot_s: From the machine's start to the agent's.
        silent: Says nothing for `silent_s` from its first training on, as behind a broken network.
    """

    verdict: str = "accept"
    handles_term: bool = True
    start_error: str = ""
    save_s: float = 0.0
    boot_s: float = 0.0
    silent: bool = False
    silent_s: float = math.inf


@dataclass
class Store:
    """One job's prefix, as its agents see it.

    Attributes:
        commits: Every commit that HEAD ever named: (generation, step).
        holder: The placement for which HEAD was fenced last: nobody else may commit.
    """

    objects: Objects
    prefix: str
    commits: list[tuple[int, int]] = field(default_factory=list)
    holder: str = ""

    def clone(self, objects: Objects) -> "Store":
        """The same, on a copy of the objects."""
        return Store(objects, self.prefix, self.commits.copy(), self.holder)

    def head(self) -> tuple[Head, str] | None:
        """HEAD and its etag."""
        return read_head(self.objects, self.prefix)

    def same_as(self, other: "Store") -> bool:
        """HEAD names the same commit for the same generation; a nonce is drawn and decides nothing."""
        mine, theirs = self.head(), other.head()
        if mine is None or theirs is None:
            return mine is theirs
        return replace(mine[0], nonce="") == replace(theirs[0], nonce="") and self.commits == other.commits

    @staticmethod
    def step(head: Head) -> int:
        """Of the commit that HEAD names."""
        return int(head.manifest.removeprefix("step-")) if head.manifest else 0


class Agent:
    """One node's agent and its job.

    Attributes:
        beat: What it would say now.
        heard_ms: When the daemon last answered; its lease counts from there.
        over: It was told to leave.
    """

    def __init__(self, token: str, placement_id: str, part: Part, store: Store, now_ms: int) -> None:
        self.token = token
        self.placement_id = placement_id
        self.part = part
        self.store = store
        self.rank = int(token.rsplit("-", 1)[1])
        self.beat = wire.Beat(0, wire.PHASE_IDLE)
        self.heard_ms = now_ms
        self.step = 0
        self.over = False
        self._stops_ms: float = math.inf
        self._now_ms = now_ms

    def clone(self, store: Store) -> "Agent":
        """The same agent beside another store; beats are replaced, never changed, so they can be shared."""
        twin = copy(self)
        twin.store = store
        return twin

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Agent):
            return NotImplemented
        mine, theirs = vars(self) | {"store": None}, vars(other) | {"store": None}
        return mine == theirs

    __hash__ = None  # type: ignore[assignment]

    @property
    def trains(self) -> bool:
        """A process of the job runs here."""
        return self.beat.job.state == wire.JOB_RUNNING

    def turn(
        self, seconds: float, now_ms: int, call: Link, notice_s: float | None, exit_code: int | None
    ) -> None:
        """Live for a while, then beat once and do what the answer says.

        Args:
            call: The daemon; None instead of a directive when nobody answers.
            notice_s: Seconds until the cloud takes the machine back, once it has said so.
            exit_code: The job ends by itself, with this.
        """
        self._now_ms = now_ms
        if self.over:
            return
        if self.trains:
            self._train(seconds, exit_code)
        if now_ms >= self._stops_ms:
            self._stop(wire.JOB_STOPPED, save=True)
        if notice_s is not None and self.beat.notice is None:
            self.beat = replace(self.beat, notice=wire.Notice("scripted", notice_s))
            self._asked_to_stop(save=True)
        if (
            self.part.silent
            and self.beat.job.started
            and (now_ms - self.heard_ms) / 1000 < self.part.silent_s
        ):
            return
        self.beat = replace(self.beat, seq=self.beat.seq + 1)
        answer = call(self.beat)
        if answer is not None:
            self.heard_ms = now_ms
            self._obey(answer)

    def lease_ended(self) -> None:
        """Nobody has renewed the run lease."""
        if self.trains:
            self._stop(wire.JOB_LEASE_LOST, save=True)

    def _obey(self, order: wire.Directive) -> None:
        match order.order:
            case wire.ORDER_PROBE:
                report = {"verdict": self.part.verdict, "reasons": ["scripted"]}
                self.beat = replace(self.beat, probe=report)
            case wire.ORDER_PREPARE if self.part.start_error:
                self._note(state=wire.JOB_FAILED, error=self.part.start_error)
            case wire.ORDER_PREPARE:
                self.beat = replace(self.beat, phase=wire.PHASE_READY)
            case wire.ORDER_RUN:
                assert order.run is not None
                self._start(order.run)
            case wire.ORDER_DRAIN:
                assert order.drain is not None
                if self.beat.job.state == wire.JOB_NONE:
                    self._note(state=wire.JOB_STOPPED, saved=True)
                self._asked_to_stop(order.drain.save)
            case wire.ORDER_EXIT:
                self._stop(wire.JOB_STOPPED, save=False)
                self.over = True

    def _start(self, run: wire.RunOrder) -> None:
        if self.beat.job.state != wire.JOB_NONE or self.beat.notice is not None:
            return
        found = self.store.head()
        assert found is not None, "told to run before HEAD was fenced"
        head = found[0]
        if head.generation != run.generation:
            self._note(state=wire.JOB_FENCED, generation=run.generation)
            return
        self.step = self.store.step(head)
        self._note(
            state=wire.JOB_RUNNING,
            generation=run.generation,
            started=True,
            handles_term=self.part.handles_term,
            restore=wire.RestoreNote(head.seq, self.step),
        )
        self.beat = replace(self.beat, phase=wire.PHASE_RUNNING)

    def _train(self, seconds: float, exit_code: int | None) -> None:
        self.step += round(seconds)
        if not self._commit():
            return
        progress = wire.ProgressNote(self.step, 1_000_000, 1.0)
        self.beat = replace(self.beat, progress=progress)
        if exit_code is not None:
            self._note(state=wire.JOB_EXITED, exit_code=exit_code, saved=True)
            self.beat = replace(self.beat, phase=wire.PHASE_STOPPED)

    def _asked_to_stop(self, save: bool) -> None:
        if save and self.part.save_s:
            self._stops_ms = min(self._stops_ms, self._now_ms + self.part.save_s * 1000)
        else:
            self._stop(wire.JOB_STOPPED, save)

    def _stop(self, state: str, save: bool) -> None:
        if not self.trains:
            return
        saved = save and self.part.handles_term
        if saved:
            self.step += 1
            if not self._commit():
                return
        self._note(state=state, saved=saved)
        self.beat = replace(self.beat, phase=wire.PHASE_STOPPED)

    def _commit(self) -> bool:
        """Swap HEAD to what has been trained; False, and fenced, when it carries another generation. Rank 0 only."""
        generation = self.beat.job.generation
        found = self.store.head()
        assert found is not None, "HEAD has vanished"
        head, etag = found
        if head.generation != generation:
            self._note(state=wire.JOB_FENCED)
            return False
        if self.rank != 0:
            return True
        manifest = f"step-{self.step}"
        nonce = f"{self.token} {head.seq + 1}"
        wanted = Head(generation, head.seq + 1, nonce, manifest, "sha", head.link, head.holder)
        try:
            swap_head(self.store.objects, self.store.prefix, etag, wanted)
        except Fenced:
            self._note(state=wire.JOB_FENCED)
            return False
        assert self.store.holder == self.placement_id, f"{self.placement_id} commits, {self.store.holder} may"
        self.store.commits.append((generation, self.step))
        note = wire.CommitNote(generation, wanted.seq, manifest, "sha", self.step, 1 << 20)
        self.beat = replace(self.beat, commit=note)
        return True

    def _note(self, **fields: object) -> None:
        self.beat = replace(self.beat, job=replace(self.beat.job, **fields))  # type: ignore[arg-type]
