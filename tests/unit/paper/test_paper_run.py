"""The loop carries answers out as the world would: landings take their time, capacity goes, bills are by the cloud's rule.

A landing takes 5 minutes, the hand-over one more; polls come every 5 minutes.
"""

from dataclasses import replace
from itertools import pairwise

import pytest
from paper_values import GCP, HOUR, MINUTE, NOW, ON_DEMAND, SPEC, SPOT

from broker.core.errors import Place, PolicyError
from broker.core.model import DecisionKind, JobState, Purpose
from broker.core.offer import Market
from broker.core.size import GIB
from broker.core.spec import JobSpec
from broker.core.tariff import BillingRule, Sampling
from broker.core.yaml_text import parse
from broker.decision.subject import Caps, Timing
from broker.paper.job import PaperJob, Reports, submitted
from broker.paper.market import OfferSeries, SeriesMarket
from broker.paper.memo import Remembered, remembering
from broker.paper.outcome import Effect, Outcome, Step
from broker.paper.run import Terms, play
from broker.paper.series import price_micro_usd_h, read_series, stock
from broker.policy.conditions import compile_condition
from broker.policy.facts import Line, facts_for
from broker.policy.schema import Budget, Candidates, Limits, Migrate, Mode, Policy
from broker.policy.schema import Place as Placing

TIMING = Timing(boot_s=240, probe_s=60, restore_s=60, transfer_gib_s=1.0)
TERMS = Terms(timing=TIMING)
ACTING = Policy(
    "eager", "0" * 64, "eager.yaml", mode=Mode.ACT, migrate=Migrate(hold_s=600, min_saving_micro_usd=0)
)


def series(text: str, read):
    return read_series(parse(f'a: "{text}"', "p", PolicyError)["a"], read, NOW)


def market(prices: dict, left: dict | None = None) -> SeriesMarket:
    rows = {
        offer.key: OfferSeries(
            offer,
            series(text, price_micro_usd_h),
            series(left[offer], stock) if left and offer in left else None,
        )
        for offer, text in prices.items()
    }
    return SeriesMarket(rows, NOW, 5 * MINUTE)


def job(hours: float = 10, spec: JobSpec = SPEC, **more) -> PaperJob:
    return submitted(spec, round(hours * 3600), {"H100-SXM5-80GB": 1.0}, NOW, **more)


def run(
    prices: dict,
    left: dict | None = None,
    *,
    policy: Policy = ACTING,
    terms: Terms = TERMS,
    until_ms: int = NOW + 24 * HOUR,
    paper: PaperJob | None = None,
) -> Outcome:
    return play(paper or job(), policy, market(prices, left), terms, until_ms)


