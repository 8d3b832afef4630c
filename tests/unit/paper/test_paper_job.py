"""A job on paper keeps the daemon's rules of who trains, and loses and saves what a real one would."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paper_values import A100, GCP, HOUR, MINUTE, NOW, SPEC, SPOT

from broker.core.model import Cut, JobState, Purpose
from broker.decision.cost import remaining_work
from broker.paper.job import PaperJob, Reports, submitted
from broker.paper.telling import subject_of, trained_s

STEPS = 36_000  # ten hours at one step a second


def queued(**more) -> PaperJob:
    return submitted(SPEC, STEPS, {"H100-SXM5-80GB": 1.0}, NOW, **more)


def training(offer=SPOT, **more) -> PaperJob:
    """Trains since an hour; the landing took six minutes, the gap one of them."""
    job = queued(**more).launched(offer, 4_000_000, NOW + 5 * MINUTE, MINUTE)
    return job.until(NOW + 6 * MINUTE + HOUR)


def test_a_job_trains_from_the_end_of_its_start_and_finishes_to_the_millisecond() -> None:
    job = queued().launched(SPOT, 4_000_000, NOW + 5 * MINUTE, MINUTE)
    assert job.job.state is JobState.STARTING
    assert job.until(NOW + 5 * MINUTE).job.state is JobState.RUNNING
    assert job.until(NOW + 6 * MINUTE).done_steps == 0
    assert job.until(NOW + 6 * MINUTE + HOUR).done_steps == 3600
    done = job.until(NOW + 20 * HOUR)
    assert done.job.state is JobState.SUCCEEDED
    assert done.job.finished_at_ms == NOW + 6 * MINUTE + 10 * HOUR
    assert done.past[0].gone_at_ms == done.job.finished_at_ms
    assert trained_s(done) == 36_000


def test_an_interruption_costs_what_was_trained_since_the_last_commit() -> None:
    job = training().until(NOW + 6 * MINUTE + HOUR + 7 * MINUTE)
    assert job.lost(saved=False).done_steps == 3600
    assert job.lost(saved=True).done_steps == 3600 + 420
    gone = job.lost(saved=False)
    assert gone.job.state is JobState.RECOVERING
    assert subject_of(gone).lost == gone.past[0]
    assert gone.past[0].lost
    again = gone.launched(GCP, 3_000_000, gone.now_ms + 5 * MINUTE, MINUTE)
    assert again.landing.placement.purpose is Purpose.RECOVER
    assert again.until(again.now_ms + 6 * MINUTE + HOUR).done_steps == 2 * 3600


def test_a_job_without_a_checkpoint_starts_again() -> None:
    job = submitted(replace(SPEC, checkpoint=None), STEPS, {"H100-SXM5-80GB": 1.0}, NOW)
    job = job.launched(SPOT, 1, NOW, 0).until(NOW + HOUR)
    assert job.lost(saved=True).done_steps == 0
    assert subject_of(job).job.commit is None


def test_a_job_that_saves_when_asked_is_cut_when_the_new_place_is_ready() -> None:
    job = training(handles_term=True)
    moved = job.launched(GCP, 3_000_000, job.now_ms + 5 * MINUTE, MINUTE).until(job.now_ms + 5 * MINUTE)
    assert moved.active.offer == GCP
    assert moved.active.purpose is Purpose.MOVE
    assert (moved.past[0].cut, moved.past[0].gone_at_ms) == (Cut.FINAL, job.now_ms + 5 * MINUTE)
    assert moved.done_steps == 3600 + 300
    assert subject_of(moved).moved_at_ms == moved.now_ms
    assert subject_of(moved).moves_24h == 1


def test_any_other_job_is_cut_at_its_next_commit_and_redoes_nothing() -> None:
    job = training()
    moving = job.launched(GCP, 3_000_000, job.now_ms + 5 * MINUTE, MINUTE)
    assert moving.until(job.now_ms + 9 * MINUTE).active.offer == SPOT
    assert moving.until(job.now_ms + 9 * MINUTE).job.state is JobState.MOVING
    moved = moving.until(job.now_ms + 10 * MINUTE)
    assert (moved.active.offer, moved.done_steps) == (GCP, 3600 + 600)
    assert moved.past[0].cut is Cut.BOUNDARY
    assert moved.until(moved.now_ms + MINUTE + HOUR).done_steps == 2 * 3600 + 600


def test_a_landing_under_way_takes_the_job_that_is_lost_meanwhile() -> None:
    job = training()
    moving = job.launched(GCP, 3_000_000, job.now_ms + 5 * MINUTE, MINUTE).until(job.now_ms + 2 * MINUTE)
    gone = moving.lost(saved=False)
    assert gone.active is None
    assert gone.until(job.now_ms + 4 * MINUTE).active is None
    landed = gone.until(job.now_ms + 5 * MINUTE)
    assert (landed.active.offer, landed.done_steps) == (GCP, 3600)


def test_a_landing_that_fails_leaves_the_job_where_it_was() -> None:
    moving = training().launched(GCP, 3_000_000, NOW + 9 * HOUR, MINUTE)
    failed = moving.landing_failed("out of capacity")
    assert failed.active == moving.active
    assert failed.job.state is JobState.RUNNING
    assert failed.launched(GCP, 1, NOW + 9 * HOUR, 0).landing.placement.attempt == 3
    assert subject_of(queued().launched(SPOT, 1, NOW, 0).landing_failed("no capacity")).lost is None


def test_a_job_that_finishes_while_it_moves_needs_the_other_place_no_more() -> None:
    job = training().until(NOW + 6 * MINUTE + 10 * HOUR - MINUTE)
    done = job.launched(GCP, 1, job.now_ms + 5 * MINUTE, MINUTE).until(job.now_ms + HOUR)
    assert done.job.state is JobState.SUCCEEDED
    assert [p.offer for p in done.past] == [SPOT, GCP]
    assert done.past[1].gone_at_ms == done.job.finished_at_ms


def test_a_launch_that_is_ready_at_once_replaces_what_is_held() -> None:
    job = training(handles_term=True)
    moved = job.launched(GCP, 1, job.now_ms, 10 * MINUTE).until(job.now_ms)
    assert (moved.active.offer, moved.done_steps) == (GCP, 3600)
    assert moved.until(moved.now_ms + 10 * MINUTE).done_steps == 3600


def test_another_gpu_trains_in_proportion_unless_its_speed_is_told() -> None:
    slower = training(A100).done_steps
    assert 0.3 * 3600 < slower < 0.35 * 3600  # 264 against 791 TFLOPS
    told = submitted(SPEC, STEPS, {"H100-SXM5-80GB": 1.0, "A100-SXM4-80GB": 0.5}, NOW)
    assert told.launched(A100, 1, NOW, 0).until(NOW + HOUR).done_steps == 1800


def test_nothing_is_known_of_a_job_before_it_trains_unless_it_ran_before() -> None:
    assert not remaining_work(subject_of(queued()), NOW).known
    before = remaining_work(subject_of(queued(reports=Reports.FROM_THE_START)), NOW)
    assert (before.known, before.seconds) == (True, 36_000)
    silent = subject_of(training(reports=Reports.NOTHING))
    assert silent.job.progress is None
    assert silent.job.commit is not None
    assert not remaining_work(silent, NOW).known


def test_what_is_left_is_what_a_decision_computes_from_the_subject() -> None:
    job = training()
    assert remaining_work(subject_of(job), job.now_ms).seconds == 9 * 3600
    # Half an hour after the first reading was lost, the commit counts.
    gone = job.until(job.now_ms + 7 * MINUTE).lost(saved=False)
    assert remaining_work(subject_of(gone), gone.now_ms).seconds == 9 * 3600


def test_a_released_job_is_stopped_for_good_or_goes_on_later() -> None:
    job = training().released(saved=True, reason="paused")
    assert job.done_steps == 3600
    assert not job.past[0].lost
    stopped = training().stopped(JobState.FAILED, "loss is NaN")
    assert stopped.finished
    assert stopped.until(NOW + 99 * HOUR).done_steps == 3600


@given(
    st.lists(st.integers(0, 3 * HOUR), max_size=12),
    st.booleans(),
    st.integers(0, 9 * HOUR),
    st.integers(0, HOUR),
)
@settings(max_examples=150, deadline=None)
def test_asking_often_and_asking_once_give_the_same_job(
    moments: list[int], handles_term: bool, move_ms: int, lands_ms: int
) -> None:
    """State is arithmetic: the times at which anybody looks change nothing."""

    def play(looks: list[int]) -> PaperJob:
        job = queued(handles_term=handles_term).launched(SPOT, 1, NOW + 5 * MINUTE, MINUTE)
        for look in sorted(look for look in looks if look < move_ms):
            job = job.until(NOW + look)
        job = job.until(NOW + move_ms)
        if job.landing is None:
            job = job.launched(GCP, 1, job.now_ms + lands_ms, MINUTE)
        for look in sorted(look for look in looks if look >= move_ms):
            job = job.until(NOW + look)
        return job.until(NOW + 12 * HOUR)

    often, once = play(moments), play([])
    assert often.done_steps == pytest.approx(once.done_steps)
    assert often.past == once.past
    assert often.job == once.job
    assert trained_s(often) == trained_s(once)
