"""The shell with real databases, a real folder store and the lab's world: whole lives of jobs, in virtual time."""

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from broker.core.model import JobState, NodeState, PlacementState, Purpose
from broker.core.ports import LaunchRequest
from broker.jobs.submit import cancel
from broker.migration.effects import Fence
from broker.store.access import PAUSED, REPORT_ONLY
from lab.faults import Fault, FaultKind
from tests.unit.migration.island import Island

AZ6 = "aws/use1-az6/p5.4xlarge/spot"
GCP = "gcp/us-central1-a/a3-highgpu-1g/spot"
DEAR = {"aws/*/p5.4xlarge/*": "6.00", AZ6: "3.00", "gcp/*/a3-highgpu-1g/*": "5.00"}


@pytest.fixture
def island():
    # fsync is what these tests would wait for; a RAM disk has none, where there is one.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        made = Island(Path(folder), prices=DEAR)
        yield made
        made.stop()


def running(island, **options):
    job = island.submit(**options)
    island.until(
        lambda: island.job(job.id).state == JobState.RUNNING and island.job(job.id).commit is not None
    )
    return job.id


def over(island, job_id):
    return island.job(job_id).state.final and not island.billed()


def test_a_job_lands_on_the_cheapest_trains_and_leaves_nothing(island):
    job_id = running(island)
    assert island.active().offer.key == AZ6
    island.until(lambda: over(island, job_id))
    assert island.job(job_id).state == JobState.SUCCEEDED
    island.turn(60)
    island.turn(60)
    assert all(p.state == PlacementState.GONE for p in island.placements())
    assert island.paid_micro_usd() == sum(line.cost_micro_usd for line in island.world.bill())


def test_a_price_jump_moves_it_and_the_old_node_trains_until_the_new_one_is_ready(island):
    job_id = running(island)
    island.world.set_price(GCP, 2_400_000)
    island.world.set_price(AZ6, 5_700_000)
    island.until(lambda: len(island.billed()) == 2)
    assert island.job(job_id).state in (JobState.MOVING, JobState.RUNNING)
    assert island.active().offer.key == AZ6
    island.until(lambda: island.active() is not None and island.active().offer.key.startswith("gcp/"))
    island.until(lambda: over(island, job_id))
    assert island.job(job_id).state == JobState.SUCCEEDED
    moved = [p for p in island.placements() if p.purpose == Purpose.MOVE]
    assert len(moved) == 1
    assert island.paid_micro_usd() == sum(line.cost_micro_usd for line in island.world.bill())


def test_after_a_move_the_job_is_not_taken_for_one_that_tells_nothing(island):
    job_id = running(island)
    island.world.set_price(GCP, 2_400_000)
    island.world.set_price(AZ6, 5_700_000)
    island.until(lambda: over(island, job_id))
    with island.store.read() as tx:
        moves = [d for d in tx.decisions(job_id, 200) if d.kind == "move"]
        asked = [
            r
            for d in tx.decisions(job_id, 200)
            if d.kind != "place"
            for r in d.reasons
            if r.line == "work left"
        ]
    assert len(moves) == 1
    assert asked[0].holds, "the newest answer knows what is left"
    assert all(r.holds for d in moves for r in d.reasons if r.line == "work left")
    assert all(p.steps_per_s for p in island.placements() if p.training_at_ms)


def test_nodes_that_the_probe_refuses_are_not_rented_without_end(island):
    path = island.folder / "policies" / "island.yaml"
    path.write_text(path.read_text().replace("on_inconclusive: accept", "on_inconclusive: reject"))
    island.policies.reload()
    job = island.submit()
    for _ in range(120):
        island.turn(60)
    rented = len(island.world.machines())
    assert 4 <= rented <= 7, "three tries, then ever longer pauses over two hours"
    assert "next try at" in island.job(job.id).reason
    assert "scripted" in island.job(job.id).reason


def test_a_jump_that_does_not_hold_moves_nothing(island):
    running(island)
    island.world.set_price(GCP, 2_400_000)
    island.world.set_price(AZ6, 5_700_000)
    island.turn(10)
    island.turn(10)
    island.world.set_price(AZ6, 3_000_000)
    island.world.set_price(GCP, 5_000_000)
    for _ in range(12):
        island.turn(10)
    assert len(island.placements()) == 1


def test_stale_prices_justify_no_move(island):
    job_id = running(island)
    island.steps = 100_000
    island.world.set_price(GCP, 2_400_000)
    island.world.set_price(AZ6, 5_700_000)
    island.poll()
    for _ in range(8):
        island.turn(200, poll=False)
    assert len(island.placements()) == 1
    with island.store.read() as tx:
        newest = tx.decisions(job_id, 1)[0]
    assert any("max_quote_age" in r.line and r.holds is False for r in newest.reasons)


def test_a_lost_reply_buys_one_machine(island):
    island.world.faults.add(Fault("aws", "create", FaultKind.REPLY_LOST))
    running(island)
    assert len(island.world.machines()) == 1


