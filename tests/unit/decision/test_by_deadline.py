"""`cheapest_by_deadline` through `decide`: forty hours of work, ten of sixty hours gone, a start takes 0.2 h."""

from dataclasses import replace

import pytest
from situations import (
    HOUR,
    NOW,
    ON_DEMAND_AWS,
    ON_DEMAND_GCP,
    OWNED,
    SPOT_AWS,
    SPOT_GCP,
    commit,
    condition,
    job,
    migrate,
    placement,
    policy,
    progress,
    quote,
    spec,
    world,
)

from broker.core.model import Decision, DecisionKind, Job
from broker.core.offer import Market, Offer
from broker.decision.plan import decide
from broker.decision.subject import Subject, World
from broker.policy.facts import Line
from broker.policy.schema import Candidates, Objective, Place, Policy

BY_DEADLINE = policy(objective=Objective.CHEAPEST_BY_DEADLINE)
LINE = "objective: cheapest_by_deadline"
SPOT, ON_DEMAND = quote(SPOT_AWS, 2), quote(ON_DEMAND_AWS, 5)
NO_SPOT = world(SPOT, ON_DEMAND, empty_until_ms={SPOT_AWS.key: NOW + 60_000})


def a_job(done_h: float, left_h: float = 50) -> Job:
    step = round(done_h * 3600)
    return job(
        spec=spec(deadline_ms=NOW + round(left_h * HOUR)),
        progress=progress(step, 40 * 3600),
        commit=commit(step=step),
    )


def lost(done_h: float, left_h: float = 50) -> Subject:
    return Subject(a_job(done_h, left_h), lost=placement(SPOT_GCP))


def on(offer: Offer, done_h: float, left_h: float = 50) -> Subject:
    return Subject(a_job(done_h, left_h), active=placement(offer))


def answer(a_world: World, subject: Subject, a_policy: Policy = BY_DEADLINE) -> Decision:
    return decide(subject, a_policy, a_world, "d-1")[0]


def told(decision: Decision) -> str:
    return next(reason.detail for reason in decision.reasons if reason.line == LINE)


def offer_of(decision: Decision) -> Offer:
    assert decision.target is not None, decision.summary
    return decision.target.offer


class TestWaiting:
    def test_ahead_of_the_line_a_job_waits_for_spot_and_says_for_how_long(self) -> None:
        decision = answer(NO_SPOT, lost(20))
        assert decision.kind is DecisionKind.STAY
        assert decision.summary == (
            "stays queued: objective: cheapest_by_deadline: 20h of 1d16h are trained, 6h40m would do by now: "
            "waits for spot, for 20h at most"
        )

    def test_the_words_change_by_the_minute_and_not_by_the_second(self) -> None:
        told_at = [
            answer(
                world(ON_DEMAND, SPOT, now_ms=NOW + at_ms, empty_until_ms={SPOT_AWS.key: NOW + HOUR}),
                lost(20),
            ).summary
            for at_ms in (5_000, 55_000)
        ]
        assert told_at[0] == told_at[1]

    def test_behind_it_takes_on_demand(self) -> None:
        decision = answer(NO_SPOT, lost(6))
        assert offer_of(decision) == ON_DEMAND_AWS
        assert told(decision) == "no spot, and 6h of 1d16h are trained where it should be 6h40m by now"

    def test_a_job_that_has_trained_nothing_is_behind(self) -> None:
        assert offer_of(answer(NO_SPOT, lost(0))) == ON_DEMAND_AWS

    def test_spot_is_taken_when_it_is_there(self) -> None:
        decision = answer(world(SPOT, ON_DEMAND), lost(20))
        assert offer_of(decision) == SPOT_AWS
        assert told(decision) == "spot can be had, and 2d2h are left"

    def test_the_lost_pool_is_tried_before_on_demand_is_paid(self) -> None:
        subject = replace(lost(20), lost=placement(SPOT_AWS))
        assert offer_of(answer(world(SPOT, ON_DEMAND), subject)) == SPOT_AWS

    def test_the_net_ends_the_wait(self) -> None:
        # 20 h of work are 21 with their twentieth, and two starts: 21.4 h.
        assert answer(NO_SPOT, lost(20, left_h=21.5)).kind is DecisionKind.STAY
        decision = answer(NO_SPOT, lost(20, left_h=21.3))
        assert offer_of(decision) == ON_DEMAND_AWS
        assert told(decision).startswith("20h of work and 21h18m to the deadline")

    def test_without_a_deadline_nothing_waits(self) -> None:
        subject = lost(20)
        free = replace(subject, job=replace(subject.job, spec=spec()))
        assert offer_of(answer(NO_SPOT, free)) == ON_DEMAND_AWS
        assert offer_of(answer(NO_SPOT, subject, policy())) == ON_DEMAND_AWS


