"""A job that has really run, as a job on paper: where it was, what it had trained and how fast it is, as of a moment.

A job's rows keep where each placement began and ended, and not each step between. In between it is taken to have trained
evenly. A job that never tells its steps is measured in seconds of training on the kind of GPU that it was on at first.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from broker.core.model import Job, JobState, Placement, PlacementState, Progress, Segment
from broker.core.offer import Offer
from broker.core.time import HOUR_S, MS
from broker.decision.fit import speed_tflops
from broker.decision.subject import Hold, Timing
from broker.paper.job import PaperJob, Reports
from broker.paper.pace import Pace

# A speed that was measured for less says little.
_LEAST_S: Final = 60
# Of a job that does not say how much it has to do: as good as never done.
_ENDLESS_S: Final = 10 * 365 * 24 * HOUR_S


@dataclass(frozen=True)
class Ran:
    """What rows tell of a job.

    Attributes:
        placements: All of them, oldest first.
        segments: Billed stretches of all its nodes.
        handles_term: Whether it saves when it is asked to stop; None when nobody has told.
    """

    job: Job
    placements: tuple[Placement, ...]
    segments: tuple[Segment, ...]
    handles_term: bool | None = None


@dataclass(frozen=True)
class Stretch:
    """One placement's training.

    Attributes:
        from_ms, to_ms: When.
        from_step, to_step: What it had trained then.
    """

    placement: Placement
    from_ms: int
    to_ms: int
    from_step: float
    to_step: float

    @property
    def steps_per_s(self) -> float:
        """Of the whole gang, on the average."""
        return max(0.0, self.to_step - self.from_step) * MS / max(1, self.to_ms - self.from_ms)

    def step_at(self, at_ms: int) -> float:
        """Between its ends, evenly."""
        share = (at_ms - self.from_ms) / max(1, self.to_ms - self.from_ms)
        return self.from_step + min(1.0, max(0.0, share)) * (self.to_step - self.from_step)


@dataclass(frozen=True)
class Course:
    """What a job has really done until `until_ms`.

    Attributes:
        stretches: In the order of time; none before it has trained.
        pace: How fast it is where.
        total_steps: The work; None where nobody knows.
        in_steps: Whether these are steps that it has reported, and not seconds.
    """

    ran: Ran
    until_ms: int
    stretches: tuple[Stretch, ...]
    pace: Pace
    total_steps: int | None
    in_steps: bool

    @property
    def ended_ms(self) -> int:
        """When it ended, or until when it is looked at."""
        return min(self.ran.job.finished_at_ms or self.until_ms, self.until_ms)

    @property
    def finished(self) -> bool:
        """All of its work is done."""
        return self.ran.job.state is JobState.SUCCEEDED and self.ended_ms < self.until_ms

    @property
    def done_steps(self) -> float:
        """At its end."""
        if self.finished and self.total_steps is not None:
            return float(self.total_steps)
        return self.stretches[-1].to_step if self.stretches else 0.0

    @property
    def last_offer(self) -> Offer | None:
        """Where it has trained last."""
        return self.stretches[-1].placement.offer if self.stretches else None

    def stretch_at(self, at_ms: int) -> Stretch | None:
        """The placement that had the job then."""
        return next(
            (s for s in self.stretches if (s.placement.active_at_ms or s.from_ms) <= at_ms < s.to_ms), None
        )


def course_of(ran: Ran, until_ms: int) -> Course | None:
    """What it has done; None where no speed can be told: it has not trained for long enough."""
    job, told = ran.job, ran.job.progress
    in_steps = told is not None and told.step is not None
    trained = [p for p in ran.placements if p.training_at_ms is not None and p.training_at_ms < until_ms]
    if not trained:
        return None
    stretches = _in_steps(job, trained, until_ms) if in_steps else _in_seconds(ran, trained, until_ms)
    rates = _rates(stretches)
    if not rates:
        return None
    total = told.total_steps if in_steps and told is not None else None
    if job.state is JobState.SUCCEEDED:
        done = max(stretch.to_step for stretch in stretches)
        total = max(1, round(max(done, total or 0)))
    return Course(ran, until_ms, tuple(stretches), Pace(job.spec, rates), total, in_steps)


def as_of(course: Course, at_ms: int, policy: str, hold: Hold | None = None) -> PaperJob | None:
    """The job as it was then, for a policy to go on with; None where no placement had it.

    Args:
        policy: Name of the one that decides from then on.
        hold: What that one wanted at the time.
    """
    ran, here = course.ran, course.stretch_at(at_ms)
    if here is None:
        return None
    active = replace(
        here.placement, state=PlacementState.ACTIVE, created_at_ms=_metered_ms(ran, here.placement)
    )
    before = [p for p in ran.placements if p.attempt < active.attempt]
    row = replace(
        ran.job,
        state=JobState.RUNNING,
        policy=policy,
        active_placement_id=active.id,
        finished_at_ms=None,
        exit_code=None,
        commit=None,
        progress=None,
        generation=active.generation or 1,
    )
    total = course.total_steps
    if total is None:
        total = round(max(course.pace.steps_per_s.values()) * _ENDLESS_S + course.done_steps) + 1
    known = course.in_steps and course.total_steps is not None
    resumed = active.resumed_seq is not None
    commit = ran.job.commit
    return PaperJob(
        row,
        at_ms,
        total,
        course.pace,
        reports=Reports.WHILE_TRAINING if known else Reports.NOTHING,
        handles_term=ran.handles_term,
        checkpoint_bytes=commit.bytes if commit else 0,
        active=replace(active, stopped_at_ms=None, gone_at_ms=None, lost=False, cut=None, drained=False),
        due_ms=here.from_ms,
        began_steps=here.from_step,
        saved_steps=here.from_step,
        saved_ms=here.from_ms if resumed else None,
        seq=active.resumed_seq or 0,
        began_seq=active.resumed_seq or 0,
        past=tuple(_over(p, at_ms) for p in before),
        hold=hold,
        told=Progress(here.from_ms, round(here.from_step), total) if known and resumed else None,
    )


def measured_timing(
    placements: Iterable[Placement], boot_s: float, probe_s: float, restore_s: float
) -> tuple[Timing, int]:
    """What landings have really taken, and how many that is the middle of; as expected where there were none."""
    landed = [p for p in placements if p.ready_at_ms is not None and p.training_at_ms is not None]
    if not landed:
        return Timing(boot_s=boot_s, probe_s=probe_s, restore_s=restore_s), 0
    overlap_s = median((p.ready_at_ms or 0) - p.created_at_ms for p in landed) / MS
    gap_s = median(max(0, (p.training_at_ms or 0) - (p.active_at_ms or 0)) for p in landed) / MS
    # The probe and the transfer are within the first of the two.
    return Timing(boot_s=overlap_s, probe_s=0.0, restore_s=gap_s, transfer_gib_s=float("inf")), len(landed)


def _in_steps(job: Job, trained: Sequence[Placement], until_ms: int) -> list[Stretch]:
    progress = job.progress
    assert progress is not None
    found: list[Stretch] = []
    for placement in trained:
        from_ms, from_step = placement.training_at_ms or 0, float(placement.resumed_step or 0)
        ended_ms = placement.stopped_at_ms or placement.gone_at_ms
        if ended_ms is not None:
            to_ms, step = ended_ms, placement.last_step
        else:
            to_ms, step = max(progress.at_ms, from_ms + 1), progress.step
        if job.state is JobState.SUCCEEDED and placement is trained[-1]:
            to_ms = job.finished_at_ms or to_ms
            step = progress.total_steps or progress.step
        found.append(
            Stretch(placement, from_ms, min(to_ms, until_ms), from_step, max(from_step, float(step or 0)))
        )
    # A place that has the job still has it now, whenever its last reading came.
    last = found[-1]
    if not job.state.final and (last.placement.stopped_at_ms or last.placement.gone_at_ms) is None:
        ahead = last.steps_per_s * max(0, until_ms - last.to_ms) / MS
        most = float(progress.total_steps or last.to_step + ahead)
        found[-1] = replace(last, to_ms=max(until_ms, last.to_ms), to_step=min(most, last.to_step + ahead))
    return found


def _in_seconds(ran: Ran, trained: Sequence[Placement], until_ms: int) -> list[Stretch]:
    spec = ran.job.spec
    reference = speed_tflops(trained[0].offer, spec)
    done, found = 0.0, []
    for placement in trained:
        from_ms = placement.training_at_ms or 0
        ended_ms = placement.stopped_at_ms or placement.gone_at_ms or ran.job.finished_at_ms or until_ms
        to_ms = max(from_ms + 1, min(ended_ms, until_ms))
        trains = (to_ms - from_ms) / MS * speed_tflops(placement.offer, spec) / reference
        found.append(Stretch(placement, from_ms, to_ms, done, done + trains))
        done += trains
    return found


def _rates(stretches: Sequence[Stretch]) -> Mapping[str, float]:
    """Steps a second by SKU: all that was trained there, over the time that it took."""
    steps: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for stretch in stretches:
        took_s = (stretch.to_ms - stretch.from_ms) / MS
        if took_s < _LEAST_S or stretch.steps_per_s <= 0:
            continue
        sku = stretch.placement.offer.gpu
        steps[sku] = steps.get(sku, 0.0) + stretch.to_step - stretch.from_step
        seconds[sku] = seconds.get(sku, 0.0) + took_s
    return {sku: done / seconds[sku] for sku, done in steps.items()}


def _metered_ms(ran: Ran, placement: Placement) -> int:
    """When its meters began to run, by the cloud's word."""
    began = [s.started_at_ms for s in ran.segments if s.placement_id == placement.id]
    return min(began, default=placement.created_at_ms)


def _over(placement: Placement, at_ms: int) -> Placement:
    """One that is over for the job: it may still have been giving its nodes back."""
    return replace(
        placement,
        state=PlacementState.GONE,
        gone_at_ms=min(placement.gone_at_ms or at_ms, at_ms),
        stopped_at_ms=None if placement.stopped_at_ms is None else min(placement.stopped_at_ms, at_ms),
    )
