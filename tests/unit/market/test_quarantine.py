from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from readings import MINUTE, NOW, ON_DEMAND, SPOT, quote, raw

from broker.core.gpu import GPUS
from broker.core.offer import Market, Offer, Quote, RawQuote
from broker.market.bands import outside_band
from broker.market.quarantine import Doubt, judge, pending_of, price_of, sift
from broker.market.settling import Pending, Wait
from broker.store.doubts import Quarantined

OWNED = replace(SPOT, cloud="local", market=Market.OWNED)
UNKNOWN = replace(SPOT, gpu="Radeon Graphics")


@pytest.mark.parametrize(
    ("reading", "words"),
    [
        (raw("0"), "the price is zero"),
        (raw("0.0000001"), "the price is zero"),
        (raw("-1.5"), "the price is negative"),
        (raw("NaN"), "'NaN' is not a price"),
        (raw("Infinity"), "'Infinity' is not a price"),
        (raw("N/A"), "'N/A' is not a price"),
        (raw(""), "'' is not a price"),
        (raw("1E999999"), "'1E999999' dollars an hour is no price that anyone pays"),
        (raw("17.4", currency="CNY"), "priced in CNY, not in USD"),
        (raw("2.5", currency=""), "priced in no currency, not in USD"),
        (raw("2.5", UNKNOWN), "unknown GPU 'Radeon Graphics'"),
        (raw("2.5", replace(SPOT, gpus=0)), "0 GPUs"),
        (raw("2.5", effective_at_ms=NOW + 86_400_000), "takes effect only in 1d"),
    ],
)
def test_what_is_no_price(reading: RawQuote, words: str) -> None:
    verdict = judge(reading, NOW, quote(2.5), Pending(2_500_000, NOW - MINUTE))
    assert verdict == Doubt(reading, words)


def test_a_price() -> None:
    assert judge(raw(" 2.5000000 "), NOW, None) == Quote(SPOT, 2_500_000, NOW - MINUTE, NOW, "test")


@pytest.mark.parametrize(
    ("was", "now", "offer", "believed"),
    [
        (2.0, "3.8", SPOT, True),  # + 90 % is an ordinary step
        (2.0, "0.8", SPOT, True),  # - 60 % too
        (2.0, "10.4", SPOT, True),  # x 5.2 has been seen on GCP
        (2.0, "13.0", SPOT, False),
        (2.0, "0.3", SPOT, False),
        (None, "0.15", SPOT, False),  # below a tenth of what an H100 costs anywhere
        (None, "25", SPOT, False),
        (6.88, "12.29", ON_DEMAND, True),
        (6.88, "3.90", ON_DEMAND, True),
        (6.88, "2.20", ON_DEMAND, False),
        (6.88, "22.0", ON_DEMAND, False),
        (None, "0.01", ON_DEMAND, False),  # a bid floor taken for a price
        (None, "55.04", ON_DEMAND, False),  # the price of eight
        (1.0, "0.01", OWNED, True),
    ],
)
def test_jumps(was: float | None, now: str, offer: Offer, believed: bool) -> None:
    verdict = judge(raw(now, offer), NOW, None if was is None else quote(was, offer))
    assert isinstance(verdict, Quote) is believed


HALF_HOUR = 30 * MINUTE


