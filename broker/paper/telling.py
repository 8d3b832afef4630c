"""What a decision may know of a job on paper: the same that the daemon reads off its rows, and no more."""

import math
from dataclasses import replace

from broker.core.model import Commit, Placement, Purpose
from broker.core.time import DAY_S, MS
from broker.decision.subject import Subject
from broker.paper.job import PaperJob, Reports


def subject_of(job: PaperJob) -> Subject:
    """Its situation at ``job.now_ms``, for `broker.decision.plan.decide`."""
    active = job.active
    if active is not None:
        started = job.due_ms if job.now_ms >= job.due_ms else None
        reported = job.now_ms > job.due_ms and job.reports is not Reports.NOTHING
        speed = job.pace.on(active.offer) if reported else None
        active = replace(active, training_at_ms=started, steps_per_s=speed)
    had = (*job.past, *((active,) if active else ()))
    moves = [p.active_at_ms for p in had if p.purpose is Purpose.MOVE and p.active_at_ms is not None]
    return Subject(
        job=replace(job.job, progress=job.progress, commit=_commit(job)),
        active=active,
        landing=(job.landing.placement,) if job.landing else (),
        lost=job.former if active is None else None,
        moved_at_ms=max(moves, default=None),
        moves_24h=sum(at > job.now_ms - DAY_S * MS for at in moves),
        hold=job.hold,
        measured_steps_per_s=_measured(job, had),
        trained_s=trained_s(job),
        handles_term=job.handles_term if active else None,
    )


def trained_s(job: PaperJob) -> float:
    """Seconds trained over all placements, work that was lost included."""
    past_ms = sum(
        (p.stopped_at_ms or job.now_ms) - p.training_at_ms for p in job.past if p.training_at_ms is not None
    )
    here_ms = max(0, job.now_ms - job.due_ms) if job.active else 0
    return (past_ms + here_ms) / MS


def _commit(job: PaperJob) -> Commit | None:
    if job.saved_ms is None:
        return None
    step = None if job.reports is Reports.NOTHING else math.floor(job.saved_steps)
    manifest = f"paper/{job.job.id}/{job.seq}"
    return Commit(job.job.generation, job.seq, manifest, "0" * 64, step, job.checkpoint_bytes, job.saved_ms)


def _measured(job: PaperJob, had: tuple[Placement, ...]) -> dict[str, float]:
    if job.reports is Reports.FROM_THE_START:
        return dict(job.pace.steps_per_s)
    return {p.offer.gpu: p.steps_per_s for p in had if p.steps_per_s}
