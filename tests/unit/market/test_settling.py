"""A list that may say one meter for another: what is believed after which readings, and what may move a job."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from readings import MINUTE, NOW

from broker.core.offer import Market, Offer, Quote, RawQuote
from broker.market.confirming import confirmed
from broker.market.flips import is_ordinary, meter_flip
from broker.market.intake import take_in
from broker.market.quarantine import pending_of, sift
from broker.market.settling import LONG_MS, SHORT_MS
from broker.store.doubts import Quarantined
from broker.store.history import HistoryStore

SPOT = Offer(
    "azure", "eastus", "eastus", "Standard_NC40ads_H100_v5", Market.SPOT, "H100-NVL-94GB", 1, vcpus=40
)
ON_DEMAND = replace(SPOT, market=Market.ON_DEMAND)
HOUR = 60 * MINUTE
LINUX, WINDOWS = "6.98", "8.82"
SPOT_LINUX, SPOT_WINDOWS = "2.19", "2.7673"  # as 8.82 to 6.98


class Polls:
    """Whole polls of one or two offers, one every three hours."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.history = HistoryStore.open(path)
        self._at_ms = NOW

    def start_again(self) -> None:
        self.history.close()
        self.history = HistoryStore.open(self._path)

    def take(self, raws: list[RawQuote]) -> None:
        take_in(self.history, raws, self._at_ms)
        self._at_ms += 3 * HOUR

    def read(
        self, *, on_demand: str | None = None, spot: str | None = None, source: str = "azure:retail"
    ) -> None:
        offers = ((ON_DEMAND, on_demand), (SPOT, spot))
        self.take([RawQuote(offer, text, "USD", None, source) for offer, text in offers if text is not None])

    def price(self, offer: Offer) -> float:
        return self.history.now()[offer.key].price_micro_usd_h / 1e6

    def doubt(self, offer: Offer) -> str:
        entry = self.history.quarantined().get(offer.key)
        return entry.reason if entry else ""

    def on_demand(self, *texts: str) -> list[tuple[float, bool]]:
        """Price, and whether the newest reading is in quarantine, after each poll."""
        return [self._after(ON_DEMAND, on_demand=text) for text in texts]

    def spot(self, *texts: str) -> list[tuple[float, bool]]:
        return [self._after(SPOT, spot=text) for text in texts]

    def _after(self, offer: Offer, **reading: str) -> tuple[float, bool]:
        self.read(**reading)
        return self.price(offer), bool(self.doubt(offer))


@pytest.fixture
def polls(tmp_path: Path) -> Iterator[Polls]:
    found = Polls(tmp_path / "history.db")
    yield found
    found.history.close()


class TestOnDemand:
    def test_a_rise_by_the_licence_is_not_confirmed_by_any_number_of_polls(self, polls: Polls) -> None:
        assert polls.on_demand(LINUX, *[WINDOWS] * 12)[1:] == [(6.98, True)] * 12
        assert "by what the Windows licence costs" in polls.doubt(ON_DEMAND)

    def test_how_often_it_was_read_is_kept_for_the_operator(self, polls: Polls) -> None:
        polls.on_demand(LINUX, *[WINDOWS] * 3)
        entry = polls.history.quarantined()[ON_DEMAND.key]
        assert (entry.times_seen, entry.needed_ms) == (3, None)

    def test_the_old_price_is_believed_at_once_when_it_is_read_again(self, polls: Polls) -> None:
        assert polls.on_demand(LINUX, WINDOWS, LINUX)[-1] == (6.98, False)

    def test_a_first_reading_with_the_licence_gives_way_to_the_price_without_it(self, polls: Polls) -> None:
        assert polls.on_demand(WINDOWS, LINUX, WINDOWS) == [(8.82, False), (6.98, False), (6.98, True)]

    def test_prices_of_three_decimals_differ_by_the_licence_to_a_tenth_of_a_cent(self, polls: Polls) -> None:
        # southcentralus Standard_NV32as_v4: 2.237 and 3.708, 32 vCPUs.
        offer = replace(ON_DEMAND, vcpus=32)
        assert meter_flip(offer, 2_237_000, 3_708_000, None) == 1
        assert meter_flip(offer, 2_237_000, 3_706_900, None) == 0

    @pytest.mark.parametrize("step", ["7.70", "9.20", "5.50"])
    def test_a_rise_by_another_amount_and_a_fall_by_far_are_a_price_after_twelve_hours(
        self, polls: Polls, step: str
    ) -> None:
        new = float(step)
        followed = polls.on_demand(LINUX, *[step] * 5)
        assert followed[1:] == [*[(6.98, True)] * 4, (new, False)]

    def test_a_fall_of_a_fifth_is_a_price_when_it_has_held_for_half_an_hour(self, polls: Polls) -> None:
        assert polls.on_demand(LINUX, "5.60", "5.60")[1:] == [(6.98, True), (5.60, False)]

    def test_it_holds_since_it_was_first_read(self, polls: Polls) -> None:
        polls.on_demand(LINUX, *["7.70"] * 5)
        assert polls.history.now()[ON_DEMAND.key].effective_at_ms == NOW + 3 * HOUR

    def test_a_rise_that_goes_back_was_never_a_price(self, polls: Polls) -> None:
        # qatarcentral Standard_NC24rs_v3, 2026-05-01: 18.503, three polls of 19.84, 18.503.
        assert polls.on_demand(LINUX, "7.50", "7.50", "7.50", LINUX)[1:] == [
            *[(6.98, True)] * 3,
            (6.98, False),
        ]

    def test_another_reading_in_between_begins_anew(self, polls: Polls) -> None:
        followed = polls.on_demand(LINUX, *["7.70"] * 4, "9.00", *["7.70"] * 5)
        assert [doubted for _, doubted in followed] == [False, *[True] * 9, False]

    def test_a_second_meter_of_a_new_price_is_known(self, polls: Polls) -> None:
        followed = polls.on_demand(LINUX, *["7.70"] * 5, *["9.54"] * 5)
        assert followed[-1] == (7.70, True)