class TestConfirmation:
    def test_what_has_held_for_half_an_hour_is_confirmed(self) -> None:
        assert isinstance(judge(raw("0.3"), NOW, quote(2), Pending(300_000, NOW - HALF_HOUR)), Quote)
        waits = judge(raw("0.3"), NOW, quote(2), Pending(300_000, NOW - HALF_HOUR + 1))
        assert isinstance(waits, Doubt)
        assert waits.wait is not None
        assert (waits.wait.held_ms, waits.wait.needed_ms) == (HALF_HOUR - 1, HALF_HOUR)

    def test_about_the_same_is_enough(self) -> None:
        assert isinstance(judge(raw("0.32"), NOW, quote(2), Pending(300_000, NOW - HALF_HOUR)), Quote)

    def test_another_wild_price_does_not(self) -> None:
        assert isinstance(judge(raw("0.2"), NOW, quote(2), Pending(300_000, NOW - HALF_HOUR)), Doubt)

    def test_what_has_been_confirmed_is_not_doubted_again_nor_what_is_near_it(self) -> None:
        outside = quote(0.15)
        assert isinstance(judge(raw("0.15"), NOW, outside), Quote)
        assert isinstance(judge(raw("0.14"), NOW, outside), Quote)
        assert isinstance(judge(raw("0.02"), NOW, outside), Doubt)

    @pytest.mark.parametrize("last", [None, quote(2)])
    def test_what_its_gpu_cannot_cost_is_not_confirmed_by_time(self, last: Quote | None) -> None:
        pending = Pending(150_000, NOW - HALF_HOUR, times=1000, held_ms=10**9)
        assert isinstance(judge(raw("0.15"), NOW, last, pending), Doubt)
        assert isinstance(judge(raw("0.15"), NOW, last, replace(pending, source="other")), Quote)

    def test_of_a_stretch_in_which_nobody_looked_three_hours_count(self) -> None:
        away = Pending(300_000, NOW - 1000 * MINUTE, held_ms=1)
        waits = Wait("", 10**12).after(away, 300_000, NOW, 0.1)
        assert waits is not None
        assert waits.held_ms == 180 * MINUTE + 1

    def test_a_clock_that_was_set_back_takes_nothing_away(self) -> None:
        waits = Wait("", 10**12).after(Pending(300_000, NOW + MINUTE, held_ms=7), 300_000, NOW, 0.1)
        assert waits is not None
        assert (waits.held_ms, waits.times) == (7, 1)

    def test_a_second_source_confirms(self) -> None:
        pending = Pending(300_000, NOW - MINUTE, source="test")
        assert isinstance(judge(replace(raw("0.3"), source="other"), NOW, quote(2), pending), Quote)
        both = [raw("0.3"), replace(raw("0.3"), source="other")]
        assert [q.price_micro_usd_h for q in sift(both, NOW, {SPOT.key: quote(2)}, {}).quotes] == [300_000]

    def test_a_second_source_that_says_another_price_does_not(self) -> None:
        readings = [raw("0.3"), replace(raw("0.2"), source="other")]
        assert SPOT.key in sift(readings, NOW, {SPOT.key: quote(2)}, {}).doubts

    def test_the_same_poll_is_no_second_witness(self) -> None:
        assert isinstance(judge(raw("0.3"), NOW, quote(2), Pending(300_000, NOW)), Doubt)


class TestEffectiveAt:
    def test_unknown_is_when_first_seen(self) -> None:
        first = judge(raw("2.5", effective_at_ms=None), NOW, None)
        assert isinstance(first, Quote)
        assert first.effective_at_ms == NOW
        again = judge(raw("2.5", effective_at_ms=None), NOW + MINUTE, first)
        assert isinstance(again, Quote)
        assert (again.effective_at_ms, again.observed_at_ms) == (NOW, NOW + MINUTE)
        changed = judge(raw("2.6", effective_at_ms=None), NOW + MINUTE, first)
        assert isinstance(changed, Quote)
        assert changed.effective_at_ms == NOW + MINUTE

    def test_a_clock_a_little_ahead_is_now(self) -> None:
        verdict = judge(raw("2.5", effective_at_ms=NOW + 1000), NOW, None)
        assert isinstance(verdict, Quote)
        assert verdict.effective_at_ms == NOW


