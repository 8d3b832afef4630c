"""When a copy that trains well may be stopped, who is waited for, and who may rent at all (I19, I20, I21)."""

from typing import TYPE_CHECKING

from broker.core.model import Cut, JobState, Placement, PlacementState, Purpose

if TYPE_CHECKING:
    from tests.sim.truth import Truth


def stopped(truth: "Truth", placement: Placement) -> None:
    """A placement is active no more."""
    job = truth.jobs[placement.job_id]
    if placement.lost or job.state.final or job.state == JobState.CANCELLING:
        return
    others = [p for p in truth.placements.values() if p.job_id == job.id and p.id != placement.id]
    if not any(p.state == PlacementState.READY for p in others):
        truth.sim.violate(
            "I19 make before break", f"{placement.id} is told to stop, and nothing is ready to go on"
        )


def fenced(truth: "Truth", job_id: str) -> None:
    """HEAD of a job has got a new generation."""
    sim = truth.sim
    if sim.restored_lately():
        return  # older rows cannot know who was asked to save
    for placement in truth.placements.values():
        if placement.job_id != job_id or placement.state != PlacementState.DRAINING:
            continue
        if placement.cut == Cut.FINAL and not placement.drained:
            sim.violate("I20 saved first", f"{placement.id} was asked to save, and is fenced before it has")


def intended(truth: "Truth", placement: Placement) -> None:
    """A placement and its nodes have been committed as an intent."""
    job = truth.jobs[placement.job_id]
    active = [
        p.id for p in truth.placements.values() if p.job_id == job.id and p.state == PlacementState.ACTIVE
    ]
    wanted = [placement.replaces] if placement.purpose == Purpose.MOVE else []
    if job.state.final or job.state == JobState.CANCELLING or active != wanted:
        truth.sim.violate(
            "I21 wanted", f"{placement.id} is to {placement.purpose} a job that is {job.state} on {active}"
        )
