"""What a budget does to answers: nothing new is rented, what trains is paused at a checkpoint, and each line is told."""

from dataclasses import replace
from typing import Any

import pytest
from situations import (
    HOUR,
    NOW,
    ON_DEMAND_AWS,
    OWNED,
    SPOT_AWS,
    SPOT_GCP,
    commit,
    dollars,
    job,
    placement,
    policy,
    progress,
    quote,
    running,
    spec,
    world,
)

from broker.core.model import Decision, DecisionKind, JobState
from broker.core.offer import Market
from broker.core.spec import Checkpoint
from broker.decision.plan import decide
from broker.decision.subject import Spent, Subject
from broker.policy.schema import Budget, Mode, Objective, Policy

CHEAP_ELSEWHERE = world(quote(ON_DEMAND_AWS, 5), quote(SPOT_AWS, 2), quote(SPOT_GCP, 1))
RUN = Budget(run_micro_usd=dollars(100))
MONTH = Budget(month_micro_usd=dollars(1000), spot_only_at_80_percent=True)


def spent(run: float = 0, epoch: float = 0, month: float = 0) -> Spent:
    return Spent(dollars(run), dollars(epoch), dollars(month))


def bound(budget: Budget, **changes: Any) -> Policy:
    return policy(budget=budget, **changes)


def answer(subject: Subject, a_policy: Policy, a_world: Any = CHEAP_ELSEWHERE) -> Decision:
    return decide(subject, a_policy, a_world, "d-1")[0]


def line(decision: Decision, start: str) -> tuple[bool | None, str]:
    (found,) = [(r.holds, r.detail) for r in decision.reasons if r.line.startswith(start)]
    return found


@pytest.mark.parametrize(
    ("budget", "paid", "told"),
    [
        (Budget(run_micro_usd=dollars(100)), spent(run=100), "budget.run_usd: 100: $100.00 spent by this job"),
        (Budget(epoch_micro_usd=dollars(2.5)), spent(epoch=2.5), "budget.epoch_usd: 2.5: $2.50 spent since epoch 3 began"),
        (Budget(month_micro_usd=dollars(9)), spent(month=12), "budget.month_usd: 9: $12.00 spent in 2026-09 under this policy"),
    ],
)  # fmt: skip
class TestUsedUp:
    def test_nothing_is_placed(self, budget: Budget, paid: Spent, told: str) -> None:
        waiting = Subject(job(progress=replace(progress(), epoch=3.7)), spent=paid)
        for mode in Mode:
            decision = answer(waiting, bound(budget, mode=mode))
            assert (decision.kind, decision.summary) == (DecisionKind.STAY, f"stays queued: {told}")

    def test_what_trains_is_paused(self, budget: Budget, paid: Spent, told: str) -> None:
        subject = running(handles_term=True, spent=paid)
        subject = replace(subject, job=replace(subject.job, progress=replace(progress(), epoch=3.7)))
        decision = answer(subject, bound(budget))
        assert (decision.kind, decision.acted, decision.target) == (DecisionKind.PAUSE, True, None)
        assert decision.summary == f"pauses on aws/use1-az6 p5.4xlarge on_demand: {told}"

    def test_a_policy_that_observes_records_the_pause(self, budget: Budget, paid: Spent, told: str) -> None:
        subject = running(handles_term=True, spent=paid)
        decision = answer(subject, bound(budget, mode=Mode.OBSERVE))
        assert (decision.kind, decision.acted) == (DecisionKind.PAUSE, False)
        assert decision.summary.startswith("would pause on aws/use1-az6")
        assert decision.reasons[-2].line == "mode: observe"


def test_below_its_bounds_a_budget_changes_nothing_and_is_told() -> None:
    paid = spent(run=99.99)
    without = answer(running(spent=paid), policy())
    decision = answer(running(spent=paid), bound(RUN))
    assert without.kind is DecisionKind.MOVE
    assert (decision.kind, decision.target) == (without.kind, without.target)
    assert line(decision, "budget.run_usd: 100") == (True, "$99.99 spent by this job")
    assert not [r for r in without.reasons if "budget" in r.line]


def test_what_is_not_known_stops_new_spending_and_nothing_else() -> None:
    waiting = answer(Subject(job()), bound(RUN))
    assert waiting.summary == "stays queued: budget.run_usd: 100: what was spent is not known"
    moving = answer(running(), bound(RUN))
    assert moving.kind is DecisionKind.STAY
    assert line(moving, "budget.run_usd") == (None, "what was spent is not known")
    assert answer(running(), policy()).kind is DecisionKind.MOVE


def test_a_job_that_lost_its_place_waits_without_one() -> None:
    lost = Subject(job(state=JobState.RECOVERING), lost=placement(SPOT_AWS), spent=spent(run=100))
    decision = answer(lost, bound(RUN))
    assert (decision.kind, decision.acted) == (DecisionKind.PAUSE, True)
    assert decision.summary.startswith("waits without a place: budget.run_usd: 100")
    observed = answer(lost, bound(RUN, mode=Mode.OBSERVE))
    assert observed.kind is DecisionKind.STAY, "nothing is rented; the row stays as it is"


def test_a_paused_job_says_so_and_is_placed_once_there_is_money_again() -> None:
    paused = Subject(job(state=JobState.PAUSED), spent=spent(run=100))
    assert answer(paused, bound(RUN)).summary.startswith("stays paused: budget.run_usd: 100: $100.00 spent")
    assert answer(paused, bound(Budget(run_micro_usd=dollars(101)))).kind is DecisionKind.PLACE