class TestSift:
    def test_what_came_back_to_reason_is_released(self) -> None:
        sifted = sift([raw("2.1")], NOW, {SPOT.key: quote(2)}, {SPOT.key: Pending(0, NOW - MINUTE)})
        assert sifted.released == (SPOT.key,)
        assert not sifted.doubts

    def test_a_history_is_taken_whole_and_its_end_is_the_price(self) -> None:
        readings = [raw("2.2"), raw("2.0", effective_at_ms=NOW - 9 * MINUTE)]
        assert [q.price_micro_usd_h for q in sift(readings, NOW, {}, {}).quotes] == [2_000_000, 2_200_000]

    def test_two_prices_for_one_moment_are_no_price(self) -> None:
        sifted = sift([raw("8.82", ON_DEMAND), raw("6.98", ON_DEMAND)], NOW, {}, {})
        assert not sifted.quotes
        assert sifted.doubts[ON_DEMAND.key].reason == "two prices at once: 6.98 and 8.82"

    def test_the_same_row_twice_is_one(self) -> None:
        assert len(sift([raw("2.5"), raw("2.50")], NOW, {}, {}).quotes) == 1

    def test_a_price_that_goes_back_holds_from_now(self) -> None:
        before = quote(3.0, at_ms=NOW - MINUTE)
        (back,) = sift([raw("2.5", effective_at_ms=NOW - 9 * MINUTE)], NOW, {SPOT.key: before}, {}).quotes
        assert back.effective_at_ms == NOW

    def test_one_bad_offer_does_not_spoil_the_poll(self) -> None:
        sifted = sift([raw("2.5"), raw("2.5", replace(UNKNOWN, zone="z2"))], NOW, {}, {})
        assert [q.offer for q in sifted.quotes] == [SPOT]
        assert len(sifted.doubts) == 1


@settings(deadline=None)
@given(
    st.text(max_size=12) | st.from_regex(r"-?[0-9]{1,3}(\.[0-9]{1,9})?(E-?[0-9]{1,6})?", fullmatch=True),
    st.sampled_from(["USD", "usd", "EUR", ""]),
    st.none() | st.integers(0, 2 * NOW),
)
def test_whatever_a_cloud_writes_a_quote_is_sound(
    text: str, currency: str, effective_at_ms: int | None
) -> None:
    reading = raw(text, effective_at_ms=effective_at_ms, currency=currency)
    verdict = judge(reading, NOW, None)
    if isinstance(verdict, Quote):
        assert verdict.price_micro_usd_h > 0
        assert verdict.effective_at_ms <= verdict.observed_at_ms == NOW
        assert verdict.offer.gpu in GPUS
    else:
        assert verdict.reason


AZURE = Offer("azure", "eastus", "eastus", "NC40", Market.SPOT, "H100-NVL-94GB", 1, vcpus=40)
PRICE_TEXTS = st.sampled_from(
    ["2.19", "2.5", "2.50", "2.77", "6.98", "8.82", "0", "-1", "NaN", "900", "0.01"]
)
READINGS = st.lists(
    st.builds(
        RawQuote,
        st.sampled_from(
            [SPOT, ON_DEMAND, AZURE, replace(AZURE, market=Market.ON_DEMAND), replace(AZURE, gpu="H900")]
        ),
        PRICE_TEXTS,
        st.sampled_from(["USD", "EUR"]),
        st.none() | st.integers(NOW - 9, NOW + 9),
        st.sampled_from(["list", "sheet"]),
    ),
    max_size=8,
)
BEFORE = st.lists(READINGS, max_size=3)


def after(polls: list[list[RawQuote]]) -> tuple[dict[str, Quote], dict[str, Quarantined]]:
    """What is believed and what is doubted after some polls."""
    last: dict[str, Quote] = {}
    rows: dict[str, Quarantined] = {}
    for poll, readings in enumerate(polls):
        sifted = sift(readings, NOW + poll * MINUTE, last, pending_of(rows))
        newest = sorted(sifted.quotes, key=lambda q: (q.effective_at_ms, q.observed_at_ms))
        last |= {q.offer.key: q for q in newest}
        rows |= {key: doubt.row(NOW + poll * MINUTE) for key, doubt in sifted.doubts.items()}
        for key in sifted.released:
            del rows[key]
    return last, rows