def test_a_lost_request_is_sent_again_with_the_same_token(island):
    island.world.faults.add(Fault("aws", "create", FaultKind.REQUEST_LOST))
    running(island)
    (machine,) = island.world.machines()
    with island.store.read() as tx:
        assert [n.token for n in tx.nodes()] == [machine.labels["token"]]
    assert island.clouds["aws"].calls.count("create") == 2


def test_an_empty_pool_is_left_alone_for_a_while(island):
    island.world.set_stock(AZ6, 0)
    job_id = running(island)
    assert island.active().offer.key == GCP.replace("-a/", "-b/") or island.active().offer.key == GCP
    refused = [p for p in island.placements() if p.offer.key == AZ6]
    assert len(refused) == 1
    assert "out of capacity" in refused[0].reason
    island.until(lambda: over(island, job_id))
    assert len([p for p in island.placements() if p.offer.key == AZ6]) == 1


def test_a_reclaimed_node_is_recovered_elsewhere_from_its_commit(island):
    job_id = running(island)
    step = island.committed[job_id]
    machine = island.billed()[0]
    island.world.interrupt(machine.id, 0)
    island.until(lambda: island.job(job_id).state == JobState.RECOVERING)
    island.until(
        lambda: island.job(job_id).state == JobState.RUNNING and island.job(job_id).progress.step > step
    )
    new = island.active()
    assert new.purpose == Purpose.RECOVER
    assert new.offer.key != AZ6, "its own pool is tried last"
    island.until(lambda: over(island, job_id))
    assert island.job(job_id).state == JobState.SUCCEEDED


def test_recovery_uses_old_prices_and_says_so(island):
    job_id = running(island)
    island.until(lambda: island.job(job_id).state == JobState.RUNNING)
    for _ in range(10):
        island.turn(100, poll=False)
        island.steps = 100_000
    island.world.interrupt(island.billed()[0].id, 0)
    island.until(lambda: any(p.purpose == Purpose.RECOVER for p in island.placements()), poll=False)
    with island.store.read() as tx:
        placed = next(d for d in tx.decisions(job_id, 50) if d.kind == "place")
    assert placed.degraded_quotes


def test_a_restart_in_the_middle_of_everything_changes_nothing(island):
    job_id = running(island)
    island.world.set_price(GCP, 2_400_000)
    island.world.set_price(AZ6, 5_700_000)
    for _ in range(25):
        island.stop()
        island.start()
        island.turn(20)
    island.until(lambda: over(island, job_id))
    assert island.job(job_id).state == JobState.SUCCEEDED
    tokens = [m.labels["token"] for m in island.world.machines()]
    assert len(tokens) == len(set(tokens)) == 2


def test_a_copy_that_was_cut_off_cannot_go_on_once_head_is_fenced(island):
    job_id = running(island)
    island.steps = 100_000
    (token,) = island.agents
    island.agents[token].silent = True
    island.until(lambda: island.job(job_id).state == JobState.RECOVERING, turns=400)
    island.until(lambda: island.job(job_id).state == JobState.RUNNING)
    assert island.checkpoints.head(job_id).generation == 2


def test_pause_creates_nothing_and_resume_goes_on(island):
    with island.store.write() as tx:
        tx.set_switch(PAUSED, True, by="ada", reason="invoice")
    job = island.submit()
    for _ in range(5):
        island.turn()
    assert island.world.machines() == []
    assert "paused by ada: invoice" in island.job(job.id).reason
    with island.store.write() as tx:
        tx.set_switch(PAUSED, False, by="ada")
    island.until(lambda: island.job(job.id).state == JobState.RUNNING)


def test_cancel_while_landing_and_while_moving(island):
    job = island.submit()
    island.turn()
    island.turn()
    assert island.billed()
    with island.store.write() as tx:
        cancel(tx, tx.job(job.id), "ada", island.clock.now_ms())
    island.until(lambda: over(island, job.id))
    assert island.job(job.id).state == JobState.CANCELLED


def test_nothing_moves_in_observe_mode_but_the_wish_is_kept(island):
    path = island.folder / "policies" / "island.yaml"
    path.write_text(path.read_text().replace("mode: act", "mode: observe"))
    island.policies.reload()
    job_id = running(island)
    island.steps = 100_000
    island.world.set_price(GCP, 2_400_000)
    island.world.set_price(AZ6, 5_700_000)
    for _ in range(20):
        island.turn()
    assert len(island.placements()) == 1
    with island.store.read() as tx:
        wish = next(d for d in tx.decisions(job_id, 50) if d.kind == "move")
    assert not wish.acted


def test_an_observer_beside_the_acting_policy_records_and_does_nothing(island):
    path = island.folder / "policies" / "island.yaml"
    eager = path.read_text().replace("policy: island", "policy: eager").replace("hold: 1m", "hold: 10s")
    (path.parent / "eager.yaml").write_text(eager.replace("mode: act", "mode: observe"))
    path.write_text(path.read_text().replace("hold: 1m", "hold: 1h"))
    island.policies.reload()
    job_id = running(island)
    island.steps = 100_000
    island.world.set_price(GCP, 2_400_000)
    island.world.set_price(AZ6, 5_700_000)
    for _ in range(10):
        island.turn()
    assert len(island.placements()) == 1
    assert island.job(job_id).policy == "island"
    with island.store.read() as tx:
        wishes = [d for d in tx.decisions(job_id, 50) if d.kind == "move"]
    assert {(d.policy, d.acted) for d in wishes} == {("eager", False)}