def answers(outcome: Outcome) -> list[tuple[int, str, str | None]]:
    """Minute, kind and target of each place and move."""
    return [
        ((s.at_ms - NOW) // MINUTE, s.decision.kind.value, s.to)
        for s in outcome.steps
        if s.decision.kind is not DecisionKind.STAY
    ]


def test_a_job_runs_where_it_is_cheapest_and_its_bill_is_landing_and_work() -> None:
    outcome = run({SPOT: "4.0", GCP: "3.0"})
    assert answers(outcome) == [(0, "place", GCP.key)]
    assert outcome.finished_ms == NOW + 6 * MINUTE + 10 * HOUR
    assert outcome.cost_micro_usd == pytest.approx(3_000_000 * 10.1)
    assert (outcome.launches, outcome.moves, outcome.interruptions) == (1, 0, 0)


def test_a_dear_place_is_left_once_the_hold_is_over_and_two_bills_overlap() -> None:
    outcome = run({SPOT: "3.0x58m 9.0", GCP: "4.0"}, paper=job(handles_term=True))
    # Seen at 60, wanted since then; both prices were seen again 10 minutes later.
    assert answers(outcome) == [(0, "place", SPOT.key), (70, "move", GCP.key)]
    first, second = outcome.job.past
    assert (first.gone_at_ms, second.created_at_ms) == (NOW + 75 * MINUTE, NOW + 70 * MINUTE)
    assert outcome.finished_ms == NOW + 6 * MINUTE + 10 * HOUR + MINUTE
    assert outcome.moves == 1
    hours_first, hours_second = (
        (58 * 3.0 + 17 * 9.0) / 60,
        (outcome.finished_ms - second.created_at_ms) / HOUR,
    )
    assert outcome.cost_micro_usd == pytest.approx((hours_first + hours_second * 4.0) * 1e6)


def test_a_job_that_does_not_save_when_asked_moves_at_its_next_commit() -> None:
    outcome = run({SPOT: "3.0x58m 9.0", GCP: "4.0"})
    # It trains since 6, commits every 10 minutes; ready at 75, cut at 76.
    assert outcome.job.past[0].gone_at_ms == NOW + 76 * MINUTE
    assert outcome.job.redone_s == 0


def test_capacity_that_goes_takes_the_job_with_it_and_it_starts_again_elsewhere() -> None:
    outcome = run({SPOT: "3.5", GCP: "4.0"}, {SPOT: "8x63m 0x10h"})
    assert answers(outcome) == [(0, "place", SPOT.key), (63, "place", GCP.key)]
    lost, again = outcome.job.past
    assert (lost.lost, again.purpose) == (True, Purpose.RECOVER)
    # The last commit was at 56: seven minutes are trained again.
    assert outcome.job.redone_s == 7 * 60
    assert outcome.finished_ms == NOW + 69 * MINUTE + 10 * HOUR - 50 * MINUTE
    assert outcome.interruptions == 1


def test_a_notice_that_works_loses_nothing() -> None:
    prices, left = {SPOT: "3.0", GCP: "4.0"}, {SPOT: "8x63m 0x10h"}
    assert run(prices, left, paper=job(handles_term=True)).job.redone_s == 0
    silent = run(prices, left, paper=job(handles_term=True), terms=replace(TERMS, notice=False))
    assert silent.job.redone_s == 7 * 60


def test_a_launch_without_capacity_is_refused_and_the_next_place_is_tried_at_once() -> None:
    outcome = run({SPOT: "3.5", GCP: "4.0"}, {SPOT: "0x20h"})
    assert answers(outcome) == [(0, "place", SPOT.key), (0, "place", GCP.key)]
    assert outcome.steps[0].effect is Effect.REFUSED
    assert (outcome.launches, outcome.refusals) == (1, 1)
    # An empty pool is not asked again for a quarter of an hour, and then the job wants to move there.
    later = run({SPOT: "1.0", GCP: "4.0"}, {SPOT: "0x1h 4"})
    moves = [s for s in later.steps if s.decision.kind is DecisionKind.MOVE]
    tried = [(s.at_ms - NOW) // MINUTE for s in moves if s.effect is Effect.REFUSED]
    assert all(b - a >= 15 for a, b in pairwise(tried))
    assert moves[-1].effect is Effect.LAUNCHED
    assert later.moves == 1


def test_a_gang_needs_all_its_nodes_at_once() -> None:
    gang = replace(SPEC, resources=replace(SPEC.resources, nodes=4))
    outcome = run({SPOT: "3.5", GCP: "4.0"}, {SPOT: "3", GCP: "4x2h 3"}, paper=job(spec=gang))
    assert outcome.steps[0].effect is Effect.REFUSED
    lost = outcome.job.past[1]
    assert (lost.offer, lost.lost, lost.gone_at_ms) == (GCP, True, NOW + 2 * HOUR)
    bills = [b for b in outcome.bills if b.segment.placement_id == lost.id]
    assert len(bills) == 4


def test_on_demand_is_not_taken_back_but_may_be_sold_out() -> None:
    outcome = run({ON_DEMAND: "9.0"}, {ON_DEMAND: "1x2h 0"})
    assert outcome.interruptions == 0
    assert outcome.finished_ms is not None
    sold_out = run({ON_DEMAND: "9.0"}, {ON_DEMAND: "0x2h 1"})
    assert sold_out.finished_ms == NOW + 2 * HOUR + 6 * MINUTE + 10 * HOUR


def test_a_landing_that_is_interrupted_comes_to_nothing_and_is_paid_for() -> None:
    outcome = run({SPOT: "3.0", GCP: "4.0"}, {SPOT: "4x3m 0"})
    assert answers(outcome)[:2] == [(0, "place", SPOT.key), (3, "place", GCP.key)]
    assert outcome.bills[0].paid_micro_usd == 3_000_000 * 3 // 60
    assert outcome.interruptions == 0


def test_silent_polls_move_nobody_and_do_not_keep_a_lost_job_waiting() -> None:
    quiet = run({SPOT: "3.0x55m 9.0", GCP: "4.0x30m _x10h 4.0"}, until_ms=NOW + 5 * HOUR)
    assert quiet.moves == 0
    recovered = run({SPOT: "3.0", GCP: "4.0x30m _x10h 4.0"}, {SPOT: "1x2h 0x20h"})
    placed = [s for s in recovered.steps if s.decision.kind is DecisionKind.PLACE]
    assert placed[1].decision.degraded_quotes
    assert placed[1].at_ms == NOW + 2 * HOUR


def test_an_observing_policy_places_and_recovers_and_only_records_moves() -> None:
    observing = replace(ACTING, mode=Mode.OBSERVE)
    outcome = run({SPOT: "3.0x58m 9.0", GCP: "4.0"}, {SPOT: "1x3h 0x20h"}, policy=observing)
    assert next(s.effect for s in outcome.steps if s.decision.kind is DecisionKind.MOVE) is Effect.RECORDED
    assert outcome.moves == 0
    assert [p.offer for p in outcome.job.past] == [SPOT, GCP]


def test_limits_and_caps_count_what_is_held() -> None:
    prices = {SPOT: "3.0x58m 9.0", GCP: "4.0"}
    capped = run(prices, terms=replace(TERMS, caps=Caps(max_micro_usd_per_hour=6_000_000)))
    assert capped.moves == 0
    limited = run(prices, policy=replace(ACTING, limits=Limits(max_micro_usd_per_hour=6_000_000)))
    assert limited.moves == 0
    flapping = {SPOT: "3.0x1h 9.0x3h 1.0", GCP: "4.0x3h 4.0"}
    assert run(flapping).moves == 2
    once = replace(ACTING, limits=Limits(migrations_per_job_per_day=1))
    assert run(flapping, policy=once).moves == 1


def test_a_budget_pauses_the_job_when_its_money_is_spent() -> None:
    bound = replace(ACTING, budget=Budget(run_micro_usd=6_000_000))
    outcome = run({SPOT: "3.0"}, policy=bound, paper=job(handles_term=True))
    assert answers(outcome)[:2] == [(0, "place", SPOT.key), (120, "pause", None)]
    assert outcome.finished_ms is None
    assert 6.0e6 <= outcome.cost_micro_usd < 6.3e6


def test_the_bill_follows_the_rule_of_its_cloud() -> None:
    def aws(_cloud: str, market: Market) -> BillingRule:
        return BillingRule(1, 60, 3600 if market is Market.SPOT else 0, Sampling.INSTANCE_HOUR)

    terms = replace(TERMS, rule_of=aws)
    hourly = run({SPOT: "3.0x90m 5.0"}, terms=terms, policy=replace(ACTING, migrate=Migrate(enabled=False)))
    # Two hours at 3, the rest of 10.1 at 5: an hour costs what the price was when it began.
    assert hourly.cost_micro_usd == pytest.approx(2 * 3e6 + 8.1 * 5e6)
    early = run({SPOT: "3.0", GCP: "4.0"}, {SPOT: "1x50m 0x20h"}, terms=terms)
    assert early.bills[0].paid_micro_usd == 0


def test_a_checkpoint_that_leaves_a_cloud_is_paid_for_and_takes_its_time() -> None:
    terms = replace(TERMS, egress=lambda a, b: 0 if b and a.cloud == b.cloud else 90_000)
    heavy = job(handles_term=True, checkpoint_bytes=120 * GIB)
    outcome = run({SPOT: "3.0x58m 9.0", GCP: "4.0"}, terms=terms, paper=heavy)
    assert outcome.egress_micro_usd == 120 * 90_000
    moved = outcome.job.past[1]
    assert moved.ready_at_ms - moved.created_at_ms == 5 * MINUTE + 120_000
    assert outcome.cost_micro_usd == sum(b.paid_micro_usd for b in outcome.bills) + 120 * 90_000


def test_a_job_that_is_not_done_in_time_is_billed_so_far() -> None:
    outcome = run({SPOT: "3.0"}, until_ms=NOW + 2 * HOUR)
    assert outcome.finished_ms is None
    assert outcome.ended_ms == NOW + 2 * HOUR
    assert outcome.cost_micro_usd == 6_000_000
    assert outcome.job.job.state is JobState.RUNNING


def test_the_share_of_refused_spot_launches_is_a_fact() -> None:
    at = Place("p.yaml", 1, 1)
    line = compile_condition("market.spot_failure_rate_1h > 0.9", at, facts_for(Line.SKIP_SPOT_WHEN))
    policy = replace(ACTING, place=Placing(skip_spot_when=(line,)))
    outcome = run({SPOT: "3.0", GCP: "3.5", ON_DEMAND: "9.0"}, {SPOT: "0x20h", GCP: "0x20h"}, policy=policy)
    # One refusal of one is all of them: the other spot pool is not even tried.
    assert answers(outcome)[:2] == [(0, "place", SPOT.key), (0, "place", ON_DEMAND.key)]


def test_the_same_run_twice_is_the_same_to_the_last_word() -> None:
    prices = {SPOT: "3.0x58m 9.0x2h 2.0", GCP: "4.0x5h 1.0", ON_DEMAND: "9.0"}
    left = {SPOT: "8x63m 0x1h 8", GCP: "4x4h 0x30m 4"}
    assert run(prices, left) == run(prices, left)


def test_remembered_conditions_change_no_answer_and_are_evaluated_once() -> None:
    at = Place("p.yaml", 1, 1)
    where = compile_condition("offer.price < 8.0", at, facts_for(Line.WHERE))
    policy = replace(ACTING, candidates=Candidates(where=(where,)))
    kept = remembering(policy).candidates.where[0]
    assert isinstance(kept, Remembered)
    assert (kept.text, kept.place) == (where.text, where.place)
    facts = {"offer.price": 7.0}
    assert kept.evaluate(facts) is kept.evaluate(facts) is True
    assert kept.evaluate({"offer.price": 9.0}) is False
    assert kept.evaluate({}) is None
    assert len(kept._answers) == 3


def test_every_answer_is_told_and_only_news_is_kept() -> None:
    told: list[Step] = []
    outcome = play(job(), ACTING, market({SPOT: "3.0"}), TERMS, NOW + 24 * HOUR, told.append)
    # From the hand-over at 5 minutes to the end, every 5 minutes; and the first one.
    assert len(told) == outcome.asked == 1 + 121
    assert len(outcome.steps) < 6


def test_a_job_may_train_already_when_the_run_begins() -> None:
    paper = job(reports=Reports.FROM_THE_START).launched(SPOT, 3_000_000, NOW, 0).until(NOW)
    outcome = run({SPOT: "3.0"}, paper=paper)
    assert answers(outcome) == []
    assert outcome.finished_ms == NOW + 10 * HOUR
