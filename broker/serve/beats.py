"""What a beat changes: the node's report, the job's progress and last commit, and an event for every change. Pure.

Verdicts and states are left to reconcile, which reads the report; here only what must not be lost between two
passes is taken in. A node speaks in its own seconds, of which our clock has `rate`.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from broker.core.model import Commit, Event, Job, Node, NodeState, Progress
from broker.jobs.metrics import take_readings
from broker.wire.messages import JOB_NONE, Beat, RestoreNote, decode

# Steps a second: one in thirty years, and a million million.
_SLOWEST, _FASTEST = 1e-9, 1e12


@dataclass(frozen=True)
class Taken:
    """The rows after a beat, and what to write into the log.

    Attributes:
        probe: The probe's report when it came with this beat, else None.
        stale: The beat was older than what we have; nothing changed.
    """

    node: Node
    job: Job
    events: tuple[Event, ...] = ()
    probe: Mapping[str, Any] | None = None
    stale: bool = False


def take_beat(node: Node, job: Job, beat: Beat, now_ms: int, rate: float) -> Taken:
    """Apply `beat` to its node and job.

    Args:
        node: The row of the caller.
        job: Of the same placement.
        beat: As decoded.
        now_ms: Our clock.
        rate: Our seconds per second of the node.
    """
    before = _last(node)
    if beat.seq <= before.seq:
        return Taken(node, job, stale=True)
    # A finished probe is said once and for all: an agent that was restarted need not remember it.
    beat = replace(beat, probe=_shaped(beat.probe) or before.probe)
    events = [
        Event(
            kind,
            now_ms,
            actor="node",
            project_id=node.project_id,
            job_id=node.job_id,
            placement_id=node.placement_id,
            node_token=node.token,
            data=data,
        )
        for kind, data in _changes(before, beat, job, rate)
    ]
    report = json.loads(json.dumps(asdict(beat)))
    new_probe = beat.probe if before.probe is None else None
    return Taken(
        replace(node, report=report, seen_at_ms=now_ms),
        replace(job, progress=_progress(node, job, beat, now_ms, rate), commit=_commit(job, beat, now_ms)),
        tuple(events),
        new_probe,
    )


def _last(node: Node) -> Beat:
    """What the node told before. A report that a release with other bounds stored must not mute the node for ever."""
    try:
        return decode(Beat, node.report) if node.report else Beat(seq=0, phase="")
    except ValueError:
        return Beat(seq=0, phase="")


def restarted(node: Node) -> Node:
    """After hello: a new agent process counts its beats from 1 again, so the old count must not mute it."""
    return replace(node, report={**node.report, "seq": 0}) if node.report else node


def _changes(before: Beat, beat: Beat, job: Job, rate: float) -> Iterator[tuple[str, dict[str, Any]]]:
    if beat.probe is not None and before.probe is None:
        yield (
            "probe.finished",
            {"verdict": str(beat.probe.get("verdict")), "reasons": list(reasons_of(beat.probe)[:5])},
        )
    if beat.notice is not None and before.notice is None:
        yield (
            "notice.received",
            {
                "source": beat.notice.source,
                "action": beat.notice.action,
                "seconds_left": beat.notice.seconds_left * rate,
            },
        )
    if beat.commit is not None and beat.commit != before.commit:
        data = asdict(beat.commit)
        yield (
            ("checkpoint.committed" if beat.commit.generation <= job.generation else "checkpoint.ahead"),
            data,
        )
    if beat.job.state != before.job.state and beat.job.state != JOB_NONE:
        data = {
            "generation": beat.job.generation,
            "exit_code": beat.job.exit_code,
            "saved": beat.job.saved,
            "error": beat.job.error,
        }
        yield (
            f"copy.{beat.job.state}",
            {name: value for name, value in data.items() if value not in (None, "")},
        )
    if beat.job.restore is not None and beat.job.restore != before.job.restore:
        yield from _restored(beat.job.restore)
    if beat.store_error != before.store_error:
        if beat.store_error:
            yield "store.failed", {"error": beat.store_error}
        else:
            yield "store.recovered", {}


def _restored(note: RestoreNote) -> Iterator[tuple[str, dict[str, Any]]]:
    if note.fell_back:
        yield "checkpoint.fell_back", {"skipped": list(note.fell_back), "to_seq": note.seq}
    if note.seq:
        yield "checkpoint.restored", {"seq": note.seq, "step": note.step, "manifest": note.manifest}


def _progress(node: Node, job: Job, beat: Beat, now_ms: int, rate: float) -> Progress | None:
    """Only the copy that may commit tells how far the job is; metrics lines come from rank 0."""
    note = beat.progress
    if note is None or node.rank != 0 or beat.job.generation != job.generation:
        return job.progress
    saved = job.spec.checkpoint
    epoch, epoch_since_ms = _epoch(job.progress, note.epoch, now_ms)
    return Progress(
        at_ms=now_ms,
        step=note.step,
        total_steps=note.total_steps,
        steps_per_s=_speed(note.steps_per_s, rate),
        epoch=epoch,
        loss=note.loss,
        metrics=dict(note.metrics),
        epoch_since_ms=epoch_since_ms,
        **take_readings(job.progress, note, beat.job.generation, saved.keep_best if saved else None),
    )


def _epoch(before: Progress | None, told: float | None, now_ms: int) -> tuple[float | None, int | None]:
    """The epoch, and since when: a copy that has just started has told none yet, and is still in the same one."""
    if told is None or not math.isfinite(told):
        return (before.epoch, before.epoch_since_ms) if before else (None, None)
    same = before is not None and before.epoch is not None and math.floor(before.epoch) == math.floor(told)
    return told, before.epoch_since_ms if before and same and before.epoch_since_ms else now_ms


def _speed(steps_per_s: float | None, rate: float) -> float | None:
    """On our clock. One that no training has would make what is left take longer than any number can tell."""
    if steps_per_s is None or not _SLOWEST <= steps_per_s / rate <= _FASTEST:
        return None
    return steps_per_s / rate


def _commit(job: Job, beat: Beat, now_ms: int) -> Commit | None:
    """Newer by generation, then seq. One above every generation we ever gave is not taken in: our rows are old
    (a restored database), and the event says so."""
    note = beat.commit
    if note is None or note.generation > job.generation:
        return job.commit
    if job.commit and (note.generation, note.seq) <= (job.commit.generation, job.commit.seq):
        return job.commit
    return Commit(
        generation=note.generation,
        seq=note.seq,
        manifest=note.manifest,
        manifest_sha256=note.manifest_sha256,
        step=note.step,
        bytes=note.bytes,
        at_ms=now_ms,
    )


def reasons_of(probe: Mapping[str, Any]) -> tuple[str, ...]:
    """Why a probe's verdict is what it is. The report comes from a node, so its shape is not believed."""
    reasons = probe.get("reasons")
    return tuple(str(reason) for reason in reasons) if isinstance(reasons, list | tuple) else ()


def _shaped(probe: dict[str, Any] | None) -> dict[str, Any] | None:
    """A report whose reasons are a list of texts: who reads the row later may believe that."""
    return probe and {**probe, "reasons": list(reasons_of(probe))}


def over(node: Node) -> bool:
    """Nothing is wanted of the node any more: it may be told to end."""
    return node.state in (NodeState.RELEASING, NodeState.GONE)
