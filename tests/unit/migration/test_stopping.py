"""A rule that ends a job: it saves, its nodes go, and its row says which line it was."""

import math

from broker.core.model import DecisionKind, JobState, PlacementState
from tests.unit.migration.test_pausing import BASE, newest, trains

GUARDED = (
    BASE + "stop: {{when: ['metrics.loss > 2.0 * metrics.best_loss'], nan_loss: true, hold: 3 readings}}\n"
)


def training(island, mode):
    island.use_policy(GUARDED.format(mode=mode))
    island.steps, island.loss = 100_000, 1.0
    job_id = island.submit().id
    island.until(trains(island, job_id))
    for _ in range(5):
        island.turn()
    assert island.job(job_id).state == JobState.RUNNING
    return job_id


def test_a_job_whose_loss_grows_is_ended_with_a_last_checkpoint(make_island):
    island = make_island()
    job_id = training(island, "act")
    island.loss = 2.5
    island.until(lambda: island.job(job_id).state != JobState.RUNNING, turns=10)
    decision = newest(island, job_id)
    assert (decision.kind, decision.acted) == (DecisionKind.STOP, True)
    assert [r.place for r in decision.reasons if r.holds][:1] == [f"{island.folder}/policies/island.yaml:5"]
    ending = island.job(job_id)
    assert ending.state == JobState.CANCELLING
    (placement,) = island.placements()
    island.until(lambda: island.placements()[0].state == PlacementState.GONE)
    over = island.job(job_id)
    assert over.state == JobState.CANCELLED
    assert over.reason == (
        "stopped by policy island: metrics.loss > 2.0 * metrics.best_loss: "
        "metrics.loss is 2.5; metrics.best_loss is 1.0; so it was at 3 of 3 readings"
    )
    assert island.placements()[0].drained
    assert over.commit.step >= placement.last_step
    assert not island.billed()


def test_a_policy_that_observes_says_what_it_would_have_ended(make_island):
    island = make_island()
    job_id = training(island, "observe")
    island.loss = math.nan
    for _ in range(8):
        island.turn()
    decision = newest(island, job_id)
    assert (
        decision.summary
        == "would stop the job: stop.nan_loss: true: loss is nan; so it was at 3 of 3 readings"
    )
    assert island.job(job_id).state == JobState.RUNNING


def test_what_a_lost_copy_told_ends_nothing_and_the_next_one_is_judged_by_its_own(make_island):
    island = make_island()
    job_id = training(island, "act")
    island.loss = math.nan
    for _ in range(2):
        island.turn()
    (machine,) = island.billed()
    island.world.interrupt(machine.id, 0)
    island.until(lambda: island.job(job_id).state == JobState.RECOVERING)
    island.loss = 1.0
    island.until(lambda: island.job(job_id).state == JobState.RUNNING and island.active().training_at_ms)
    for _ in range(5):
        island.turn()
    assert island.job(job_id).state == JobState.RUNNING
    assert all(math.isfinite(loss) for loss in island.job(job_id).progress.readings["loss"])
