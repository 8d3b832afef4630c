"""The ledger: golden bills, and that lines add up to them."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.model import EndedBy, Segment
from broker.core.money import MS_PER_HOUR
from broker.core.offer import Market, Offer, Quote
from broker.core.tariff import BillingRule, Sampling
from broker.jobs.ledger import Bill, Why, bill, ledger

HOUR = 3_600_000
OFFER = Offer("aws", "us-east-1", "use1-az6", "p5.48xlarge", Market.SPOT, "H100-SXM5-80GB", 8)
AWS_SPOT = BillingRule(unit_s=1, minimum_s=60, free_if_interrupted_within_s=3600)
AWS_ON_DEMAND = BillingRule(unit_s=1, minimum_s=60)
LAMBDA = BillingRule(unit_s=60, minimum_s=60)
START = 1_780_000_000_000


def segment(ran_ms: int | None, ended_by: EndedBy | None = EndedBy.US, offer: Offer = OFFER) -> Segment:
    ended_at_ms = None if ran_ms is None else START + ran_ms
    return Segment("bk-a-0", "p1", "j1", "default", offer, START, ended_at_ms, ended_by)


def point(at_ms: int, usd_h: str, observed_at_ms: int | None = None) -> Quote:
    return Quote(OFFER, int(Fraction(usd_h) * 1_000_000), at_ms, observed_at_ms or at_ms, "aws:spot_history")


def priced(usd_h: str, ran_ms: int | None, rule: BillingRule, ended_by: EndedBy | None = EndedBy.US) -> Bill:
    return bill(segment(ran_ms, ended_by), [point(START - HOUR, usd_h)], rule, START + 10 * HOUR)


@pytest.mark.parametrize(
    ("ran_s", "ended_by", "rule", "billed_s", "why"),
    [
        (3599, EndedBy.CLOUD, AWS_SPOT, 0, Why.FREE),
        (3599, EndedBy.US, AWS_SPOT, 3599, Why.METERED),
        (3599, EndedBy.NODE, AWS_SPOT, 3599, Why.METERED),
        (3600, EndedBy.CLOUD, AWS_SPOT, 3600, Why.METERED),
        (40, EndedBy.US, AWS_ON_DEMAND, 60, Why.MINIMUM),
        (40, EndedBy.CLOUD, AWS_ON_DEMAND, 60, Why.MINIMUM),
        (60, EndedBy.US, AWS_ON_DEMAND, 60, Why.METERED),
        (61, EndedBy.US, LAMBDA, 120, Why.METERED),
        (0, EndedBy.US, AWS_ON_DEMAND, 60, Why.MINIMUM),
    ],
)
def test_billed_time(ran_s: int, ended_by: EndedBy, rule: BillingRule, billed_s: int, why: Why):
    paid = priced("3.6", ran_s * 1000, rule, ended_by)
    assert (paid.billed_s, paid.why) == (billed_s, why)
    assert paid.paid_micro_usd == billed_s * 1000  # $3.6 an hour is a thousand micro-dollars a second


def test_a_started_unit_is_billed_whole():
    assert priced("3.6", 61_001, AWS_ON_DEMAND).billed_s == 62


def test_an_open_segment_is_counted_until_now():
    paid = bill(segment(None, None), [point(START, "3.6")], AWS_SPOT, START + HOUR)
    assert (paid.billed_s, paid.paid_micro_usd) == (3600, 3_600_000)


@pytest.mark.parametrize(
    ("usd_h", "ran_ms", "paid_micro_usd"),
    [("98.32", 60_000, 1_638_667), ("0.000001", 71 * HOUR, 71), ("98.32", 1, 1_638_667)],
)
def test_one_rounding_half_even(usd_h: str, ran_ms: int, paid_micro_usd: int):
    assert priced(usd_h, ran_ms, AWS_ON_DEMAND).paid_micro_usd == paid_micro_usd


def test_each_price_from_the_moment_it_took_effect():
    points = [point(START - HOUR, "10"), point(START + HOUR, "20"), point(START + 3 * HOUR, "99")]
    paid = bill(segment(2 * HOUR), points, AWS_SPOT, START + 9 * HOUR)
    assert [(line.price_micro_usd_h, line.paid_micro_usd) for line in paid.lines] == [
        (10_000_000, 10_000_000),
        (20_000_000, 20_000_000),
    ]
    assert (paid.lines[0].to_ms, paid.paid_micro_usd) == (START + HOUR, 30_000_000)


BY_THE_HOUR = replace(AWS_SPOT, sampling=Sampling.INSTANCE_HOUR)


@pytest.mark.parametrize(
    ("changes", "ran_ms", "lines"),
    [
        # The price at the start of an hour holds for that hour, whatever comes within it.
        ([(-HOUR, "10"), (HOUR // 2, "20")], HOUR, [(0, HOUR, 10)]),
        ([(-HOUR, "10"), (HOUR // 2, "20")], 2 * HOUR, [(0, HOUR, 10), (HOUR, 2 * HOUR, 20)]),
        ([(-HOUR, "10"), (HOUR, "20")], HOUR + 1000, [(0, HOUR, 10), (HOUR, HOUR + 1000, 20)]),
        # A spike within an hour is never charged.
        (
            [(-HOUR, "10"), (HOUR // 4, "99"), (HOUR // 2, "10")],
            2 * HOUR,
            [(0, HOUR, 10), (HOUR, 2 * HOUR, 10)],
        ),
        # A part of an hour is billed in part.
        ([(-HOUR, "10")], HOUR // 4, [(0, HOUR // 4, 10)]),
        # Hours that began before the first price that we know are not guessed.
        ([(HOUR // 2, "10")], 2 * HOUR, [(HOUR, 2 * HOUR, 10)]),
    ],
)
def test_a_price_sampled_by_the_hour(
    changes: list[tuple[int, str]], ran_ms: int, lines: list[tuple[int, int, int]]
):
    points = [point(START + at_ms, usd) for at_ms, usd in changes]
    paid = bill(segment(ran_ms), points, BY_THE_HOUR, START + 9 * HOUR)
    shown = [(x.from_ms - START, x.to_ms - START, x.price_micro_usd_h // 1_000_000) for x in paid.lines]
    assert shown == lines
    assert paid.paid_micro_usd == round(sum(Fraction((b - a) * usd * 10**6, HOUR) for a, b, usd in lines))
    assert paid.unpriced_s == paid.billed_s - sum(b - a for a, b, _ in lines) / 1000


def test_a_correction_holds_for_an_hour_too():
    points = [point(START, "10"), point(START, "12", observed_at_ms=START + HOUR)]
    assert bill(segment(HOUR), points, BY_THE_HOUR, START + 9 * HOUR).paid_micro_usd == 12_000_000


def test_a_correction_replaces_what_it_corrects():
    points = [point(START, "10"), point(START, "12", observed_at_ms=START + HOUR)]
    assert bill(segment(HOUR), points, AWS_SPOT, START + 9 * HOUR).paid_micro_usd == 12_000_000


def test_a_price_that_arrives_late_changes_the_next_answer():
    before = bill(segment(2 * HOUR), [point(START, "10")], AWS_SPOT, START + 9 * HOUR)
    late = [point(START, "10"), point(START + HOUR, "4", observed_at_ms=START + 8 * HOUR)]
    assert (
        before.paid_micro_usd,
        bill(segment(2 * HOUR), late, AWS_SPOT, START + 9 * HOUR).paid_micro_usd,
    ) == (
        20_000_000,
        14_000_000,
    )


def test_time_without_a_price_is_said_and_not_guessed():
    paid = bill(segment(2 * HOUR), [point(START + HOUR, "10")], AWS_SPOT, START + 9 * HOUR)
    assert (paid.paid_micro_usd, paid.unpriced_s) == (10_000_000, 3600.0)
    nothing = bill(segment(HOUR), [], AWS_SPOT, START + 9 * HOUR)
    assert (nothing.paid_micro_usd, nothing.unpriced_s) == (0, 3600.0)


def test_every_segment_has_its_own_offer_and_rule():
    other = Offer("lambda", "us-west-1", "us-west-1", "gpu_8x_h100", Market.ON_DEMAND, "H100-SXM5-80GB", 8)
    rules = {("aws", Market.SPOT): AWS_SPOT, ("lambda", Market.ON_DEMAND): LAMBDA}
    points = {OFFER.key: [point(START, "3.6")], other.key: [point(START, "36")]}
    bills = ledger(
        [segment(90_000), segment(90_000, offer=other)],
        points,
        lambda cloud, market: rules[cloud, market],
        START + HOUR,
    )
    assert [paid.paid_micro_usd for paid in bills] == [90_000, 1_200_000]


@given(
    ran_ms=st.integers(0, 200 * HOUR),
    changes=st.lists(st.tuples(st.integers(-5 * HOUR, 200 * HOUR), st.integers(1, 10**9)), max_size=12),
    unit_s=st.sampled_from([1, 60, 3600]),
)
def test_lines_add_up_to_the_exact_integral(ran_ms: int, changes: list[tuple[int, int]], unit_s: int):
    points = [Quote(OFFER, price, START + at, START + at, "s") for at, price in sorted(changes)]
    paid = bill(segment(ran_ms), points, BillingRule(unit_s, 60), START)
    assert sum(line.paid_micro_usd for line in paid.lines) == paid.paid_micro_usd
    assert all(line.paid_micro_usd >= 0 for line in paid.lines)
    exact = sum(
        (Fraction(line.price_micro_usd_h * (line.to_ms - line.from_ms), MS_PER_HOUR) for line in paid.lines),
        Fraction(0),
    )
    assert paid.paid_micro_usd == round(exact)
    priced_s = sum(line.to_ms - line.from_ms for line in paid.lines) / 1000
    assert priced_s + paid.unpriced_s == pytest.approx(paid.billed_s)
    assert all(one.to_ms == two.from_ms for one, two in zip(paid.lines, paid.lines[1:], strict=False))
