"""The shell around decisions: the cap on recoveries, and what becomes of an answer that comes too late."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from broker.core.model import JobState, PlacementState, Purpose
from broker.jobs.submit import cancel
from broker.migration.load import Load
from broker.policy.load import PolicySet
from broker.store.access import PAUSED
from tests.clocks import CountingIds

AZ6 = "aws/use1-az6/p5.4xlarge/spot"
GCP = "gcp/us-central1-a/a3-highgpu-1g/spot"

STAYING = "policy: island\nmode: act\nmigrate: never\nverify: {on_inconclusive: accept}\n"


@dataclass
class Interrupted(CountingIds):
    """Ids for a decider to whom something happens while it thinks: between what it has read and what it writes.

    Its first id is that of the answer.
    """

    meanwhile: Callable[[], None] | None

    def __post_init__(self) -> None:
        super().__init__(900)

    def base32(self, length: int) -> str:
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            happens()
        return super().base32(length)


def train(island, jobs):
    ids = [island.submit().id for _ in range(jobs)]
    island.until(lambda: all(island.job(i).state == JobState.RUNNING and island.job(i).commit for i in ids))
    return ids


def recoveries(island):
    return [p for p in island.placements() if p.purpose == Purpose.RECOVER]


def test_when_everything_falls_at_once_a_person_looks_before_more_is_rented(make_island):
    island = make_island(recoveries_per_hour=1)
    (island.folder / "policies" / "island.yaml").write_text(STAYING)
    assert island.policies.reload()
    island.steps = 100_000
    first, second = train(island, 2)
    for machine in island.billed():
        island.world.interrupt(machine.id, 0)
    island.until(lambda: bool(recoveries(island)))
    for _ in range(20):
        island.turn()  # whoever may be recovered is, and trains
    (recovered,) = recoveries(island)
    waiting = second if recovered.job_id == first else first
    assert island.job(recovered.job_id).active_placement_id == recovered.id
    assert island.job(waiting).state == JobState.RECOVERING
    assert island.job(waiting).reason.endswith("(not done: 1 recoveries in the last hour; the cap is 1)")
    new = island.submit().id
    island.until(lambda: island.job(new).state == JobState.RUNNING)  # a first placement is no recovery
    assert island.job(waiting).state == JobState.RECOVERING

    first_ms = recovered.created_at_ms
    island.until(lambda: len(recoveries(island)) == 2, seconds=100)
    again = next(p for p in recoveries(island) if p.job_id == waiting)
    assert 3_600_000 <= again.created_at_ms - first_ms < 3_600_000 + 200_000
    island.until(lambda: island.job(waiting).state == JobState.RUNNING)


def test_an_answer_is_dropped_when_the_job_was_cancelled_meanwhile(make_island):
    island = make_island()
    island.poll()
    job_id = island.submit().id

    def by_hand():
        with island.store.write() as tx:
            cancel(tx, tx.job(job_id), "ann", island.clock.now_ms())

    island.decider.ids = Interrupted(by_hand)
    assert island.decider.one_pass() == 0
    assert island.placements() == []
    assert island.job(job_id).state in (JobState.CANCELLING, JobState.CANCELLED)
    assert island.job(job_id).policy is None, "nothing of the answer is kept"
    with island.store.read() as tx:
        assert tx.decisions(job_id, 10) == []


def test_a_move_is_dropped_when_its_node_fell_meanwhile_and_the_next_pass_asks_again(make_island):
    island = make_island()
    island.steps = 100_000
    (job_id,) = train(island, 1)
    before = island.active()
    with island.store.write() as tx:
        tx.set_switch(PAUSED, True, by="test")  # the wish ripens, and nothing is done
    island.world.set_price(GCP, 2_400_000)
    island.world.set_price(AZ6, 5_700_000)
    island.until(lambda: "not done" in _newest(island, job_id).summary)
    with island.store.write() as tx:
        tx.set_switch(PAUSED, False, by="test")

    def falls():
        with island.store.write() as tx:
            tx.save(replace(tx.placement(before.id), state=PlacementState.RELEASING))
            tx.save(replace(tx.job(job_id), state=JobState.RECOVERING, active_placement_id=None))

    told = _newest(island, job_id)
    island.decider.ids = Interrupted(falls)
    assert island.decider.one_pass() == 0
    assert [p.id for p in island.placements()] == [before.id]
    assert _newest(island, job_id) == told
    assert island.decider.one_pass() == 1, "asked again, on what is true now"
    assert [p.purpose for p in island.placements()][1:] == [Purpose.RECOVER]


def _newest(island, job_id):
    with island.store.read() as tx:
        return tx.decisions(job_id, 1)[0]


ACTING = "mode: act\nverify: {on_inconclusive: accept}\n"
TIE = "job train is matched by island ({0}/island.yaml) and other ({0}/other.yaml) with the same precedence 0"


def tie(island):
    """A restart finds two files that tie: both are in force."""
    folder = island.folder / "policies"
    (folder / "island.yaml").write_text("policy: island\n" + ACTING)
    (folder / "other.yaml").write_text("policy: other\n" + ACTING)
    island.policies = PolicySet(folder)
    island.stop()
    island.start()
    return TIE.format(folder)


def test_a_tie_of_policies_stops_no_recovery_and_answers_who_asks_why(make_island):
    island = make_island()
    island.steps = 100_000
    (job_id,) = train(island, 1)
    told = tie(island)
    island.turn()
    assert told in _newest(island, job_id).summary, "also while nothing is wrong with the job"
    (machine,) = island.billed()
    island.world.interrupt(machine.id, 0)
    island.until(lambda: recoveries(island) and island.job(job_id).state == JobState.RUNNING)
    (recovered,) = recoveries(island)
    assert recovered.created_by == "policy:island"
    placed = next(answer for answer in _answers(island, job_id) if answer.id == recovered.decision_id)
    assert f"island goes on deciding: {told}; hint: raise the precedence" in placed.summary

    new = island.submit().id
    island.turn()
    assert island.job(new).state == JobState.QUEUED
    assert island.job(new).reason.startswith(told)
    (answer,) = _answers(island, new)
    assert answer.summary.startswith(told)
    island.turn()
    assert len(_answers(island, new)) == 1, "told once"

    (island.folder / "policies" / "other.yaml").unlink()
    assert island.policies.reload().removed == ("other",)
    island.until(lambda: island.job(new).state == JobState.RUNNING)


def test_a_job_whose_policy_is_gone_is_recovered_where_it_trained(make_island):
    island = make_island()
    island.steps = 100_000
    (job_id,) = train(island, 1)
    before = island.active().offer
    (island.folder / "policies" / "island.yaml").unlink()
    assert island.policies.reload().removed == ("island",)
    island.world.set_price(GCP, 100_000)  # cheap, and nobody has said that it may go there
    (machine,) = island.billed()
    island.world.interrupt(machine.id, 0)
    island.until(lambda: bool(recoveries(island)), agents=False)
    (recovered,) = recoveries(island)
    assert (recovered.offer.cloud, recovered.offer.region) == (before.cloud, before.region)
    assert "recovered where it trained, without a policy: no policy speaks for job train" in recovered.reason
    assert island.job(job_id).policy == "island", "which decides again once it is back"


def _answers(island, job_id):
    with island.store.read() as tx:
        return tx.decisions(job_id, 10)


def test_what_an_ended_job_still_rents_counts_in_its_policys_caps(make_island):
    island = make_island()
    first, second = train(island, 2)
    decider = island.decider
    policy = decider.policies.select(island.job(second).spec, island.job(second).project_id)

    def world():
        with island.store.read() as tx:
            return decider._world(Load.of(tx), policy, decider.snapshot())

    both = world().policy_burn_micro_usd_h
    with island.store.write() as tx:
        tx.save(replace(tx.job(first), state=JobState.SUCCEEDED, reason="finished"))
    assert world().policy_burn_micro_usd_h == both > 0, "its node is paid for until it is gone"
