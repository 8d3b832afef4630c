"""A budget that is used up: the job saves, gives its place up, waits, and goes on from where it was."""

from dataclasses import replace

from broker.core.model import DecisionKind, JobState, PlacementState, Purpose
from broker.jobs.submit import cancel
from broker.store.access import PAUSED, REPORT_ONLY

BASE = "policy: island\nmode: {mode}\nmigrate: never\nverify: {{on_inconclusive: accept}}\n"
RICH = BASE.format(mode="act")
BROKE = f"{RICH}budget: {{run_usd: 0.05}}\n"


def trains(island, job_id):
    return lambda: island.job(job_id).state == JobState.RUNNING and island.job(job_id).commit is not None


def training(island, policy=RICH):
    island.use_policy(policy)
    island.steps = 100_000
    job_id = island.submit().id
    island.until(trains(island, job_id))
    return job_id


def newest(island, job_id):
    with island.store.read() as tx:
        return tx.decisions(job_id, 1)[0]


def test_a_job_whose_money_is_spent_saves_and_waits_until_there_is_more(make_island):
    island = make_island()
    job_id = training(island)
    island.use_policy(BROKE)
    island.until(lambda: island.job(job_id).state == JobState.PAUSED)
    paused = island.job(job_id)
    assert paused.reason.startswith("pauses on aws/use1-az6 p5.4xlarge spot: budget.run_usd: 0.05: $0.")
    assert paused.active_placement_id is None
    decision = newest(island, job_id)
    assert (decision.kind, decision.acted) == (DecisionKind.PAUSE, True)
    (placement,) = island.placements()
    assert placement.state == PlacementState.DRAINING
    island.until(lambda: island.placements()[0].state == PlacementState.GONE)
    assert not island.billed()
    spent = island.paid_micro_usd()
    for _ in range(20):
        island.turn()
    assert island.job(job_id).state == JobState.PAUSED
    assert island.job(job_id).reason.startswith("stays paused: budget.run_usd")
    assert island.paid_micro_usd() == spent

    step = island.job(job_id).commit.step
    island.use_policy(f"{RICH}budget: {{run_usd: 5}}\n")
    island.until(lambda: island.job(job_id).state == JobState.STARTING)
    assert [p.purpose for p in island.placements()] == [Purpose.PLACE, Purpose.PLACE], (
        "nothing was lost, nothing is recovered"
    )
    island.until(lambda: trains(island, job_id)() and island.job(job_id).commit.step > step)
    island.until(lambda: island.active().resumed_step == step)


def test_a_policy_that_observes_records_the_pause_and_the_job_trains_on(make_island):
    island = make_island()
    job_id = training(island)
    island.use_policy(BASE.format(mode="observe") + "budget: {run_usd: 0.05}\n")
    for _ in range(10):
        island.turn()  # until its speed is known, which is told with the answer
    decision = newest(island, job_id)
    assert decision.kind == DecisionKind.PAUSE
    assert (decision.acted, decision.summary[:11]) == (False, "would pause")
    for _ in range(10):
        island.turn()
    assert island.job(job_id).state == JobState.RUNNING
    assert newest(island, job_id).id == decision.id, "the same answer is no news"


def test_the_month_is_of_all_jobs_of_the_policy(make_island):
    island = make_island()
    first = training(island)
    second = island.submit().id
    island.until(trains(island, second))
    island.use_policy(f"{RICH}budget: {{month_usd: 0.10}}\n")
    island.until(lambda: {island.job(j).state for j in (first, second)} == {JobState.PAUSED})
    third = island.submit().id
    for _ in range(5):
        island.turn()
    assert island.job(third).state == JobState.QUEUED
    assert "budget.month_usd: 0.1: $0." in island.job(third).reason
    month_s = 31 * 86_400  # whatever the day is, the next month has begun by then
    island.turn(seconds=month_s)
    island.until(lambda: island.job(third).state == JobState.STARTING)


def test_a_job_that_lost_its_place_when_the_money_was_spent_waits_as_paused(make_island):
    island = make_island()
    job_id = training(island)
    (machine,) = island.billed()
    island.use_policy(BROKE)
    with island.store.write() as tx:
        tx.set_switch(REPORT_ONLY, True, by="ada", reason="old rows")  # nothing may follow from these rows
    for _ in range(10):
        island.turn()
    assert newest(island, job_id).summary.endswith("(not done: report only, these rows may be old)")
    assert island.job(job_id).state == JobState.RUNNING
    island.world.interrupt(machine.id, 0)
    with island.store.write() as tx:
        tx.set_switch(REPORT_ONLY, False, by="ada")
    island.until(lambda: island.job(job_id).state == JobState.PAUSED)
    assert not [p for p in island.placements() if p.purpose == Purpose.RECOVER]


def test_the_switch_that_stops_spending_does_not_stop_a_pause(make_island):
    island = make_island()
    job_id = training(island)
    with island.store.write() as tx:
        tx.set_switch(PAUSED, True, by="ada")
    island.use_policy(BROKE)
    island.until(lambda: island.job(job_id).state == JobState.PAUSED)


def test_a_paused_job_is_cancelled_and_one_that_finishes_while_it_saves_has_finished(make_island):
    island = make_island()
    job_id = training(island)
    island.use_policy(BROKE)
    island.until(lambda: island.job(job_id).state == JobState.PAUSED)
    with island.store.write() as tx:
        cancel(tx, tx.job(job_id), "ann", island.clock.now_ms())
    island.until(lambda: island.job(job_id).state == JobState.CANCELLED)
    island.until(lambda: not island.billed())

    done = training(island, f"{RICH}# again\n")
    island.use_policy(BROKE)
    island.until(lambda: island.job(done).state == JobState.PAUSED, agents=False)
    island.steps = island.job(done).progress.step
    for agent in island.agents.values():
        if agent.beat.job.state == "running":
            finished = replace(agent.beat.job, state="exited", exit_code=0, saved=True)
            agent.beat = replace(agent.beat, phase="stopped", job=finished)
    island.until(lambda: island.job(done).state == JobState.SUCCEEDED)
