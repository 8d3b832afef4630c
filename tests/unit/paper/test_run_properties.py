"""Whatever prices and capacity do, a run adds up."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paper_values import GCP, HOUR, MINUTE, NOW, ON_DEMAND, SPEC, SPOT

from broker.core.model import EndedBy, Purpose
from broker.decision.subject import Timing
from broker.paper.job import submitted
from broker.paper.market import OfferSeries, SeriesMarket
from broker.paper.outcome import Outcome
from broker.paper.run import Terms, play
from broker.paper.series import Track
from broker.paper.telling import trained_s
from broker.policy.schema import Migrate, Mode, Policy

ACTING = Policy(
    "p", "0" * 64, "p", mode=Mode.ACT, migrate=Migrate(hold_s=300, cooldown_s=600, min_saving_micro_usd=0)
)
TERMS = Terms(timing=Timing(boot_s=240, probe_s=60, restore_s=60))
WORK_S = 6 * 3600


def tracks(values: st.SearchStrategy) -> st.SearchStrategy[Track]:
    """Up to eight changes within a day."""
    minutes = st.lists(st.integers(1, 24 * 60), min_size=0, max_size=7, unique=True).map(sorted)

    def build(at: list[int]) -> st.SearchStrategy[Track]:
        times = (NOW, *(NOW + minute * MINUTE for minute in at))
        listed = st.lists(values, min_size=len(times), max_size=len(times))
        return listed.map(lambda found: Track(times, tuple(found)))

    return minutes.flatmap(build)


PRICES = tracks(st.one_of(st.none(), st.integers(1_000_000, 20_000_000)))
STOCK = tracks(st.integers(0, 2))


@st.composite
def outcomes(draw) -> tuple[SeriesMarket, Outcome]:
    offers = {
        SPOT.key: OfferSeries(SPOT, draw(PRICES), draw(STOCK)),
        GCP.key: OfferSeries(GCP, draw(PRICES), draw(STOCK)),
        ON_DEMAND.key: OfferSeries(ON_DEMAND, draw(PRICES), draw(STOCK)),
    }
    market = SeriesMarket(offers, NOW, draw(st.sampled_from([5 * MINUTE, 37 * MINUTE])))
    job = submitted(
        SPEC, WORK_S, {"H100-SXM5-80GB": 1.0}, NOW, handles_term=draw(st.sampled_from([None, True]))
    )
    return market, play(job, ACTING, market, TERMS, NOW + 30 * HOUR)


@given(outcomes())
@settings(max_examples=50, deadline=None)
def test_a_run_adds_up(played: tuple[SeriesMarket, Outcome]) -> None:
    market, outcome = played
    job, had = outcome.job, [p for p in outcome.job.placements if p.active_at_ms is not None]
    # What was trained was either kept or is told as done again.
    kept_s = WORK_S if outcome.finished_ms else job.done_steps
    assert trained_s(job) - job.redone_s == pytest.approx(kept_s, abs=0.01)
    # Nobody has the job twice, and it is never in two places.
    for before, after in pairwise(had):
        assert before.gone_at_ms <= after.active_at_ms
        assert after.generation == before.generation + 1
    # Spot is held only while its cloud has it; what it took back, it took back at that moment.
    for bill in outcome.bills:
        segment, ended_ms = bill.segment, bill.segment.ended_at_ms or outcome.ended_ms
        short_ms = market.next_shortage_ms(segment.offer, 1, segment.started_at_ms)
        if segment.offer.market.value == "spot" and short_ms is not None:
            assert ended_ms <= short_ms
        if segment.ended_by is EndedBy.CLOUD:
            assert ended_ms == short_ms
        assert market.stock(segment.offer, segment.started_at_ms) >= 1
        # And each is paid at true prices, from the launch to the end.
        assert bill.unpriced_s == 0
        prices = [q.price_micro_usd_h for q in market.points(segment.offer)]
        hours = (ended_ms - segment.started_at_ms) / HOUR
        assert (
            min(prices) * hours - 3e6 / 3600 * 20
            <= bill.paid_micro_usd
            <= max(prices) * (hours + 1 / 3600) + 1
        )
    assert outcome.launches + outcome.refusals == len(job.placements)
    assert outcome.moves <= sum(p.purpose is Purpose.MOVE for p in job.placements)
    # A start takes six minutes; no plan is faster.
    if outcome.finished_ms is not None:
        assert outcome.finished_ms >= NOW + 6 * MINUTE + WORK_S * 1000


@given(outcomes())
@settings(max_examples=20, deadline=None)
def test_nothing_is_done_on_a_price_that_no_poll_has_seen(played: tuple[SeriesMarket, Outcome]) -> None:
    market, outcome = played
    for step in outcome.steps:
        target = step.decision.target
        if target is not None:
            seen = market.quotes(step.at_ms)[target.offer.key]
            assert target.price_micro_usd_h == seen.price_micro_usd_h
            assert seen.observed_at_ms <= step.at_ms
