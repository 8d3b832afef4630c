"""``/api/v1``: sources, jobs, their logs, decisions and events, and the ledger.

A job is named by its id, or by its name: then the newest of that name is meant, one that is not over before others. What ends a job
wants a name that leaves no choice.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from pydantic import ValidatorFunctionWrapHandler, WrapValidator

from broker.core.errors import AuthError, Conflict, SpecError, UsageError
from broker.core.model import Decision, DecisionKind, Event, Job, JobState
from broker.core.plain import to_plain
from broker.core.spec import JobSpec
from broker.core.yaml_text import did_you_mean
from broker.jobs import submit
from broker.jobs.ledger import Bill
from broker.jobs.spec import check_spec
from broker.policy.load import PolicySet
from broker.policy.select import refuse_name
from broker.serve import files
from broker.serve.auth import Broker, Engineer, Principal, Viewer
from broker.serve.numbers import Number
from broker.serve.paid import bills
from broker.serve.views import JobDetail, JobLine, Listing, job_line, told_reason, without_secrets
from broker.store.access import REPORT_ONLY, Role
from broker.store.state import Tx

_LOG_PAGE_BYTES = 1 << 20

# The largest number that a row of the log can have.
LAST_EVENT = 2**63 - 1

router = APIRouter(prefix="/api/v1")

JobName = Annotated[str, Path(description="Id or name.")]


def _whole(given: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """Refuse keys that mean nothing to us: a job that asks for something and silently does not get it is lied to."""
    taken = read(given)
    if unknown := ", ".join(_left_over(given, to_plain(taken))):
        raise ValueError(f"not known here: {unknown}")
    return taken


def _left_over(given: Any, taken: Any, where: str = "") -> Iterator[str]:
    if isinstance(given, dict) and isinstance(taken, dict):
        for key, value in given.items():
            if key in taken:
                yield from _left_over(value, taken[key], f"{where}{key}.")
            else:
                yield where + key
    elif isinstance(given, list) and isinstance(taken, list):
        for index, (one, other) in enumerate(zip(given, taken, strict=True)):
            yield from _left_over(one, other, f"{where}{index}.")


@dataclass(frozen=True)
class Wanted:
    """A job as the CLI has parsed it. `spec.source` names an upload."""

    spec: Annotated[JobSpec, WrapValidator(_whole)]


@dataclass(frozen=True)
class Uploaded:
    """A source that the daemon has."""

    sha256: str
    size_bytes: int


@router.put("/sources/{sha256}", tags=["jobs"])
async def put_source(sha256: str, request: Request, _engineer: Engineer, broker: Broker) -> Uploaded:
    """Upload a gzipped tarball named by its hash; again is no error."""
    size = await files.receive_source(broker.source_dir, sha256, request.stream(), broker.ids.base32(8))
    return Uploaded(sha256, size)


@router.post("/jobs", tags=["jobs"], status_code=201)
def create_job(
    wanted: Wanted,
    response: Response,
    engineer: Engineer,
    broker: Broker,
    idempotency_key: Annotated[str, Header(min_length=8, max_length=200)],
) -> Job:
    """Submit. The same key again answers with the same job (200); with another spec it is a conflict."""
    spec = wanted.spec
    if spec.source is not None and not files.source_file(broker.source_dir, spec.source.sha256).is_file():
        raise UsageError(f"source {spec.source.sha256} is not here", hint="PUT it to /api/v1/sources first")
    with broker.store.write() as tx:
        known = tx.job_by_key(engineer.project_id, idempotency_key)
        if known is None:
            _check_policy(spec, engineer, broker.policies)
        job = submit.submit(
            tx,
            broker.ids,
            spec,
            project_id=engineer.project_id,
            created_by=engineer.name,
            idempotency_key=idempotency_key,
            now_ms=broker.clock.now_ms(),
        )
    if known is not None:
        response.status_code = 200
    broker.wake()
    return without_secrets(job)


@router.post("/jobs/check", tags=["jobs"])
async def check_job(wanted: Wanted, viewer: Viewer, broker: Broker) -> Decision:
    """What the job's policy would answer now, with every offer it weighs. Records nothing."""
    _check_policy(wanted.spec, viewer, broker.policies)
    return broker.preview(check_spec(wanted.spec), viewer.project_id)


@router.get("/jobs", tags=["jobs"])
def list_jobs(
    viewer: Viewer,
    broker: Broker,
    all: Annotated[bool, Query(description="Also those that are over.")] = False,
) -> Listing[JobLine]:
    """Jobs of the caller's project, oldest first."""
    project = None if viewer.role == Role.OPERATOR else viewer.project_id
    with broker.store.read() as tx:
        jobs = tx.jobs(open_only=not all, project_id=project)
        nodes = tx.nodes(open_only=True)
        lease_s, latched = broker.settings.timing.run_lease_s, tx.switch(REPORT_ONLY)
        items = [
            job_line(job, tx.placements(job_id=job.id), told_reason(job, nodes, lease_s, latched))
            for job in jobs
        ]
    return Listing(at_ms=broker.clock.now_ms(), items=items)


@router.get("/jobs/{name}", tags=["jobs"])
def show_job(name: JobName, viewer: Viewer, broker: Broker) -> JobDetail:
    """All about one job."""
    with broker.store.read() as tx:
        job = _find(tx, viewer, name)
        placements = tuple(tx.placements(job_id=job.id))
        newest = tx.decisions(job.id, 1)
        segments = tx.segments(job_id=job.id)
        lease_s, latched = broker.settings.timing.run_lease_s, tx.switch(REPORT_ONLY)
        job = replace(job, reason=told_reason(job, tx.nodes(job_id=job.id), lease_s, latched))
    paid = sum(bill.paid_micro_usd for bill in bills(broker, segments))
    return JobDetail(without_secrets(job), placements, paid, newest[0] if newest else None)


