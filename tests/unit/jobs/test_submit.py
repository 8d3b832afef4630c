"""Taking a job in, once."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import Conflict, NotFound, SpecError
from broker.core.model import Job, JobState
from broker.core.spec import GpuRequest, JobSpec, Priority, Resources
from broker.jobs.order import queue_order
from broker.jobs.submit import cancel, submit
from broker.store.state import StateStore, Tx
from tests.clocks import START_MS, CountingIds, ManualClock

SPEC = JobSpec("train", "python train.py", Resources((GpuRequest("H100", 8),)))


@pytest.fixture
def tx(tmp_path: Path) -> Iterator[Tx]:
    store = StateStore.open(tmp_path / "state.db", ManualClock(), CountingIds())
    with store.write() as opened:
        yield opened
    store.close()


def put(tx: Tx, spec: JobSpec = SPEC, key: str = "key-0001", project: str = "default", ids: int = 1) -> Job:
    return submit(
        tx,
        CountingIds(ids),
        spec,
        project_id=project,
        created_by="ann",
        idempotency_key=key,
        now_ms=START_MS,
    )


def test_a_job_is_queued_with_its_event(tx: Tx):
    job = put(tx)
    assert (job.id, job.state, job.created_by, job.spec) == ("train-aaaab", JobState.QUEUED, "ann", SPEC)
    assert tx.jobs() == [job]
    assert [(event.kind, event.job_id, event.actor) for event in tx.events()] == [
        ("job.submitted", job.id, "ann")
    ]


def test_the_same_key_is_the_same_job(tx: Tx):
    first = put(tx)
    assert put(tx, ids=7) == first
    assert put(tx, replace(SPEC, resources=Resources((GpuRequest("h100", 8),)))) == first
    assert len(tx.jobs()) == len(tx.events()) == 1
    with pytest.raises(Conflict, match="belongs to train-aaaab, which has another spec"):
        put(tx, replace(SPEC, run="python other.py"))


def test_a_key_belongs_to_its_project(tx: Tx):
    tx.add_project("nlp", "root")
    assert put(tx).id != put(tx, project="nlp", ids=2).id


def test_an_id_that_is_taken_is_drawn_again(tx: Tx):
    assert [put(tx, key=f"key-000{n}").id for n in range(3)] == ["train-aaaab", "train-aaaac", "train-aaaad"]


def test_what_cannot_be_is_refused(tx: Tx):
    with pytest.raises(NotFound, match="no project 'x'"):
        put(tx, project="x")
    with pytest.raises(SpecError, match=r"stop\.deadline 2026-05-28T20:26:40Z has passed"):
        put(tx, replace(SPEC, deadline_ms=START_MS))
    with pytest.raises(SpecError, match="name has a value"):
        put(tx, replace(SPEC, name="Not A Name"))
    assert tx.jobs() == []


def test_cancel(tx: Tx):
    job = put(tx)
    cancelled = cancel(tx, job, "bob", START_MS + 5)
    assert cancelled == replace(
        job, state=JobState.CANCELLING, state_since_ms=START_MS + 5, reason="cancelled by bob"
    )
    assert cancel(tx, cancelled, "eve", START_MS + 9) == cancelled
    assert [event.kind for event in tx.events()] == ["job.submitted", "job.cancelling"]
    with pytest.raises(Conflict, match="is cancelled already"):
        cancel(tx, replace(job, state=JobState.CANCELLED), "bob", START_MS)


@given(st.lists(st.tuples(st.sampled_from(Priority), st.integers(0, 3)), max_size=8))
def test_order_is_priority_then_age(keys: list[tuple[Priority, int]]):
    jobs = [
        Job(f"j{n}", replace(SPEC, priority=priority), "default", "ann", created)
        for n, (priority, created) in enumerate(keys)
    ]
    served = [(job.spec.priority.rank, job.created_at_ms) for job in queue_order(reversed(jobs))]
    assert served == sorted(served)
    assert queue_order(jobs) == queue_order(reversed(jobs))
