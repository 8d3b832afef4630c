"""Audits, backups and restored databases over real databases, a real folder store and the lab's world."""

import asyncio
import shutil
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from broker.core.audit import Act, Kind
from broker.core.errors import Refused, StoreError
from broker.core.model import JobState, NodeState, PlacementState
from broker.core.ports import LaunchRequest
from broker.jobs.submit import cancel
from broker.store.access import REPORT_ONLY
from broker.store.backup import back_up
from lab.faults import Fault, FaultKind
from tests.unit.migration.island import Island

AZ6 = "aws/use1-az6/p5.4xlarge/spot"
GCP = "gcp/us-central1-a/a3-highgpu-1g/spot"
DEAR = {"aws/*/p5.4xlarge/*": "6.00", AZ6: "3.00", "gcp/*/a3-highgpu-1g/*": "5.00"}


@pytest.fixture
def island():
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        made = Island(Path(folder), prices=DEAR)
        made.steps = 100_000
        yield made
        made.stop()


def running(island, **options):
    job = island.submit(**options)
    island.until(
        lambda: island.job(job.id).state == JobState.RUNNING and island.job(job.id).commit is not None
    )
    return job.id


def plant(island, letter, installation=None):
    """A machine with tags that somebody has copied from one of ours, where there is one."""
    offer = island.clouds["aws"].offer(AZ6)
    with island.store.read() as tx:
        seq = next((node.event_seq for node in tx.nodes()), 0)
    token = "bk-" + letter * 26 + "-0"
    return island.clouds["aws"].create(
        LaunchRequest(token, offer, "#!", installation or island.store.installation_id, seq)
    )


def audit(island):
    return asyncio.run(island.auditor.audit())


def apply(island, ids):
    return asyncio.run(island.auditor.apply(ids, "alan"))


def clear(island):
    return asyncio.run(island.auditor.clear("alan", "looked"))


def latched(island):
    with island.store.read() as tx:
        return tx.switch(REPORT_ONLY)


def living(island):
    return {machine.id for machine in island.billed()}


def generation(island, job_id):
    return island.checkpoints.head(job_id).generation


# -- the audit --------------------------------------------------------------------------------------------------------


def test_a_healthy_deployment_is_clean(island):
    running(island)
    found = audit(island)
    assert found.discrepancies == ()
    assert [(part.name, part.known, part.strangers) for part in found.asked] == [
        ("aws", 1, 0),
        ("gcp", 0, 0),
        ("store", 1, None),
    ]


def test_of_three_planted_machines_exactly_the_old_one_of_ours_is_ended(island):
    running(island)
    (trains,) = living(island)
    old, stranger = plant(island, "a"), plant(island, "b", installation="bi-somebody-else")
    island.turn(island.rules.collect_grace_s + 10)
    young = plant(island, "c")
    found = audit(island)
    assert [(d.subject, d.kind, d.act) for d in found.discrepancies] == [
        (old.token, Kind.UNKNOWN, Act.END),
        (young.token, Kind.UNKNOWN, Act.WAIT),
    ]
    assert found.asked[0].strangers == 1
    done = apply(island, [d.id for d in found.discrepancies])
    assert [d.subject for d in done.done] == [old.token]
    assert done.left == (f"aws/{young.provider_id}",)
    assert living(island) == {trains, young.provider_id, stranger.provider_id}
    with island.store.read() as tx:
        (event,) = [e for e in tx.events(limit=10_000) if e.kind == "node.unowned"]
    assert (event.actor, event.node_token) == ("alan", old.token)


def test_only_what_was_shown_is_done(island):
    shown, later = plant(island, "a"), plant(island, "b")
    island.turn(island.rules.collect_grace_s + 10)
    done = apply(island, [f"aws/{shown.provider_id}", "aws/i-nothing"])
    assert [d.subject for d in done.done] == [shown.token]
    assert done.left == ("aws/i-nothing",)
    assert living(island) == {later.provider_id}


def test_a_cloud_that_cannot_be_asked_is_unknown_and_nothing_of_it_is_denied(island):
    running(island)
    (machine,) = island.billed()
    island.world.faults.add(Fault("aws", "list", FaultKind.HTTP_500))
    island.world.interrupt(machine.id, 0)
    found = audit(island)
    assert found.discrepancies == ()
    assert [part.name for part in found.asked if part.unasked] == ["aws"]
    assert not found.complete


