"""Beats: what is taken in, what is an event, what must not overwrite what."""

from dataclasses import replace

import pytest

from broker.core.gpu import GPUS
from broker.core.model import Commit, Job, Node
from broker.core.spec import GpuRequest, JobSpec, Resources
from broker.serve.beats import restarted, take_beat
from broker.wire import messages as wire
from broker.wire.messages import Beat, CommitNote, JobNote, Notice, ProgressNote, RestoreNote

NOW = 1_800_000_000_000
SPEC = JobSpec("train", "python train.py", Resources((GpuRequest("H100"),)))
JOB = Job("train-x", SPEC, "default", "ann", NOW, generation=2)
NODE = Node(
    "bk-" + "a" * 26 + "-0", "p1", "train-x", 0, "aws", "us-east-1", "use1-az6", "default", "ann", NOW
)
assert GPUS


def beat(seq=1, **more):
    return Beat(seq=seq, phase=more.pop("phase", wire.PHASE_RUNNING), **more)


def kinds(taken):
    return [event.kind for event in taken.events]


def test_an_older_beat_changes_nothing():
    first = take_beat(NODE, JOB, beat(5), NOW, 1)
    late = take_beat(first.node, first.job, beat(4, phase="idle"), NOW + 1000, 1)
    assert late.stale
    assert late.node is first.node
    again = take_beat(restarted(first.node), first.job, beat(1), NOW + 2000, 1)
    assert not again.stale
    assert again.node.seen_at_ms == NOW + 2000


def test_a_probe_report_survives_an_agent_that_forgets():
    report = {"verdict": "accept", "reasons": ["8 of 8 GPUs"]}
    first = take_beat(NODE, JOB, beat(1, probe=report), NOW, 1)
    assert first.probe == report
    assert kinds(first) == ["probe.finished"]
    then = take_beat(restarted(first.node), JOB, beat(1), NOW, 1)
    assert then.probe is None
    assert then.node.report["probe"] == report
    assert kinds(then) == []


def test_an_epoch_began_when_it_was_first_told_and_a_new_copy_that_tells_none_is_in_the_same():
    def told(job, epoch, at_ms):
        note = ProgressNote(step=1, epoch=epoch)
        taken = take_beat(NODE, job, beat(job=JobNote(wire.JOB_RUNNING, 2), progress=note), at_ms, 1)
        return taken.job, (taken.job.progress.epoch, taken.job.progress.epoch_since_ms)

    job, epoch = told(JOB, None, NOW)
    assert epoch == (None, None)
    job, epoch = told(job, 0.5, NOW + 1)
    assert epoch == (0.5, NOW + 1)
    job, epoch = told(job, 0.9, NOW + 2)
    assert epoch == (0.9, NOW + 1)
    job, epoch = told(job, None, NOW + 3)
    assert epoch == (0.9, NOW + 1)
    job, epoch = told(job, float("nan"), NOW + 4)
    assert epoch == (0.9, NOW + 1)
    job, epoch = told(job, 1.0, NOW + 5)
    assert epoch == (1.0, NOW + 5)
    job, epoch = told(job, 0.8, NOW + 6)  # resumed from a checkpoint of the epoch before
    assert epoch == (0.8, NOW + 6)


def test_readings_of_the_copy_that_may_commit_are_kept():
    job = JOB
    for count, loss in enumerate((3.0, 2.0, 2.0), start=1):
        note = ProgressNote(step=count, loss=loss, readings={"loss": count})
        job = take_beat(NODE, job, beat(job=JobNote(wire.JOB_RUNNING, 2), progress=note), NOW, 1).job
        job = take_beat(NODE, job, beat(job=JobNote(wire.JOB_RUNNING, 2), progress=note), NOW, 1).job
    assert job.progress.readings == {"loss": (3.0, 2.0, 2.0)}
    assert (job.progress.generation, job.progress.best) == (2, {"loss": 2.0})


def test_progress_is_told_on_our_clock_and_only_by_the_copy_that_may_commit():
    note = ProgressNote(step=100, total_steps=1000, steps_per_s=40.0, loss=0.5, metrics={"val_loss": 1.5})
    mine = take_beat(NODE, JOB, beat(job=JobNote(wire.JOB_RUNNING, 2), progress=note), NOW, 20)
    assert mine.job.progress is not None
    assert (mine.job.progress.step, mine.job.progress.steps_per_s) == (100, 2.0)
    assert mine.job.progress.metrics == {"val_loss": 1.5}
    cut_off = take_beat(NODE, JOB, beat(job=JobNote(wire.JOB_RUNNING, 1), progress=note), NOW, 20)
    assert cut_off.job.progress is None
    other_rank = take_beat(
        replace(NODE, rank=1), JOB, beat(job=JobNote(wire.JOB_RUNNING, 2), progress=note), NOW, 20
    )
    assert other_rank.job.progress is None


@pytest.mark.parametrize(
    ("generation", "seq", "taken"), [(2, 8, True), (2, 7, False), (1, 9, False), (3, 9, False)]
)
def test_a_commit_is_taken_in_when_newer_and_never_from_the_future(generation, seq, taken):
    job = replace(JOB, commit=Commit(2, 7, "m7", "s", 70, 1, NOW))
    after = take_beat(NODE, job, beat(commit=CommitNote(generation, seq, "m", "s", 80, 2)), NOW + 5, 1)
    assert (after.job.commit != job.commit) == taken
    assert kinds(after) == ["checkpoint.ahead" if generation > 2 else "checkpoint.committed"]


def test_each_change_is_one_event():
    first = take_beat(
        NODE,
        JOB,
        beat(
            1,
            notice=Notice("aws:instance-action", 100.0),
            job=JobNote(wire.JOB_RUNNING, 2, restore=RestoreNote(3, 30, "m3", ["m4: chunk missing"])),
            store_error="503",
        ),
        NOW,
        20,
    )
    assert kinds(first) == [
        "notice.received",
        "copy.running",
        "checkpoint.fell_back",
        "checkpoint.restored",
        "store.failed",
    ]
    assert first.events[0].data["seconds_left"] == 2000
    assert all(
        e.actor == "node" and e.node_token == NODE.token and e.project_id == "default" for e in first.events
    )
    same = take_beat(first.node, first.job, replace(_last(first), seq=2), NOW, 20)
    assert kinds(same) == []
    done = take_beat(same.node, same.job, beat(3, job=JobNote(wire.JOB_EXITED, 2, exit_code=1)), NOW, 20)
    assert [(e.kind, e.data.get("exit_code")) for e in done.events] == [
        ("copy.exited", 1),
        ("store.recovered", None),
    ]


def _last(taken):
    return wire.decode(Beat, taken.node.report)


@pytest.mark.parametrize("reasons", [None, 5, {"a": 1}, [{"b": 2}], "text"])
def test_reasons_of_a_probe_are_a_list_of_texts_whatever_the_node_sends(reasons):
    taken = take_beat(NODE, JOB, beat(1, probe={"verdict": "accept", "reasons": reasons}), NOW, 1)
    assert all(isinstance(reason, str) for reason in taken.node.report["probe"]["reasons"])