class TestNearlyUsedUp:
    def test_nothing_but_spot_and_owned_is_rented(self) -> None:
        waiting = Subject(job(), spent=spent(month=800))
        dear = world(quote(ON_DEMAND_AWS, 1), quote(SPOT_AWS, 2))
        decision = answer(waiting, bound(MONTH), dear)
        assert decision.target
        assert decision.target.offer == SPOT_AWS
        assert line(decision, "budget.at_80_percent") == (True, "80.0 % of the month's budget is spent")
        (refused,) = [a.refused for a in decision.alternatives if a.offer == ON_DEMAND_AWS]
        assert refused == "budget.at_80_percent: spot_only; 80.0 % of the month's budget is spent"
        owned = answer(waiting, bound(MONTH), world(quote(OWNED, 1), quote(SPOT_AWS, 2)))
        assert owned.target
        assert owned.target.offer.market is Market.OWNED
        assert answer(waiting, bound(MONTH), world(quote(ON_DEMAND_AWS, 1))).kind is DecisionKind.STAY

    def test_below_it_and_without_the_key_on_demand_may_be_rented(self) -> None:
        dear = world(quote(ON_DEMAND_AWS, 1))
        below = Subject(job(), spent=spent(month=799))
        assert answer(below, bound(MONTH), dear).kind is DecisionKind.PLACE
        above = Subject(job(), spent=spent(month=999))
        without = bound(replace(MONTH, spot_only_at_80_percent=False))
        assert answer(above, without, dear).kind is DecisionKind.PLACE

    def test_what_trains_on_demand_stays_until_spot_pays(self) -> None:
        subject = running(ON_DEMAND_AWS, spent=spent(month=900))
        stays = answer(subject, bound(MONTH), world(quote(ON_DEMAND_AWS, 5)))
        assert stays.kind is DecisionKind.STAY
        assert answer(subject, bound(MONTH)).kind is DecisionKind.MOVE

    def test_a_budget_goes_before_a_deadline(self) -> None:
        late = spec(deadline_ms=NOW + round(10.6 * HOUR))
        subject = running(SPOT_AWS, job={"spec": late})
        rescuing = world(quote(SPOT_AWS, 2), quote(ON_DEMAND_AWS, 5))
        with_money = replace(subject, spent=spent(month=799))
        by_deadline = bound(MONTH, objective=Objective.CHEAPEST_BY_DEADLINE)
        assert answer(with_money, by_deadline, rescuing).kind is DecisionKind.MOVE
        without = replace(subject, spent=spent(month=800))
        assert answer(without, by_deadline, rescuing).kind is DecisionKind.STAY


class TestCheckpointToPauseAt:
    @pytest.mark.parametrize(
        ("age_s", "kind"),
        [
            (0, DecisionKind.PAUSE),
            (360, DecisionKind.PAUSE),
            (361, DecisionKind.STAY),
            (1079, DecisionKind.STAY),
            (1080, DecisionKind.PAUSE),
            (9000, DecisionKind.PAUSE),
        ],
    )
    def test_a_job_that_does_not_save_when_asked_is_paused_after_a_commit(
        self, age_s: int, kind: DecisionKind
    ) -> None:
        """The interval is 720 s: half of it may be lost, and one and a half are too long to wait."""
        subject = running(handles_term=False, spent=spent(run=100))
        committed = replace(commit(), at_ms=NOW - age_s * 1000)
        decision = answer(replace(subject, job=replace(subject.job, commit=committed)), bound(RUN))
        assert decision.kind is kind
        if kind is DecisionKind.STAY:
            assert "a checkpoint to pause at: the last one is" in decision.summary

    def test_a_short_interval_does_not_keep_a_pause_from_ever_coming(self) -> None:
        often = spec(checkpoint=Checkpoint("ckpt", every_s=30))
        subject = running(handles_term=False, spent=spent(run=100), job={"spec": often})
        committed = replace(commit(), at_ms=NOW - 20_000)  # by each pass there has been another one
        assert (
            answer(replace(subject, job=replace(subject.job, commit=committed)), bound(RUN)).kind
            is DecisionKind.PAUSE
        )

    def test_nothing_is_waited_for_where_no_checkpoint_can_come(self) -> None:
        bare = running(handles_term=None, spent=spent(run=100), job={"spec": spec(checkpoint=None)})
        assert answer(bare, bound(RUN)).kind is DecisionKind.PAUSE

    @pytest.mark.parametrize(("age_s", "kind"), [(1079, DecisionKind.STAY), (1080, DecisionKind.PAUSE)])
    def test_the_first_one_is_waited_for_too(self, age_s: int, kind: DecisionKind) -> None:
        begun = placement(ON_DEMAND_AWS, active_at_ms=NOW - age_s * 1000)
        subject = running(handles_term=None, spent=spent(run=100), active=begun)
        assert answer(replace(subject, job=replace(subject.job, commit=None)), bound(RUN)).kind is kind


def test_a_move_under_way_is_waited_for() -> None:
    landing = running(handles_term=True, spent=spent(run=100), landing=(placement(SPOT_GCP),))
    decision = answer(landing, bound(RUN))
    assert decision.summary.startswith("stays on aws/use1-az6 p5.4xlarge on_demand: no landing under way")