class TestSpot:
    def test_a_rise_by_the_share_of_the_licence_is_not_confirmed_by_repetition(self, polls: Polls) -> None:
        polls.read(on_demand=LINUX, spot=SPOT_LINUX)
        assert polls.spot(*[SPOT_WINDOWS] * 12)[-1] == (2.19, True)
        assert "by the Windows meter's share" in polls.doubt(SPOT)

    def test_a_first_reading_with_the_licence_gives_way_when_both_markets_come_back(
        self, polls: Polls
    ) -> None:
        polls.read(on_demand=WINDOWS, spot=SPOT_WINDOWS)
        polls.read(on_demand=LINUX, spot=SPOT_LINUX)
        assert (polls.price(SPOT), polls.doubt(SPOT)) == (2.19, "")

    @pytest.mark.parametrize("step", ["1.80", "2.30"])
    def test_an_ordinary_step_is_real_when_it_has_held_for_half_an_hour(
        self, polls: Polls, step: str
    ) -> None:
        polls.read(on_demand=LINUX, spot="2.19")
        assert polls.spot(step, step) == [(2.19, True), (float(step), False)]
        assert polls.history.now()[SPOT.key].effective_at_ms == NOW + 3 * HOUR

    def test_a_rise_of_which_nobody_knows_what_the_licence_would_be_is_none(self, polls: Polls) -> None:
        assert polls.spot("2.19", *["2.30"] * 5)[1:] == [*[(2.19, True)] * 4, (2.30, False)]

    @pytest.mark.parametrize("other", ["3.50", "2.50", "1.20"])
    def test_any_other_change_is_real_when_it_has_held_for_twelve_hours(
        self, polls: Polls, other: str
    ) -> None:
        polls.read(on_demand=LINUX, spot="2.19")
        assert polls.spot(*[other] * 5) == [*[(2.19, True)] * 4, (float(other), False)]

    def test_a_licence_that_is_dearer_than_others_is_no_ordinary_rise(self, polls: Polls) -> None:
        # qatarcentral Standard_NC24rs_v3: 18.503 to 19.84 on demand, and with it 3.419354 to 3.666432 on spot.
        v100 = replace(SPOT, gpu="V100-PCIe-16GB", gpus=4, vcpus=24)
        assert not is_ordinary(v100, 3_419_354, 3_666_432, 18_503_000)
        # swedencentral Standard_NC24ads_A100_v4: a real one of a tenth.
        assert is_ordinary(replace(SPOT, vcpus=24), 1_890_900, 2_079_990, 4_775_000)

    @pytest.mark.parametrize("readings", [1, 2, 3, 4])
    def test_one_that_goes_back_was_never_a_price(self, polls: Polls, readings: int) -> None:
        polls.spot("2.19", *["3.50"] * readings, "2.19")
        assert [quote.price_micro_usd_h for quote in polls.history.points(SPOT.key, 0, 2**53)] == [2_190_000]
        assert polls.history.quarantined() == {}

    def test_a_poll_without_the_row_interrupts_nothing(self, polls: Polls) -> None:
        polls.read(on_demand=LINUX, spot="2.19")
        polls.spot("2.30")
        polls.read(on_demand=LINUX)
        assert polls.spot("2.30") == [(2.30, False)]

    def test_readings_that_were_taken_for_the_licence_do_not_count_for_a_price(self, polls: Polls) -> None:
        polls.read(on_demand=LINUX, spot=SPOT_LINUX)
        polls.spot(*[SPOT_WINDOWS] * 6)
        for _ in range(5):  # the on-demand price has really changed, and with it the share
            polls.read(on_demand="4.00")
        assert polls.spot(*[SPOT_WINDOWS] * 5) == [*[(2.19, True)] * 4, (2.7673, False)]