@settings(deadline=None)
@given(BEFORE, READINGS)
def test_what_is_believed_is_a_positive_price_in_dollars_that_was_read(
    before: list[list[RawQuote]], readings: list[RawQuote]
) -> None:
    last, rows = after(before)
    sifted = sift(readings, NOW + 9 * MINUTE, last, pending_of(rows))
    dollars = {(r.offer.key, price_of(r)) for r in readings if r.currency == "USD" and r.offer.gpu in GPUS}
    for q in sifted.quotes:
        assert q.price_micro_usd_h > 0
        assert (q.offer.key, q.price_micro_usd_h) in dollars
    alone = Counter(r.offer.key for r in readings)
    for key in sifted.doubts:
        if alone[key] == 1:
            assert key not in {q.offer.key for q in sifted.quotes}, "a doubted price is no price now"


@settings(deadline=None)
@given(BEFORE, READINGS, st.randoms(use_true_random=False))
def test_the_order_in_which_a_list_is_read_does_not_matter(
    before: list[list[RawQuote]], readings: list[RawQuote], random: Random
) -> None:
    last, rows = after(before)
    shuffled = random.sample(readings, len(readings))
    one, other = (sift(order, NOW + 9 * MINUTE, last, pending_of(rows)) for order in (readings, shuffled))
    assert Counter(one.quotes) == Counter(other.quotes)
    assert (dict(one.doubts), set(one.released)) == (dict(other.doubts), set(other.released))


@settings(deadline=None)
@given(BEFORE, READINGS)
def test_every_offer_that_was_read_is_either_believed_or_doubted(
    before: list[list[RawQuote]], readings: list[RawQuote]
) -> None:
    last, rows = after(before)
    sifted = sift(readings, NOW + 9 * MINUTE, last, pending_of(rows))
    believed = {q.offer.key for q in sifted.quotes}
    assert {r.offer.key for r in readings} == believed | sifted.doubts.keys()
    assert not set(sifted.released) & sifted.doubts.keys()


@pytest.mark.parametrize(
    ("gpu", "gpus", "market", "usd"),
    [
        ("T4-16GB", 1, Market.SPOT, 0.16),  # g4dn.xlarge
        ("T4-16GB", 1, Market.ON_DEMAND, 4.352),  # g4dn.16xlarge: one GPU, 64 CPUs
        ("V100-SXM2-16GB", 1, Market.SPOT, 0.24),
        ("H100-SXM5-80GB", 8, Market.ON_DEMAND, 98.32),  # p5.48xlarge of 2023
        ("H100-SXM5-80GB", 8, Market.SPOT, 9.0),
        ("A100-SXM4-40GB", 8, Market.ON_DEMAND, 32.7726),
        ("MI300X-192GB", 8, Market.ON_DEMAND, 48.0),
        ("H200-SXM-141GB", 8, Market.ON_DEMAND, 110.24),  # Azure ND H200 v5
        ("B200-SXM-180GB", 8, Market.ON_DEMAND, 113.93),
        ("GH200-96GB", 1, Market.ON_DEMAND, 1.49),  # Lambda
    ],
)
def test_real_prices_are_inside_their_bands(gpu: str, gpus: int, market: Market, usd: float) -> None:
    offer = replace(SPOT, gpu=gpu, gpus=gpus, market=market)
    assert outside_band(offer, round(usd * 1e6)) == ""


def test_another_machine_under_the_same_name_is_a_first_reading() -> None:
    """The price before was that of one GPU: 64 of them for the same money are not believed for having cost it."""
    grown = raw("2.5", replace(SPOT, gpus=64))
    assert isinstance(judge(grown, NOW, quote(2.5)), Doubt)
    assert isinstance(judge(raw("2.5", replace(SPOT, gpu="B300-SXM-288GB", gpus=8)), NOW, quote(2.5)), Doubt)
    honest = raw("20", replace(SPOT, gpus=8))
    assert isinstance(judge(honest, NOW, quote(2.5)), Quote)


def test_a_date_before_there_was_a_cloud_is_none() -> None:
    believed = judge(raw("2.5", effective_at_ms=-62_135_647_200_000), NOW, None)
    assert isinstance(believed, Quote)
    assert believed.effective_at_ms == NOW
