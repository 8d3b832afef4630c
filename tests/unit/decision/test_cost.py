"""Golden figures, worked out by hand in the comments. A start is 0.2 h, of which 0.1 h overlap; a stop costs 0.1 h."""

import math
from dataclasses import replace

import pytest
from situations import (
    A100,
    GIB,
    H100_X8,
    HOUR,
    NOW,
    ON_DEMAND_AWS,
    ON_DEMAND_GCP,
    SPOT_AWS,
    SPOT_GCP,
    TIMING,
    commit,
    dollars,
    job,
    placement,
    policy,
    progress,
    quote,
    resources,
    running,
    spec,
    world,
)

from broker.core.spec import DataSet, GpuRequest
from broker.decision.choose import survey
from broker.decision.cost import finish_from_start, finish_running, landing_time, remaining_work
from broker.decision.moving import saving
from broker.decision.situation import Situation
from broker.decision.subject import Subject


def test_on_demand_pays_the_work_and_one_start() -> None:
    # (10 h + 0.2 h) x $5
    cost = finish_from_start(dollars(5), 36_000, math.inf, 720, 360, 0)
    assert cost.micro_usd == dollars(51)
    assert cost.seconds == pytest.approx(10.2 * 3600)


def test_spot_pays_a_start_for_every_life_and_repeats_work_between_them() -> None:
    # Useful 6 - 0.2 - 0.1 = 5.7 h a life, so ten lives; (57 + 10 x 0.2 + 9 x 0.1) h x $2, and 10 x $3 of egress
    cost = finish_from_start(dollars(2), 57 * 3600, 6 * 3600, 720, 360, dollars(3))
    assert cost.micro_usd == dollars(59.9 * 2 + 30)


def test_a_short_job_on_spot_pays_one_start() -> None:
    # (1 + 0.2) h x $2
    assert finish_from_start(dollars(2), 3600, 6 * 3600, 720, 360, 0).micro_usd == dollars(2.4)


def test_finishing_where_it_runs_pays_no_first_start() -> None:
    # Ten lives: (57 + 9 x 0.3) h x $2
    assert finish_running(dollars(2), 57 * 3600, 6 * 3600, 720, 360).micro_usd == dollars(59.7 * 2)


def test_a_longer_life_never_costs_more() -> None:
    costs = [finish_from_start(dollars(2), 3e5, life * 3600, 720, 360, 5).micro_usd for life in range(1, 200)]
    assert costs == sorted(costs, reverse=True)


def test_a_move_counts_overlap_egress_and_work_done_again() -> None:
    subject = running(job={"spec": spec(data=(DataSet(50 * GIB),))})
    situation = Situation(
        subject, policy(), world(quote(ON_DEMAND_AWS, 5), quote(ON_DEMAND_GCP, 2), egress=dollars(0.02))
    )
    (candidate,) = survey(situation).candidates
    assert situation.here is not None
    gain = saving(situation, situation.here, candidate)
    # The old one trains and bills 0.1 h x $5. There: 10 h - 0.1 h trained meanwhile + 0.1 h again + 0.2 h start,
    # x $2. Egress 50 GiB x $0.02.
    assert candidate.cost.micro_usd == dollars(0.5 + 20.4 + 1)
    assert situation.here.cost.micro_usd == dollars(50)
    assert gain.micro_usd == dollars(28.1)
    assert gain.share == pytest.approx(0.562)
    # (0.2 h + 0.1 h) x $2 + $1, against $30 in 10 h
    assert gain.move_micro_usd == dollars(1.6)
    assert gain.payback_s == pytest.approx(1.6 / 3 * 3600)


def test_a_job_that_saves_on_request_repeats_nothing() -> None:
    quotes = quote(ON_DEMAND_AWS, 5), quote(ON_DEMAND_GCP, 2)
    careful = Situation(running(handles_term=True), policy(), world(*quotes))
    careless = Situation(running(handles_term=None), policy(), world(*quotes))
    difference = survey(careless).candidates[0].cost.micro_usd - survey(careful).candidates[0].cost.micro_usd
    assert difference == dollars(0.2)  # half a checkpoint interval, 0.1 h, x $2


def test_a_checkpoint_takes_time_to_fetch() -> None:
    time = landing_time(TIMING, job(commit=commit(gib=90)))
    assert (time.overlap_s, time.gap_s, time.start_up_s) == (450, 360, 810)


def test_a_gang_pays_for_every_node() -> None:
    gang = spec(resources=resources(nodes=4))
    situation = Situation(Subject(job(spec=gang)), policy(), world(quote(ON_DEMAND_AWS, 5)))
    alone = Situation(Subject(job()), policy(), world(quote(ON_DEMAND_AWS, 5)))
    assert survey(situation).candidates[0].cost.micro_usd == pytest.approx(
        4 * survey(alone).candidates[0].cost.micro_usd, abs=2
    )


class TestRemainingWork:
    def test_from_steps(self) -> None:
        work = remaining_work(running(hours_left=10), NOW)
        assert work.known
        assert work.seconds_on(ON_DEMAND_AWS, spec()) == 36_000

    def test_on_another_gpu_by_the_ratio_of_speeds(self) -> None:
        both = spec(resources=resources(gpus=(GpuRequest("H100"), GpuRequest("A100"))))
        work = remaining_work(running(job={"spec": both}), NOW)
        assert work.seconds_on(A100, both) == pytest.approx(36_000 * 791 / 264)

    def test_own_measurement_beats_the_ratio(self) -> None:
        subject = running(measured_steps_per_s={"A100-SXM4-80GB": 0.5})
        assert remaining_work(subject, NOW).seconds_on(A100, spec()) == 72_000

    def test_gpus_that_nobody_asked_for_do_not_speed_it_up(self) -> None:
        work = remaining_work(running(), NOW)
        assert work.seconds_on(H100_X8, spec()) == work.seconds_on(SPOT_AWS, spec())

    def test_after_a_loss_what_was_not_committed_is_done_again(self) -> None:
        subject = Subject(
            job(progress=progress(60_000, 72_000), commit=commit(step=36_000)), lost=placement(SPOT_AWS)
        )
        assert remaining_work(subject, NOW).seconds == 36_000

    def test_right_after_a_move_the_old_rate_is_not_taken_for_the_new(self) -> None:
        subject = running(SPOT_GCP)
        assert subject.active is not None
        moved = replace(subject, active=replace(subject.active, training_at_ms=NOW))
        assert not remaining_work(moved, NOW).known

    def test_unknown_is_as_long_again_as_it_has_run(self) -> None:
        subject = Subject(job(), active=placement(SPOT_AWS, training_at_ms=NOW - 9 * HOUR))
        work = remaining_work(subject, NOW)
        assert not work.known
        assert work.seconds == 9 * 3600
        assert "has not told" in work.detail
        assert remaining_work(replace(subject, trained_s=20 * 3600), NOW).seconds == 20 * 3600

    def test_unknown_is_an_hour_at_least(self) -> None:
        assert remaining_work(Subject(job()), NOW).seconds == 3600