class TestOthersWhoKnow:
    def test_a_second_source_confirms_in_the_same_poll(self, polls: Polls) -> None:
        polls.on_demand(LINUX)
        polls.take(
            [RawQuote(ON_DEMAND, WINDOWS, "USD", None, name) for name in ("azure:retail", "azure:sheet")]
        )
        assert (polls.price(ON_DEMAND), polls.doubt(ON_DEMAND)) == (8.82, "")

    def test_a_second_source_confirms_later(self, polls: Polls) -> None:
        polls.on_demand(LINUX, WINDOWS, WINDOWS)
        polls.read(on_demand=WINDOWS, source="azure:sheet")
        assert (polls.price(ON_DEMAND), polls.doubt(ON_DEMAND)) == (8.82, "")

    def test_the_same_source_twice_in_one_poll_does_not(self, polls: Polls) -> None:
        polls.on_demand(LINUX)
        polls.take([RawQuote(ON_DEMAND, WINDOWS, "USD", None, "azure:retail")] * 2)
        assert polls.price(ON_DEMAND) == 6.98

    def test_what_a_person_has_confirmed_is_doubted_no_more(self, polls: Polls) -> None:
        polls.on_demand(LINUX, WINDOWS)
        entry = polls.history.quarantined()[ON_DEMAND.key]
        assert polls.history.believe(
            confirmed(entry, polls.history.now()[ON_DEMAND.key]), WINDOWS, NOW + 6 * MINUTE
        )
        assert polls.on_demand(WINDOWS, WINDOWS, LINUX) == [(8.82, False), (8.82, False), (6.98, False)]


def test_a_cloud_that_dates_its_own_prices_is_not_held_up(polls: Polls) -> None:
    aws = replace(SPOT, cloud="aws")
    for text in ("2.19", "3.50", "1.20"):
        polls.take([RawQuote(aws, text, "USD", None, "aws:spot_history")])
        assert (polls.price(aws), polls.doubt(aws)) == (float(text), "")


def test_without_the_number_of_vcpus_no_licence_is_known() -> None:
    assert meter_flip(replace(ON_DEMAND, vcpus=0), 6_980_000, 6_980_000, None) == 0


def test_what_waits_waits_on_after_a_restart(polls: Polls) -> None:
    polls.spot("2.19")
    for _ in range(4):
        assert polls.spot("3.50") == [(2.19, True)]
        polls.start_again()
    assert polls.spot("3.50") == [(3.50, False)]


READINGS = st.lists(
    st.tuples(
        st.sampled_from([LINUX, WINDOWS, "7.70", "5.60", "3.84", "0", "NaN"]) | st.none(),
        st.sampled_from([1, 5 * 60, 3 * 3600, 24 * 3600]),
    ),
    min_size=1,
    max_size=14,
)


@settings(deadline=None)
@given(READINGS)
def test_whatever_is_read_a_price_has_held_without_a_break_for_as_long_as_it_must(
    readings: list[tuple[str | None, int]],
) -> None:
    last: dict[str, Quote] = {}
    rows: dict[str, Quarantined] = {}
    prices: list[str] = []
    at_ms, newest, since_ms = NOW, "", NOW
    for text, after_s in readings:
        at_ms += after_s * 1000
        raws = [] if text is None else [RawQuote(ON_DEMAND, text, "USD", None, "azure:retail")]
        sifted = sift(raws, at_ms, last, pending_of(rows))
        last |= {quote.offer.key: quote for quote in sifted.quotes}
        rows |= {key: doubt.row(at_ms) for key, doubt in sifted.doubts.items()}
        for key in sifted.released:
            del rows[key]
        if text is None:
            continue
        if text != newest:
            newest, since_ms = text, at_ms
        if rows or not last:
            continue
        assert last[ON_DEMAND.key].price_micro_usd_h == round(float(text) * 1e6), (
            "the newest reading, or nothing"
        )
        if prices and text != prices[-1]:
            before = float(prices[-1])
            is_licence_less = (prices[-1], text) == (WINDOWS, LINUX)
            short = before * 0.79 < float(text) < before
            assert is_licence_less or at_ms - since_ms >= (SHORT_MS if short else LONG_MS)
        assert text != WINDOWS or LINUX not in prices[-1:], (
            "a licence is no price where the one without it was"
        )
        prices.append(text)