# -- the collector ----------------------------------------------------------------------------------------------------


def foreign(island, token="bk-" + "z" * 26 + "-0", installation=None, seq=0):
    offer = island.clouds["aws"].offer(AZ6)
    request = LaunchRequest(token, offer, "#!", installation or island.store.installation_id, seq)
    return island.clouds["aws"].create(request)


def test_an_orphan_is_ended_after_its_grace_and_not_before(island):
    running(island)
    orphan = foreign(island)
    island.sweep()
    assert len(island.billed()) == 2, "younger than any list lag"
    island.turn(island.rules.collect_grace_s + 10)
    island.sweep()
    assert orphan.provider_id not in [m.id for m in island.billed()]
    assert len(island.billed()) == 1, "the node that trains is nobody's orphan"


def test_another_installations_machine_is_none_of_ours(island):
    foreign(island, installation="bi-somebody-else")
    island.turn(1000)
    island.sweep()
    assert len(island.billed()) == 1


def test_a_machine_from_the_future_latches_report_only(island):
    running(island)
    foreign(island, seq=10_000)
    island.turn(1000)
    island.sweep()
    assert len(island.billed()) == 2, "a restored database must not kill"
    with island.store.read() as tx:
        assert tx.switch(REPORT_ONLY)
    before = len(island.clouds["aws"].calls)
    island.turn()
    assert "create" not in island.clouds["aws"].calls[before:]
    assert "delete" not in island.clouds["aws"].calls[before:]


def test_a_head_ahead_of_every_row_latches_report_only(island):
    job = island.submit()
    island.checkpoints.fence(job.id, 7)
    island.until(lambda: _switched(island))
    assert island.job(job.id).active_placement_id is None


def test_another_holder_of_the_same_generation_latches_report_only(island):
    """A copy of this database runs elsewhere: it has given the same number to a node of its own."""
    job = island.submit()
    island.checkpoints.fence(job.id, 1, "bk-of-the-copy-0")
    island.until(lambda: _switched(island))
    assert island.job(job.id).active_placement_id is None


def test_a_fence_that_hung_while_a_later_one_went_through_latches_nothing(island):
    job_id = running(island)
    with island.store.write() as tx:
        tx.save(replace(tx.job(job_id), generation=3))
    island.checkpoints.fence(job_id, 3, "bk-later-0")
    asyncio.run(island.reconciler._fence(Fence(job_id, island.active().id, 2)))
    assert not _switched(island)


def test_a_job_whose_head_is_gone_waits_for_a_person_and_does_not_start_from_nothing(island):
    job_id = running(island)
    head = head_file(island, job_id)
    kept = head.read_bytes()
    head.unlink()
    island.world.interrupt(island.billed()[0].id, 0)
    island.until(lambda: "HEAD: it is gone" in island.job(job_id).reason)
    assert island.job(job_id).state == JobState.RECOVERING
    assert not head.exists()
    step = island.committed[job_id]
    head.write_bytes(kept)
    island.until(lambda: island.active() is not None and island.active().resumed_step == step)


def test_an_older_head_that_was_put_back_latches_once_and_then_the_job_goes_on(island):
    job_id = running(island)
    head = head_file(island, job_id)
    old = head.read_bytes()
    island.world.interrupt(island.billed()[0].id, 0)
    island.until(lambda: island.job(job_id).generation == 2 and island.job(job_id).state == JobState.RUNNING)
    head.write_bytes(old)
    island.until(lambda: _switched(island))
    asyncio.run(island.auditor.clear("olga", "it was I"))
    island.until(lambda: island.job(job_id).state == JobState.RUNNING and island.job(job_id).generation == 4)
    assert not _switched(island)


def head_file(island, job_id):
    (found,) = (island.folder / "ck").rglob(f"*{job_id}/HEAD")
    return found


def _switched(island):
    with island.store.read() as tx:
        return tx.switch(REPORT_ONLY)


def test_a_machine_that_appears_after_its_row_was_given_up_is_collected(island):
    job = island.submit()
    island.turn()
    island.turn()
    (node,) = _nodes(island)
    machine = island.billed()[0]
    with island.store.write() as tx:
        tx.save(replace(node, state=NodeState.GONE))
        tx.save(replace(tx.placement(node.placement_id), state=PlacementState.GONE))
        cancel(tx, tx.job(job.id), "ada", island.clock.now_ms())
    island.turn(island.rules.collect_grace_s + 10)
    island.sweep()
    assert machine.id not in [m.id for m in island.billed()]


def _nodes(island):
    with island.store.read() as tx:
        return tx.nodes()