def test_a_row_that_its_cloud_denies(island):
    running(island)
    (machine,) = island.billed()
    island.clock.advance(island.rules.collect_grace_s + 10)
    island.world.interrupt(machine.id, 0)
    island.clock.advance(600)
    (found,) = audit(island).discrepancies
    assert (found.kind, found.act, found.provider_id) == (Kind.DENIED, Act.RECONCILE, machine.id)


def test_a_segment_without_an_end_is_closed_at_the_clouds_own_time(island):
    running(island)
    (machine,) = island.billed()
    island.clock.advance(island.rules.collect_grace_s + 10)
    island.world.interrupt(machine.id, 0)
    island.clock.advance(600)
    with island.store.write() as tx:
        (node,) = tx.nodes()
        tx.save(replace(node, state=NodeState.GONE))
    (found,) = audit(island).discrepancies
    assert (found.kind, found.act) == (Kind.UNENDED, Act.CLOSE)
    assert [d.id for d in apply(island, [found.id]).done] == [found.id]
    with island.store.read() as tx:
        (segment,) = tx.segments()
    (truth,) = [m for m in island.world.machines() if m.id == machine.id]
    assert segment.ended_at_ms == truth.stopping_s * 1000
    assert audit(island).discrepancies == ()


def test_checkpoints_of_a_job_that_no_row_knows_are_named_and_kept(island):
    running(island)
    island.checkpoints.fence("train-lost", 3)
    (found,) = audit(island).discrepancies
    assert (found.kind, found.act, found.subject) == (Kind.STRAY, Act.PERSON, "train-lost")
    assert apply(island, [found.id]).done == ()
    assert generation(island, "train-lost") == 3


def test_nothing_is_applied_while_report_only_is_latched(island):
    machine = plant(island, "a")
    island.turn(island.rules.collect_grace_s + 10)
    with island.store.write() as tx:
        tx.set_switch(REPORT_ONLY, True, reason="restored")
    found = audit(island)
    assert (found.report_only, len(found.discrepancies)) == ("restored", 1)
    with pytest.raises(Refused, match="resume --report-only"):
        apply(island, [found.discrepancies[0].id])
    island.sweep()
    assert living(island) == {machine.provider_id}
    clear(island)
    apply(island, [found.discrepancies[0].id])
    assert living(island) == set()


def test_the_last_search_is_remembered_and_its_failure_said(island):
    assert island.collector.unowned == 0
    machine = plant(island, "a")
    island.sweep()
    island.world.faults.add(Fault("aws", "list", FaultKind.HTTP_500))
    island.clock.advance(120)
    island.sweep()
    found = island.collector.last()
    assert [d.subject for d in found.discrepancies] == [machine.token]
    assert "listed 2m ago" in found.asked[0].unasked
    assert island.collector.unowned == 1


# -- a restored database ----------------------------------------------------------------------------------------------


def take(island, name="backup"):
    into = island.folder / name
    back_up(island.folder, into, island.clock)
    return into


def restore(island, copy):
    """As docs/how-to/backup.md says: stop, put the old folder aside, put the copy in its place, start."""
    island.stop()
    for file in island.folder.glob("*.db*"):
        file.unlink()
    for file in copy.glob("*.db"):
        shutil.copy2(file, island.folder / file.name)
    island.start()


def plain_copy(island, name):
    """What any other tool makes: the database of a moment, without the latch inside."""
    into = island.folder / name
    into.mkdir()
    for database in ("state.db", "history.db"):
        with (
            closing(sqlite3.connect(island.folder / database)) as here,
            closing(sqlite3.connect(into / database)) as there,
        ):
            here.backup(there)
    return into


def moved_on(island, copy_of):
    """A job trains; a copy is taken; then it moves, and another job comes. Returns the copy and both jobs."""
    first = running(island)
    copy = copy_of(island)
    island.world.set_price(GCP, 2_400_000)
    island.world.set_price(AZ6, 5_700_000)
    island.until(lambda: generation(island, first) == 2 and len(island.billed()) == 1)
    second = running(island)
    island.turn()
    assert not latched(island)
    return copy, first, second


