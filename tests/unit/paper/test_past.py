"""What rows tell of a job that has run, and what is owed where only one of both has done some work."""

from dataclasses import replace

import pytest
from paper_values import GCP, HOUR, MINUTE, NOW, ON_DEMAND, SPEC, SPOT

from broker.core.model import EndedBy, Job, JobState, Placement, PlacementState, Progress, Purpose, Segment
from broker.core.offer import Quote
from broker.paper.history import HistoryMarket, Recorded
from broker.paper.past import Ran, as_of, course_of, measured_timing
from broker.paper.run import Terms
from broker.paper.savings import Wish, acting, saving
from broker.policy.schema import Budget, Migrate, Mode, Policy
from broker.store.recorded import Look

POLICY = Policy("eager", "0" * 64, "e.yaml", migrate=Migrate(hold_s=600, min_saving_micro_usd=0))


def placement(attempt, offer, began, ended=None, **fields):
    """Landed in 5 minutes, trains one more later."""
    return Placement(
        f"j-p{attempt}",
        "j",
        attempt,
        offer,
        5_000_000,
        Purpose.PLACE if attempt == 1 else Purpose.RECOVER,
        "default",
        "ann",
        began,
        state=PlacementState.GONE if ended else PlacementState.ACTIVE,
        ready_at_ms=began + 5 * MINUTE,
        active_at_ms=began + 5 * MINUTE,
        training_at_ms=began + 6 * MINUTE,
        stopped_at_ms=ended,
        gone_at_ms=ended,
        **fields,
    )


def ran(*placements, state=JobState.RUNNING, ended=None, progress=None):
    row = Job("j", SPEC, "default", "ann", NOW, state, progress=progress, finished_at_ms=ended)
    segments = tuple(
        Segment(
            f"n{p.attempt}", p.id, "j", "default", p.offer, p.created_at_ms, p.gone_at_ms or ended,
            EndedBy.US if p.gone_at_ms or ended else None,
        )
        for p in placements
    )  # fmt: skip
    return Ran(row, placements, segments)


def test_between_two_readings_it_trained_evenly():
    one = placement(1, SPOT, NOW)
    told = Progress(NOW + 2 * HOUR + 6 * MINUTE, 7200, 100_000, 1.0)
    course = course_of(ran(one, progress=told), NOW + 4 * HOUR)
    assert course.in_steps
    assert course.pace.on(SPOT) == 1.0
    job = as_of(course, NOW + HOUR + 6 * MINUTE, "eager")
    assert job.done_steps == pytest.approx(3600)
    assert (job.total_steps, job.job.policy, job.active.created_at_ms) == (100_000, "eager", NOW)
    assert course.done_steps == pytest.approx(4 * 3600 - 360), "since its last reading it went on"
    assert as_of(course, NOW, "eager") is None, "it had no place yet"


def test_what_was_lost_is_not_done_and_the_next_place_begins_from_the_commit():
    lost = placement(1, SPOT, NOW, NOW + 66 * MINUTE, last_step=3600, lost=True)
    again = placement(2, GCP, NOW + 70 * MINUTE, resumed_step=3000, resumed_seq=5)
    told = Progress(NOW + 136 * MINUTE, 6600, 100_000, 1.0)
    course = course_of(ran(lost, again, progress=told), NOW + 136 * MINUTE)
    job = as_of(course, NOW + 106 * MINUTE, "eager")
    assert job.done_steps == pytest.approx(4800)
    assert (job.saved_steps, job.seq) == (3000, 5)
    assert [p.attempt for p in job.past] == [1]
    assert job.past[0].lost


def test_a_job_that_tells_no_steps_is_measured_in_seconds_and_its_end_is_its_work():
    one = placement(1, SPOT, NOW)
    done = ran(one, state=JobState.SUCCEEDED, ended=NOW + 126 * MINUTE)
    course = course_of(done, NOW + 10 * HOUR)
    assert (course.total_steps, course.finished, course.in_steps) == (7200, True, False)
    going = course_of(ran(one), NOW + 126 * MINUTE)
    assert going.total_steps is None
    job = as_of(going, NOW + 66 * MINUTE, "eager")
    assert job.done_steps == pytest.approx(3600)
    assert job.total_steps > 10**7, "as good as never done: nobody knows"
    assert job.progress is None, "and no decision may"


