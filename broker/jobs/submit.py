"""Taking a job in, once, and taking it out again. Row and event are written in the caller's one transaction."""

from dataclasses import replace

from broker.core.errors import Conflict, NotFound, SpecError
from broker.core.ids import slug
from broker.core.model import Event, Job, JobState
from broker.core.ports import Ids
from broker.core.spec import JobSpec
from broker.core.time import to_iso
from broker.jobs.spec import check_spec
from broker.store.state import Tx

_ID_RANDOM = 5  # 33 million names for each job name; a clash is seen and drawn again


def submit(
    tx: Tx, ids: Ids, spec: JobSpec, *, project_id: str, created_by: str, idempotency_key: str, now_ms: int
) -> Job:
    """A new job, queued; or the one that this key has made before.

    Raises:
        Conflict: the key has been used for another spec.
        SpecError: the spec is none that a job file may give, or its deadline has passed.
        NotFound: no such project.
    """
    known = tx.job_by_key(project_id, idempotency_key)
    if known is not None:
        if known.spec != check_spec(spec):
            raise Conflict(
                f"this submission key belongs to {known.id}, which has another spec; submit with a new key"
            )
        return known
    spec = check_spec(spec)
    if spec.deadline_ms is not None and spec.deadline_ms <= now_ms:
        raise SpecError(f"stop.deadline {to_iso(spec.deadline_ms)} has passed; it is {to_iso(now_ms)} now")
    if project_id not in {project.id for project in tx.projects()}:
        raise NotFound(f"no project {project_id!r}")
    job = Job(
        id=_free_id(tx, ids, spec.name),
        spec=spec,
        project_id=project_id,
        created_by=created_by,
        created_at_ms=now_ms,
        state_since_ms=now_ms,
        idempotency_key=idempotency_key,
    )
    tx.save(job)
    tx.emit(
        Event(
            "job.submitted",
            now_ms,
            actor=created_by,
            project_id=project_id,
            job_id=job.id,
            data={"name": spec.name, "priority": spec.priority.value},
        )
    )
    return job


def cancel(tx: Tx, job: Job, cancelled_by: str, now_ms: int) -> Job:
    """Ask for a job's end; reconcile carries it out. Again is no error.

    Raises:
        Conflict: the job is over.
    """
    if job.state == JobState.CANCELLING:
        return job
    if job.state.final:
        raise Conflict(f"{job.id} is {job.state} already")
    reason = f"cancelled by {cancelled_by}"
    cancelled = replace(job, state=JobState.CANCELLING, state_since_ms=now_ms, reason=reason)
    tx.save(cancelled)
    tx.emit(
        Event(
            f"job.{JobState.CANCELLING}",
            now_ms,
            actor=cancelled_by,
            project_id=job.project_id,
            job_id=job.id,
            data={"before": job.state.value, "reason": reason},
        )
    )
    return cancelled


def _free_id(tx: Tx, ids: Ids, name: str) -> str:
    while True:
        job_id = f"{slug(name)}-{ids.base32(_ID_RANDOM)}"
        if tx.job(job_id) is None:
            return job_id
