"""A job on paper: what it has trained and saved, where it is, where it is going. Frozen; each change is a new value.

    launched -> ready -> handed over -> trains -> lost | released | finished

It keeps the daemon's own rules of who trains (`broker.migration.handover`): the old copy trains on until the new one is
ready; a job that saves when it is asked to is cut at once, any other at its next commit. What a decision may know of it
is `broker.paper.telling.subject_of`.

Times are milliseconds. Between two changes it trains at one speed, so its state at any moment is arithmetic, and
asking often gives the same numbers as asking once.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from broker.core.model import Cut, Job, JobState, Placement, PlacementState, Progress, Purpose
from broker.core.offer import Offer
from broker.core.spec import JobSpec
from broker.core.time import MS
from broker.decision.subject import Hold
from broker.paper.pace import Pace


class Reports(StrEnum):
    """What the job tells of its steps. FROM_THE_START: also before it has trained, as of a job that ran before."""

    NOTHING = "nothing"
    WHILE_TRAINING = "while_training"
    FROM_THE_START = "from_the_start"


@dataclass(frozen=True)
class Landing:
    """A placement on its way.

    Attributes:
        placement: Not active yet.
        ready_ms: When it can take the job.
        gap_ms: From the hand-over to training there.
    """

    placement: Placement
    ready_ms: int
    gap_ms: int


@dataclass(frozen=True)
class PaperJob:
    """One job at `now_ms`. Make one with `submitted`.

    Attributes:
        job: The row as the daemon would have it; `subject` fills in what changes by the minute.
        now_ms: The moment this is true of.
        total_steps: The work.
        pace: Its true speed, place by place.
        reports: What it tells.
        handles_term: Whether it saves when asked to stop; None when nobody knows, and then it does not.
        checkpoint_bytes: Size of each commit.
        active: The placement that has the job.
        due_ms: When that one starts, or started, to train; from `began_steps`.
        saved_steps: What the last commit holds; a copy starts from here. Made at `saved_ms`, with the number `seq`.
        began_seq: Of the commit that the copy that trains began from.
        landing: The placement under way.
        past: Placements that have ended, oldest first.
        hold: Memory of the last answer.
        told: Last reading of a copy that has ended.
        redone_s: Seconds of training that were lost, and have to be trained again.
    """

    job: Job
    now_ms: int
    total_steps: int
    pace: Pace
    reports: Reports = Reports.WHILE_TRAINING
    handles_term: bool | None = None
    checkpoint_bytes: int = 0
    active: Placement | None = None
    due_ms: int = 0
    began_steps: float = 0.0
    saved_steps: float = 0.0
    saved_ms: int | None = None
    seq: int = 0
    began_seq: int = 0
    landing: Landing | None = None
    past: tuple[Placement, ...] = ()
    hold: Hold | None = None
    told: Progress | None = None
    redone_s: float = 0.0

    # --- Where it is ------------------------------------------------------------------------------------------

    @property
    def spec(self) -> JobSpec:
        """The job file."""
        return self.job.spec

    @property
    def finished(self) -> bool:
        """Nothing more will happen to it."""
        return self.job.state.final

    @property
    def placements(self) -> tuple[Placement, ...]:
        """All of them, oldest first."""
        coming = (self.landing.placement,) if self.landing else ()
        return tuple(
            sorted((*self.past, *((self.active,) if self.active else ()), *coming), key=lambda p: p.attempt)
        )

    @property
    def done_steps(self) -> float:
        """Trained by the copy that has the job; what is saved where none has."""
        return self._done_at(self.now_ms) if self.active else self.saved_steps

    @property
    def former(self) -> Placement | None:
        """The placement that had the job last; what only ever landed is none."""
        return next((p for p in reversed(self.past) if p.active_at_ms), None)

    @property
    def progress(self) -> Progress | None:
        """The last reading of its steps; made when it is asked for, as metrics lines come by the second."""
        if self.reports is Reports.NOTHING:
            return None
        if self.active is not None and self.now_ms > self.due_ms:
            rate, step = self.pace.on(self.active.offer), math.floor(self.done_steps)
            return Progress(self.now_ms, step, self.total_steps, rate)
        if self.told is None and self.reports is Reports.FROM_THE_START:
            return Progress(self.job.created_at_ms, 0, self.total_steps)
        return self.told

    def next_ms(self) -> int | None:
        """When it next changes by itself: it is handed over, or finishes."""
        times = [t for t in (self._hand_over_ms(), self._finish_ms()) if t is not None]
        return min(times, default=None)

    # --- What happens to it -----------------------------------------------------------------------------------

    def until(self, now_ms: int) -> "PaperJob":
        """The same job later: trained, saved, handed over and finished as it falls due.

        Raises:
            AssertionError: `now_ms` is past.
        """
        assert now_ms >= self.now_ms, "time runs forward"
        job = self
        while not job.finished and (due_ms := job.next_ms()) is not None and due_ms <= now_ms:
            # What is ready after the last step is not needed any more.
            job = job._finish(due_ms) if due_ms == job._finish_ms() else job._hand_over(due_ms)
        return job._committed(now_ms)._at(now_ms)

    def launched(
        self,
        offer: Offer,
        price_micro_usd_h: int,
        ready_ms: int,
        gap_ms: int,
        purpose: Purpose | None = None,
        decision_id: str | None = None,
    ) -> "PaperJob":
        """A landing begins; with ``ready_ms=now_ms`` the next `until` hands over at once.

        Args:
            purpose: None reads it off the job: a move while it trains, a recovery once it has, else a place.
        """
        assert self.landing is None, "one landing at a time"
        assert not self.finished, "a finished job goes nowhere"
        lost = self.former
        if purpose is None:
            purpose = Purpose.MOVE if self.active else Purpose.RECOVER if lost else Purpose.PLACE
        replaces = self.active or lost
        attempt = len(self.placements) + 1
        placement = Placement(
            id=f"{self.job.id}-p{attempt}",
            job_id=self.job.id,
            attempt=attempt,
            offer=offer,
            price_micro_usd_h=price_micro_usd_h,
            purpose=purpose,
            project_id=self.job.project_id,
            created_by=self.job.created_by,
            created_at_ms=self.now_ms,
            decision_id=decision_id,
            state=PlacementState.BOOTING,
            state_since_ms=self.now_ms,
            replaces=replaces.id if replaces else None,
        )
        return replace(self, landing=Landing(placement, max(ready_ms, self.now_ms), gap_ms))._follow()

    def landing_failed(self, reason: str, lost: bool = False) -> "PaperJob":
        """The landing comes to nothing.

        Args:
            lost: Its cloud ended it, rather than refused it.
        """
        assert self.landing is not None
        gone = _ended(self.landing.placement, self.now_ms, reason, lost)
        return replace(self, landing=None, past=(*self.past, gone))._follow()

    def lost(self, saved: bool, reason: str = "interrupted") -> "PaperJob":
        """Its cloud takes the place away; a landing under way goes on, and takes the job when it is ready.

        Args:
            saved: Whether the notice was enough to save what was trained; else it goes back to the last commit.
        """
        return self._leave(saved, reason, lost=True)

    def released(self, saved: bool, reason: str = "released") -> "PaperJob":
        """The broker gives the place up without another one."""
        return self._leave(saved, reason, lost=False)

    def saved(self) -> "PaperJob":
        """A commit now, beside those of the interval."""
        return self._commit(self.done_steps, self.now_ms)

    def stopped(self, state: JobState, reason: str) -> "PaperJob":
        """It ends here unfinished: cancelled, or failed."""
        job = self.landing_failed(reason) if self.landing else self
        job = job.released(saved=False, reason=reason) if job.active else job
        return replace(job, job=job._ended_row(state, reason, self.now_ms))

    def remembering(self, hold: Hold | None) -> "PaperJob":
        """With the hold that `decide` gave back."""
        return self if hold == self.hold else replace(self, hold=hold)

    # --- Inside -----------------------------------------------------------------------------------------------

    def _at(self, now_ms: int) -> "PaperJob":
        return replace(self, now_ms=now_ms) if now_ms != self.now_ms else self

    def _done_at(self, at_ms: int) -> float:
        assert self.active is not None
        trained_s = max(0, at_ms - self.due_ms) / MS
        return min(float(self.total_steps), self.began_steps + trained_s * self.pace.on(self.active.offer))

    def _finish_ms(self) -> int | None:
        if self.active is None or self.finished:
            return None
        left_s = (self.total_steps - self.began_steps) / self.pace.on(self.active.offer)
        # Rounded first: 3600.0000000001 s of work take no millisecond more.
        return self.due_ms + math.ceil(round(left_s * MS, 3))

    def _hand_over_ms(self) -> int | None:
        """When the landing takes the job: as soon as it is ready, or at the old copy's first commit after that."""
        if self.landing is None or self.finished:
            return None
        ready_ms = max(self.landing.ready_ms, self.now_ms)
        checkpoint = self.spec.checkpoint
        if self.active is None or self.handles_term or checkpoint is None:
            return ready_ms
        every_ms = checkpoint.every_s * MS
        count = max(1, -(-(ready_ms - self.due_ms) // every_ms))
        # A copy that does not come to a commit is not waited for longer than that.
        longest_ms = self.landing.ready_ms + 3 * every_ms // 2
        return max(ready_ms, min(self.due_ms + count * every_ms, longest_ms))

    def _hand_over(self, at_ms: int) -> "PaperJob":
        landing = self.landing
        assert landing is not None
        job = self._committed(at_ms)._at(at_ms)
        if job.active is not None:
            cut = Cut.FINAL if job.handles_term else Cut.BOUNDARY
            job = job._leave(bool(job.handles_term), f"moved to {landing.placement.offer.key}", False, cut)
        generation = job.job.generation + 1
        placement = replace(
            landing.placement,
            state=PlacementState.ACTIVE,
            state_since_ms=at_ms,
            ready_at_ms=landing.ready_ms,
            active_at_ms=at_ms,
            generation=generation,
            fenced=True,
            resumed_step=None if job.saved_ms is None else math.floor(job.saved_steps),
            resumed_seq=None if job.saved_ms is None else job.seq,
        )
        return replace(
            job,
            job=replace(job.job, generation=generation),
            active=placement,
            due_ms=at_ms + landing.gap_ms,
            began_steps=job.saved_steps,
            began_seq=job.seq,
            landing=None,
        )._follow()

    def _finish(self, at_ms: int) -> "PaperJob":
        job = self._committed(at_ms)._at(at_ms)._leave(True, "finished", lost=False)
        job = replace(job, saved_steps=float(job.total_steps))
        job = job.landing_failed("no longer needed: the job has finished") if job.landing else job
        return replace(job, job=job._ended_row(JobState.SUCCEEDED, "finished", at_ms))

    def _leave(self, saved: bool, reason: str, lost: bool, cut: Cut | None = None) -> "PaperJob":
        assert self.active is not None
        job = self._committed(self.now_ms)
        progress = job.progress
        if saved:
            job = job._commit(job.done_steps, job.now_ms)
        trained = job.now_ms >= job.due_ms
        gone = replace(
            _ended(self.active, job.now_ms, reason, lost),
            training_at_ms=job.due_ms if trained else None,
            stopped_at_ms=job.now_ms,
            cut=cut,
            drained=saved,
            last_step=progress.step if progress else None,
            steps_per_s=self.pace.on(self.active.offer)
            if job.now_ms > job.due_ms and self.reports is not Reports.NOTHING
            else None,
        )
        redone_s = job.redone_s + (job.done_steps - job.saved_steps) / job.pace.on(self.active.offer)
        return replace(job, active=None, past=(*job.past, gone), told=progress, redone_s=redone_s)._follow()

    def _committed(self, now_ms: int) -> "PaperJob":
        """With the last commit of the interval that was due by then."""
        checkpoint = self.spec.checkpoint
        if self.active is None or checkpoint is None or now_ms <= self.due_ms:
            return self
        every_ms = checkpoint.every_s * MS
        count = (now_ms - self.due_ms) // every_ms
        at_ms = self.due_ms + count * every_ms
        if at_ms <= max(self.due_ms, self.saved_ms or 0):
            return self
        return self._commit(self._done_at(at_ms), at_ms, self.began_seq + count)

    def _commit(self, steps: float, at_ms: int, seq: int = 0) -> "PaperJob":
        if self.spec.checkpoint is None:
            return self
        # The number counts what was due and not what was looked at: asking often and asking once agree.
        return replace(self, saved_steps=steps, saved_ms=at_ms, seq=max(seq, self.seq + 1))

    def _ended_row(self, state: JobState, reason: str, at_ms: int) -> Job:
        return replace(
            self.job,
            state=state,
            state_since_ms=at_ms,
            reason=reason,
            active_placement_id=None,
            finished_at_ms=at_ms,
            exit_code=0 if state is JobState.SUCCEEDED else None,
        )

    def _follow(self) -> "PaperJob":
        """The row's state follows from the placements."""
        if self.active is not None:
            state = JobState.MOVING if self.landing else JobState.RUNNING
        elif self.former is not None:
            state = JobState.RECOVERING
        else:
            state = JobState.STARTING if self.landing else JobState.QUEUED
        active_id = self.active.id if self.active else None
        if (state, active_id) == (self.job.state, self.job.active_placement_id):
            return self
        since_ms = self.now_ms if state is not self.job.state else self.job.state_since_ms
        return replace(
            self, job=replace(self.job, state=state, state_since_ms=since_ms, active_placement_id=active_id)
        )


def submitted(
    spec: JobSpec,
    total_steps: int,
    steps_per_s: Mapping[str, float],
    at_ms: int,
    *,
    job_id: str = "job",
    project_id: str = "default",
    policy: str | None = None,
    reports: Reports = Reports.WHILE_TRAINING,
    handles_term: bool | None = None,
    checkpoint_bytes: int = 0,
) -> PaperJob:
    """A job that waits for its first place.

    Args:
        steps_per_s: Of the whole gang, by GPU SKU; see `Pace`.
    """
    assert total_steps > 0, "there is work"
    job = Job(job_id, spec, project_id, "paper", at_ms, state_since_ms=at_ms, policy=policy)
    return PaperJob(
        job,
        at_ms,
        total_steps,
        Pace(spec, steps_per_s),
        reports=reports,
        handles_term=handles_term,
        checkpoint_bytes=checkpoint_bytes,
    )


def _ended(placement: Placement, at_ms: int, reason: str, lost: bool) -> Placement:
    return replace(
        placement,
        state=PlacementState.GONE,
        state_since_ms=at_ms,
        gone_at_ms=at_ms,
        reason=reason,
        lost=lost,
    )