def test_without_a_minute_of_training_no_speed_is_told():
    told = Progress(NOW + 6 * MINUTE + 30_000, 3, 100, 1.0)
    assert course_of(ran(placement(1, SPOT, NOW), progress=told), NOW + 6 * MINUTE + 30_000) is None
    assert course_of(ran(), NOW + HOUR) is None


def test_a_landing_takes_as_long_as_the_middle_one_of_yours():
    assert measured_timing([], 240, 75, 60)[1] == 0
    assert measured_timing([], 240, 75, 60)[0].boot_s == 240
    slow = replace(placement(2, SPOT, NOW), ready_at_ms=NOW + HOUR, active_at_ms=NOW + HOUR)
    timing, count = measured_timing(
        [placement(1, SPOT, NOW), slow, replace(placement(3, SPOT, NOW), ready_at_ms=NOW + 7 * MINUTE)],
        240,
        75,
        60,
    )
    assert (count, timing.boot_s, timing.probe_s) == (3, 420.0, 0.0)


def market(until, *, gcp=2_000_000):
    """SPOT costs 10 dollars an hour and GCP two, from an hour on."""
    looks = [Look(at, at) for at in range(NOW, until + 1, 5 * MINUTE)]
    rows = [
        Recorded(SPOT, (Quote(SPOT, 10_000_000, NOW, NOW, "t"),), until),
        Recorded(ON_DEMAND, (Quote(ON_DEMAND, 20_000_000, NOW, NOW, "t"),), until),
        Recorded(GCP, (Quote(GCP, gcp, NOW, NOW, "t"),), until),
    ]
    return HistoryMarket(rows, {"aws": looks, "gcp": looks}, NOW + HOUR, until)


WISH = Wish(NOW + HOUR, GCP.key, NOW + 40 * MINUTE)


def test_a_job_that_was_cancelled_is_accounted_until_then():
    until = NOW + 10 * HOUR
    told = Progress(NOW + 186 * MINUTE, 3 * 3600, 100_000, 1.0)
    gone = placement(1, SPOT, NOW, NOW + 186 * MINUTE, last_step=3 * 3600)
    one = ran(gone, state=JobState.CANCELLED, ended=NOW + 186 * MINUTE, progress=told)
    found = saving(course_of(one, until), POLICY, WISH, market(until), Terms(), until)
    assert found.until_ms == NOW + 186 * MINUTE
    assert (found.paper.moves, found.paper.at, found.real.finished) == (1, GCP.key, False)
    # From the wish on: 126 minutes at 10 dollars, instead of some minutes of both and the rest at 2.
    assert found.real.paid_micro_usd == 21_000_000
    assert found.paper.paid_micro_usd < 7_000_000
    # While it moved it stood still for a minute, and lost what it had done since its last commit.
    assert 0 < found.paper.owed_micro_usd < 2_000_000 * 11 / 60
    assert found.saved_micro_usd == 21_000_000 - found.paper.cost_micro_usd


def test_who_is_behind_owes_the_rest_also_the_real_job():
    until = NOW + 5 * HOUR
    told = Progress(NOW + 66 * MINUTE, 3600, 30 * 3600, 1.0)
    # It was lost soon after, and waits: on paper it had moved by then.
    lost = placement(1, SPOT, NOW, NOW + 90 * MINUTE, last_step=3600, lost=True)
    one = ran(lost, state=JobState.RECOVERING, progress=told)
    found = saving(course_of(one, until), POLICY, WISH, market(until), Terms(), until)
    assert found.paper.owed_micro_usd == 0
    assert found.real.paid_micro_usd == 5_000_000
    # At 3600 steps in 84 minutes of training, and 10 dollars an hour.
    rest = found.paper.done_steps - 3600
    assert found.real.owed_micro_usd == pytest.approx(rest / (3600 / (84 * 60)) / 3600 * 10_000_000, rel=1e-6)


def test_a_policy_let_loose_acts_and_its_budget_is_left_out():
    let_loose = acting(replace(POLICY, budget=Budget(month_micro_usd=1)))
    assert (let_loose.mode, let_loose.budget) == (Mode.ACT, None)