@pytest.mark.parametrize(
    "copy_of", [take, lambda island: plain_copy(island, "copy")], ids=["backup", "plain"]
)
def test_a_restored_database_touches_nothing_until_an_operator_clears_it(island, copy_of):
    copy, first, second = moved_on(island, copy_of)
    island.clock.advance(3 * 3600)  # every deadline of the old rows is over
    machines, heads = living(island), {j: generation(island, j) for j in (first, second)}
    assert len(machines) == 2
    restore(island, copy)
    assert latched(island)
    before = {cloud: len(provider.calls) for cloud, provider in island.clouds.items()}
    for _ in range(10):
        island.turn(180)
        island.sweep()
    for cloud, provider in island.clouds.items():
        assert {"create", "delete"}.isdisjoint(provider.calls[before[cloud] :])
    assert living(island) == machines
    assert {j: generation(island, j) for j in (first, second)} == heads
    found = audit(island)
    kinds = {(d.kind, d.act) for d in found.discrepancies}
    assert {(Kind.NEWER, Act.LATCH), (Kind.HEAD_AHEAD, Act.LATCH), (Kind.STRAY, Act.PERSON)} <= kinds

    told = clear(island)
    assert (told.report_only, {d.kind for d in told.discrepancies if d.act == Act.END}) == (
        None,
        {Kind.UNKNOWN},
    )
    assert {(Kind.NEWER, Act.LATCH), (Kind.HEAD_AHEAD, Act.LATCH)}.isdisjoint(
        (d.kind, d.act) for d in told.discrepancies
    ), "it tells what is so now"
    assert not latched(island)
    island.sweep()
    assert not latched(island), "its rows have caught up: nothing is newer any more"
    island.until(lambda: generation(island, first) > heads[first] and island.active() is not None)
    assert not latched(island)
    assert island.job(first).generation == generation(island, first)
    island.steps = island.committed[first] + 500
    island.until(lambda: island.job(first).state == JobState.SUCCEEDED)
    for _ in range(5):
        island.turn(60)
        island.sweep()
    assert living(island) == set()
    assert all(p.state == PlacementState.GONE for p in island.placements())
    assert [(d.kind, d.subject) for d in audit(island).discrepancies] == [(Kind.STRAY, second)]


def test_a_job_that_was_queued_in_the_copy_and_trains_in_truth_is_not_started_twice(island):
    job = island.submit()
    copy = plain_copy(island, "copy")
    island.until(lambda: island.job(job.id).state == JobState.RUNNING)
    assert generation(island, job.id) == 1
    island.world.faults.add(Fault("aws", "list", FaultKind.HTTP_500, None))
    restore(island, copy)
    # The first placement of these rows would be granted generation 1, which the living copy holds already.
    assert latched(island)
    machines = living(island)
    for _ in range(5):
        island.turn()
    assert living(island) == machines


def test_a_copy_in_which_a_placement_was_landing_does_not_end_it(island):
    job = island.submit()
    island.until(lambda: any(p.state == PlacementState.PROBING for p in island.placements()))
    copy = take(island)
    island.until(lambda: generation_or_none(island, job.id) == 1 and island.job(job.id).commit is not None)
    machines = living(island)
    island.clock.advance(3 * 3600)  # far beyond the deadline of PROBING
    restore(island, copy)
    for _ in range(5):
        island.turn()
    (placement,) = island.placements()
    assert placement.state == PlacementState.PROBING, (
        "by the rows it is overdue; its agent would be told to leave"
    )
    clear(island)
    island.until(lambda: island.job(job.id).state == JobState.RUNNING)
    assert (generation(island, job.id), living(island)) == (2, machines)


def test_a_job_that_has_finished_since_can_be_cancelled_before_it_is_started_again(island):
    job_id = running(island)
    copy = take(island)
    island.steps = island.committed[job_id] + 100
    island.until(lambda: island.job(job_id).state == JobState.SUCCEEDED and not island.billed())
    restore(island, copy)
    assert island.job(job_id).state == JobState.RUNNING
    with island.store.write() as tx:
        cancel(tx, tx.job(job_id), "ada", island.clock.now_ms())
    island.turn()
    clear(island)
    island.until(lambda: island.job(job_id).state == JobState.CANCELLED)
    island.until(lambda: all(p.state == PlacementState.GONE for p in island.placements()))
    assert len(island.world.machines()) == 1, "nothing was rented for it again"


def generation_or_none(island, job_id):
    head = island.checkpoints.head(job_id)
    return head.generation if head else None


def test_the_latch_stays_when_the_heads_cannot_be_read(island):
    job = island.submit()
    island.checkpoints.fence(job.id, 2)
    asyncio.run(island.auditor.look_first())
    assert latched(island)
    head = next((island.folder / "ck").rglob("HEAD"))
    head.unlink()
    head.mkdir()
    with pytest.raises(StoreError, match="stays latched"):
        clear(island)
    assert latched(island)


def test_a_plain_restart_latches_nothing(island):
    running(island)
    for _ in range(3):
        island.stop()
        island.start()
        island.turn()
    assert not latched(island)