@router.get("/jobs/{name}/logs", tags=["jobs"], response_class=Response)
def job_logs(
    name: JobName,
    viewer: Viewer,
    broker: Broker,
    offset: Annotated[Number, Query(ge=0, le=files.JOB_LOG_MAX_BYTES)] = 0,
    node: Annotated[
        str | None, Query(description="Log of one node; default: rank 0 of all placements.")
    ] = None,
) -> Response:
    """Bytes of the log from `offset`, at most 1 MiB; empty at its end. ``X-Job-State`` says whether to go on asking."""
    with broker.store.read() as tx:
        job = _find(tx, viewer, name)
        tokens = {row.token for row in tx.nodes(job_id=job.id)}
    if node is not None and node not in tokens:
        raise UsageError(f"{node} is no node of {job.id}")
    file = files.node_log(broker.log_dir, node) if node else files.job_log(broker.log_dir, job.id)
    data = files.read_log(file, offset, _LOG_PAGE_BYTES)
    headers = {"X-Job-State": job.state.value, "X-Next-Offset": str(offset + len(data))}
    return Response(data, media_type="application/octet-stream", headers=headers)


@router.get("/jobs/{name}/decisions", tags=["jobs"])
def job_decisions(
    name: JobName,
    viewer: Viewer,
    broker: Broker,
    limit: Annotated[Number, Query(ge=1, le=1000)] = 20,
    kind: Annotated[DecisionKind | None, Query(description="Only answers of this kind.")] = None,
) -> Listing[Decision]:
    """Answers of policies for this job, newest first, each with its reasons and the quotes it saw."""
    with broker.store.read() as tx:
        items = tx.decisions(_find(tx, viewer, name).id, limit, kind=kind)
    return Listing(at_ms=broker.clock.now_ms(), items=items)


@router.get("/jobs/{name}/events", tags=["jobs"])
def job_events(
    name: JobName,
    viewer: Viewer,
    broker: Broker,
    after: Annotated[Number, Query(ge=0, le=LAST_EVENT)] = 0,
    limit: Annotated[Number, Query(ge=1, le=10_000)] = 1000,
) -> Listing[Event]:
    """The job's part of the event log."""
    with broker.store.read() as tx:
        items = tx.events(after, _find(tx, viewer, name).id, limit)
    return Listing(at_ms=broker.clock.now_ms(), items=items)


@router.post("/jobs/{name}/cancel", tags=["jobs"])
def cancel_job(name: JobName, engineer: Engineer, broker: Broker) -> Job:
    """End a job: what trains may save first. Again is no error; a job that is over is a conflict.

    So is a name that several jobs share which could be ended: nobody's work is to end by a guess.
    """
    with broker.store.write() as tx:
        job = submit.cancel(tx, _the_one(tx, engineer, name), engineer.name, broker.clock.now_ms())
    broker.wake()
    return without_secrets(job)


@router.get("/ledger", tags=["ledger"])
def ledger(
    viewer: Viewer,
    broker: Broker,
    job: Annotated[str | None, Query(description="Id or name; default: all jobs.")] = None,
) -> Listing[Bill]:
    """What each billable stretch of each node cost, computed now from segments, prices and billing rules."""
    project = None if viewer.role == Role.OPERATOR else viewer.project_id
    with broker.store.read() as tx:
        job_id = _find(tx, viewer, job).id if job else None
        segments = tx.segments(job_id=job_id, project_id=project)
    return Listing(at_ms=broker.clock.now_ms(), items=bills(broker, segments))


def _check_policy(spec: JobSpec, caller: Principal, policies: PolicySet) -> None:
    """A job for which no policy speaks, or two, would wait until somebody mends a file.

    Whether it may name its policy is asked here alone: a job that was taken in keeps it, whatever the file says later.

    Raises:
        SpecError: it names a policy that is not there.
        AuthError: it names one that the caller's role may not choose.
        NotFound, PolicyError: see `broker.policy.select`.
    """
    if spec.policy is not None and spec.policy not in policies.policies:
        known = sorted(policies.policies)
        hint = did_you_mean(spec.policy, known) or f"policies are {', '.join(known) or '(none)'}"
        raise SpecError(f"policy: there is no policy named {spec.policy}", hint=hint)
    if spec.policy is not None and (refused := refuse_name(policies.get(spec.policy), caller.role)):
        raise AuthError(refused)
    policies.select(spec, caller.project_id)


def _find(tx: Tx, viewer: Principal, name: str) -> Job:
    """The job of that id or name.

    Raises:
        NotFound: there is none that the caller may see.
    """
    job = tx.job(name)
    if job is None:
        named = _named(tx, viewer, name)
        job = max(named, key=lambda row: (not row.state.final, row.created_at_ms), default=None)
    return viewer.own(job, name)


def _the_one(tx: Tx, viewer: Principal, name: str) -> Job:
    """As `_find`, but a name must leave no choice among the jobs that still run or wait.

    Raises:
        Conflict: it does.
        NotFound: there is none that the caller may see.
    """
    if tx.job(name) is None:
        live = [
            row
            for row in _named(tx, viewer, name)
            if not row.state.final and row.state != JobState.CANCELLING
        ]
        if len(live) > 1:
            ids = ", ".join(row.id for row in live)
            raise Conflict(f"{len(live)} jobs are called {name}: {ids}; give the id")
        if live:
            return live[0]
    return _find(tx, viewer, name)


def _named(tx: Tx, viewer: Principal, name: str) -> list[Job]:
    project = None if viewer.role == Role.OPERATOR else viewer.project_id
    return [row for row in tx.jobs(project_id=project) if row.spec.name == name]