class TestNothingToWaitFor:
    """Ahead of the line, and yet on-demand is taken at once."""

    def test_no_spot_is_quoted(self) -> None:
        assert offer_of(answer(world(ON_DEMAND), lost(20))) == ON_DEMAND_AWS

    def test_the_policy_leaves_spot_out(self) -> None:
        only = replace(BY_DEADLINE, place=Place(order=(Market.ON_DEMAND,)))
        assert offer_of(answer(NO_SPOT, lost(20), only)) == ON_DEMAND_AWS

    def test_a_line_leaves_spot_out(self) -> None:
        line = condition("market.spot_failure_rate_1h >= 0.0", Line.SKIP_SPOT_WHEN)
        skipping = replace(BY_DEADLINE, place=Place(skip_spot_when=(line,)))
        assert offer_of(answer(world(SPOT, ON_DEMAND), lost(20), skipping)) == ON_DEMAND_AWS

    def test_the_policy_would_rather_have_another_market(self) -> None:
        assert offer_of(answer(world(quote(OWNED, 4), SPOT, ON_DEMAND), lost(20))) == OWNED
        first = replace(BY_DEADLINE, place=Place(order=(Market.ON_DEMAND, Market.SPOT)))
        assert offer_of(answer(world(SPOT, ON_DEMAND), lost(20), first)) == ON_DEMAND_AWS

    def test_nobody_knows_how_much_is_left(self) -> None:
        subject = lost(20)
        silent = replace(subject, job=replace(subject.job, progress=None), trained_s=20 * 3600.0)
        assert offer_of(answer(NO_SPOT, silent)) == ON_DEMAND_AWS

    def test_a_price_that_a_line_refuses_may_come_down(self) -> None:
        ceiling = (condition('offer.market != "spot" || offer.price < 1.5'),)
        waiting = replace(BY_DEADLINE, candidates=Candidates(where=ceiling))
        assert answer(world(SPOT, ON_DEMAND), lost(20), waiting).kind is DecisionKind.STAY


class TestBackToSpot:
    # After 10.4 of 60 hours the line is at 6.93 of 40.
    @pytest.mark.parametrize(("done_h", "kind"), [(6.9, DecisionKind.STAY), (7.0, DecisionKind.MOVE)])
    def test_hysteresis(self, done_h: float, kind: DecisionKind) -> None:
        decision = answer(world(SPOT, ON_DEMAND), on(ON_DEMAND_AWS, done_h))
        assert decision.kind is kind
        if kind is DecisionKind.MOVE:
            assert offer_of(decision) == SPOT_AWS
            assert told(decision) == "7h of 1d16h are trained; spot is worth its risk again from 6h56m on"
        else:
            assert decision.summary == (
                "stays on aws/use1-az6 p5.4xlarge on_demand: objective: cheapest_by_deadline: "
                "6h54m of 1d16h are trained; spot is worth its risk again from 6h56m on"
            )

    def test_migrate_vetoes_it(self) -> None:
        strict = replace(migrate(min_saving=0.9), objective=Objective.CHEAPEST_BY_DEADLINE)
        decision = answer(world(SPOT, ON_DEMAND), on(ON_DEMAND_AWS, 20), strict)
        assert decision.kind is DecisionKind.STAY
        assert "migrate.min_saving: 90%" in decision.summary

    def test_catching_up_a_cheaper_steady_place_is_still_a_move(self) -> None:
        decision = answer(world(quote(SPOT_AWS, 1), ON_DEMAND, quote(ON_DEMAND_GCP, 3)), on(ON_DEMAND_AWS, 6))
        assert decision.kind is DecisionKind.MOVE
        assert offer_of(decision) == ON_DEMAND_GCP
        assert not [reason for reason in decision.reasons if reason.line == LINE]


class TestOnSpot:
    def test_behind_the_line_spot_that_lasts_is_kept(self) -> None:
        decision = answer(world(SPOT, ON_DEMAND), on(SPOT_AWS, 1))
        assert decision.kind is DecisionKind.STAY

    def test_a_dear_place_is_left_when_migrate_says_so(self) -> None:
        decision = answer(world(SPOT, quote(SPOT_GCP, 1)), on(SPOT_AWS, 20))
        assert decision.kind is DecisionKind.MOVE
        assert offer_of(decision) == SPOT_GCP

    def test_the_net_takes_a_steady_place_while_one_start_still_fits(self) -> None:
        # 20 h of work are 21 with their twentieth, and one start: 21.2 h.
        assert answer(world(SPOT, ON_DEMAND), on(SPOT_AWS, 20, left_h=21.3)).kind is DecisionKind.STAY
        decision = answer(world(SPOT, ON_DEMAND), on(SPOT_AWS, 20, left_h=21.1))
        assert decision.kind is DecisionKind.MOVE
        assert offer_of(decision) == ON_DEMAND_AWS


def test_a_deadline_before_the_submission_takes_what_is_soonest() -> None:
    decision = answer(world(SPOT, ON_DEMAND), lost(20, left_h=-11))
    assert decision.kind is DecisionKind.PLACE
    assert answer(world(SPOT, ON_DEMAND), on(ON_DEMAND_AWS, 20, left_h=-11)).summary


def test_a_job_with_nothing_left_to_train_is_placed_to_end() -> None:
    assert answer(NO_SPOT, lost(40)).kind is DecisionKind.PLACE
