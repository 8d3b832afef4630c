"""Who is served first."""

from collections.abc import Iterable

from broker.core.model import Job


def queue_order(jobs: Iterable[Job]) -> list[Job]:
    """By priority, then by age; the id breaks a tie, so that every pass sees the same order."""
    return sorted(jobs, key=lambda job: (job.spec.priority.rank, job.created_at_ms, job.id))
