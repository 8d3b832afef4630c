"""What an overlay makes of a price: which entry counts, from when to when, and how far a commitment and a credit go."""

import cProfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from readings import NOW, ON_DEMAND, SPOT, quote

from broker.core.errors import SettingsError
from broker.core.offer import Market
from broker.core.time import from_iso
from broker.market.overlay import Commitment, Credit, Discount, Overlay, Owned, Rate
from broker.market.overlay_text import read_overlay

DAY = 86_400_000
EXAMPLE = Path(__file__).parents[3] / "docs/examples/overlay.yaml"
LIST = quote(10, ON_DEMAND)
EIGHT = replace(ON_DEMAND, gpus=8)
OURS = replace(SPOT, cloud="local", zone="rack", market=Market.OWNED, gpus=8)


def standing(overlay, nodes=0, spent_usd=0.0, offer=ON_DEMAND, at_ms=NOW):
    return overlay.standing(at_ms, {offer.key: (offer, nodes)}, {offer.cloud: round(spent_usd * 1e6)})


def usd(overlay, base=LIST, at_ms=NOW, **used):
    return overlay.apply(base, at_ms, standing(overlay, **used, at_ms=at_ms)).price_micro_usd_h / 1e6


def test_a_pattern_is_compiled_once_however_many_there_are():
    offers = [replace(ON_DEMAND, instance_type=f"t{n}.large") for n in range(9)]
    overlay = Overlay(
        discounts=tuple(Discount(offers=f"aws/*/t{n}.*", share=Fraction(1, 2)) for n in range(8, 1508))
    )
    profile = cProfile.Profile()
    touched = profile.runcall(lambda: [usd(overlay, quote(10, offer)) for offer in offers])
    assert touched == [10] * 8 + [5]
    compiled = sum(
        row.callcount for row in profile.getstats() if getattr(row.code, "co_name", "") == "translate"
    )
    assert 0 < compiled <= 1500


def test_a_contract_with_a_price_for_each_of_thousands_of_offers_is_read():
    lines = (
        f"  - {{offers: aws/use1-az{n % 6}/t{n}.large/on_demand, price_usd_h: {1 + n / 1000}, until: 2027-02-28}}\n"
        for n in range(4000)
    )
    overlay = read_overlay("prices:\n" + "".join(lines), "overlay.yaml")
    assert len(overlay.prices) == 4000
    offers = [replace(ON_DEMAND, zone=f"use1-az{n % 6}", instance_type=f"t{n}.large") for n in range(4000)]
    profile = cProfile.Profile()
    prices = profile.runcall(lambda: [usd(overlay, quote(10, offer)) for offer in offers])
    assert prices == pytest.approx([1 + n / 1000 for n in range(4000)])
    calls = sum(entry.callcount for entry in profile.getstats())
    assert calls < 4000 * 500, "each offer is looked up, and not held against each entry"


def test_a_file_that_is_longer_than_any_contract_is_refused():
    with pytest.raises(SettingsError, match="at most 100000 keys, values and brackets"):
        read_overlay("prices: [" + "1," * 100_000 + "]", "overlay.yaml")


def test_what_no_entry_speaks_of_is_left_as_it_is():
    overlay = Overlay(discounts=(Discount(offers="gcp/*", share=Fraction(1, 2)),))
    assert overlay.apply(LIST, NOW) is LIST


class TestOrder:
    def test_the_first_discount_that_matches_counts_alone(self):
        broad = Discount(offers="aws/*", share=Fraction(4, 100))
        narrow = Discount(offers="aws/*/on_demand", share=Fraction(20, 100))
        assert usd(Overlay(discounts=(narrow, broad))) == 8
        assert usd(Overlay(discounts=(broad, narrow))) == 9.6
        assert usd(Overlay(discounts=(narrow, broad)), quote(10, SPOT)) == 9.6

    def test_a_name_and_a_pattern_keep_the_order_of_the_file(self):
        name = Discount(offers=ON_DEMAND.key, share=Fraction(20, 100))
        pattern = Discount(offers="aws/*", share=Fraction(4, 100))
        over = replace(name, share=Fraction(1, 2), until_ms=NOW)
        assert usd(Overlay(discounts=(over, name, pattern))) == 8
        assert usd(Overlay(discounts=(over, pattern, name))) == 9.6
        assert usd(Overlay(discounts=(name,)), quote(10, SPOT)) == 10

    def test_a_price_of_its_own_is_not_discounted(self):
        overlay = Overlay(
            discounts=(Discount(offers="*", share=Fraction(1, 2)),),
            prices=(Rate(offers=ON_DEMAND.key, micro_usd_h=7_000_000),),
            committed=(Commitment(offers="*", micro_usd_h=1, count=9, until_ms=NOW + DAY),),
        )
        assert usd(overlay) == 7
        assert overlay.apply(LIST, NOW).source == "test+own-price"

    def test_owned_speaks_of_owned_offers_alone_by_the_gpu_or_the_node(self):
        overlay = Overlay(owned=(Owned(offers="*", micro_usd_h=1_100_000, per_gpu=True),))
        assert usd(overlay) == 10
        assert usd(overlay, quote(99, OURS)) == pytest.approx(8.8)


class TestDates:
    OVERLAY = Overlay(
        discounts=(Discount(offers="*", share=Fraction(1, 2), from_ms=NOW, until_ms=NOW + DAY),)
    )

    @pytest.mark.parametrize(("at_ms", "price"), [(-1, 10), (0, 5), (DAY - 1, 5), (DAY, 10)])
    def test_an_entry_holds_between_its_dates(self, at_ms, price):
        assert usd(self.OVERLAY, at_ms=NOW + at_ms) == price

    def test_each_date_is_another_standing(self):
        assert [standing(self.OVERLAY, at_ms=NOW + at).epoch for at in (-1, 0, DAY)] == [0, 1, 2]


class TestCommitment:
    OVERLAY = Overlay(
        committed=(Commitment(offers="*/on_demand", micro_usd_h=4_000_000, count=2, until_ms=NOW + DAY),),
        discounts=(Discount(offers="*", share=Fraction(1, 10)),),
    )

    @pytest.mark.parametrize(
        ("nodes", "next_one", "there"), [(0, 4, None), (1, 4, 4), (2, 9, 4), (4, 9, 6.5)]
    )
    def test_the_next_node_pays_the_list_when_there_is_no_room_and_those_there_the_average(
        self, nodes, next_one, there
    ):
        assert usd(self.OVERLAY, nodes=nodes) == next_one
        held = self.OVERLAY.held(LIST, NOW, standing(self.OVERLAY, nodes))
        assert (held and held.price_micro_usd_h / 1e6) == there

    def test_it_counts_over_all_offers_that_match(self):
        elsewhere = replace(ON_DEMAND, zone="use1-az1")
        nodes = {offer.key: (offer, 1) for offer in (ON_DEMAND, elsewhere, SPOT)}
        now = self.OVERLAY.standing(NOW, nodes, {})
        assert now.in_use == (2,)
        assert self.OVERLAY.apply(LIST, NOW, now).price_micro_usd_h == 9_000_000

    def test_when_it_is_over_the_discount_counts(self):
        assert usd(self.OVERLAY, at_ms=NOW + DAY) == 9


class TestCredit:
    OVERLAY = Overlay(
        credits=(
            Credit(
                cloud="aws", micro_usd=100_000_000, from_ms=NOW, until_ms=NOW + DAY, worth=Fraction(3, 10)
            ),
        ),
        discounts=(Discount(offers="*", share=Fraction(1, 2)),),
    )

    def test_it_makes_cheaper_what_is_charged_until_it_is_used_up_or_over(self):
        assert usd(self.OVERLAY) == 1.5
        assert usd(self.OVERLAY, spent_usd=99.99) == 1.5
        assert usd(self.OVERLAY, spent_usd=100) == 5
        assert usd(self.OVERLAY, at_ms=NOW + DAY) == 5
        assert usd(self.OVERLAY, quote(10, replace(ON_DEMAND, cloud="gcp"))) == 5

    def test_a_bill_knows_no_credit(self):
        assert self.OVERLAY.bill(LIST, NOW).price_micro_usd_h == 5_000_000

    def test_a_credit_that_is_worth_nothing_leaves_a_price_that_is_positive(self):
        free = Overlay(credits=(replace(self.OVERLAY.credits[0], worth=Fraction(0)),))
        assert free.apply(LIST, NOW).price_micro_usd_h == 1


class TestOver:
    """Points of the list as points of what was charged."""

    def test_a_date_within_a_stretch_is_a_change(self):
        overlay = Overlay(
            discounts=(Discount(offers="*", share=Fraction(1, 2), from_ms=NOW, until_ms=NOW + DAY),)
        )
        points = [quote(10, at_ms=NOW - DAY), quote(20, at_ms=NOW + DAY // 2), quote(30, at_ms=NOW + 3 * DAY)]
        charged = overlay.over(points, NOW + 4 * DAY)
        assert [(p.effective_at_ms - NOW, p.price_micro_usd_h / 1e6) for p in charged] == [
            (-DAY, 10),
            (0, 5),
            (DAY // 2, 10),
            (DAY, 20),
            (3 * DAY, 30),
        ]
        assert [p.observed_at_ms for p in charged] == [points[i].observed_at_ms for i in (0, 0, 1, 1, 2)]

    def test_a_commitment_counts_while_it_has_room_for_the_node(self):
        overlay = Overlay(committed=(Commitment(offers="*", micro_usd_h=4_000_000, count=1),))
        charged = overlay.over(
            [quote(10, at_ms=NOW)], NOW + DAY, [(NOW + 10, NOW + 20), (NOW + 30, NOW + 40)]
        )
        assert [(p.effective_at_ms - NOW, p.price_micro_usd_h // 1_000_000) for p in charged] == [
            (0, 10),
            (10, 4),
            (20, 10),
            (30, 4),
            (40, 10),
        ]

    @given(
        st.lists(st.integers(0, 50), unique=True, min_size=1, max_size=5),
        st.tuples(st.integers(0, 50), st.integers(0, 50)),
        st.integers(0, 60),
    )
    def test_at_every_moment_it_is_what_bill_says(self, starts, dates, at):
        overlay = Overlay(
            discounts=(
                Discount(offers="*", share=Fraction(1, 2), from_ms=min(dates), until_ms=max(dates) + 1),
            )
        )
        points = [quote(start + 1, at_ms=start) for start in sorted(starts)]
        charged = overlay.over(points, 100)

        def holds(known):
            return [p.price_micro_usd_h for p in known if p.effective_at_ms <= at][-1:]

        there = [p for p in points if p.effective_at_ms <= at][-1:]
        assert holds(charged) == [overlay.bill(p, at).price_micro_usd_h for p in there]


class TestFile:
    def test_the_example(self):
        overlay = read_overlay(EXAMPLE.read_text(), "overlay.yaml")
        assert [d.share for d in overlay.discounts] == [Fraction(18, 100), Fraction(4, 100)]
        assert overlay.discounts[0].until_ms == from_iso("2028-01-01T00:00:00Z"), "the last day counts whole"
        (commitment,) = overlay.committed
        assert (commitment.count, commitment.price_micro_usd_h(EIGHT)) == (4, 41_600_000)
        assert commitment.from_ms == from_iso("2026-07-01T00:00:00Z")
        assert (overlay.credits[0].cloud, overlay.credits[0].worth) == ("gcp", Fraction(3, 10))
        assert overlay.owned[0].price_micro_usd_h(OURS) == 8_800_000
        assert overlay.prices[0].micro_usd_h == 39_200_000
        assert overlay.prices[0].place == "overlay.yaml:37:5"

    @pytest.mark.parametrize(
        ("text", "column"),
        [
            ("prices:\n  - {offers: aws/*, price_usd_h: %s}", 34),
            ("discounts:\n  - {offers: aws/*, percent: %s}", 30),
            ("committed:\n  - {offers: aws/*, until: 2030-01-01, price_usd_h: 3, count: %s}", 63),
            ("credits:\n  - {cloud: aws, from: 2026-01-01, until: 2030-01-01, worth: 5%%, usd: %s}", 71),
            ("credits:\n  - {cloud: aws, from: 2026-01-01, until: 2030-01-01, usd: 5, worth: %s%%}", 70),
        ],
        ids=["price", "percent", "count", "usd", "worth"],
    )
    @pytest.mark.parametrize(
        "number", ["1e999999999", "1e-999999999", "0e999999999", "1_3", "\u0661", "1/3", "-1"]
    )
    def test_a_number_that_nobody_would_write_is_refused_with_its_place(self, text, column, number):
        """Some of a few letters have a billion digits, and none of them is computed with."""
        with pytest.raises(SettingsError) as caught:
            read_overlay(text % number, "f")
        assert str(caught.value).startswith(f"f:2:{column}: ")

    @pytest.mark.parametrize("worth", ["0%", "12.5 %", "100%"])
    def test_a_share_is_digits_with_a_point(self, worth):
        text = "credits:\n  - {cloud: aws, from: 2026-01-01, until: 2030-01-01, usd: 5, worth: " + worth + "}"
        assert read_overlay(text, "f").credits[0].worth == Fraction(worth.strip("% ")) / 100

    def test_a_file_of_comments_changes_nothing(self):
        assert read_overlay("# nothing yet\n\n", "f") == Overlay()

    @pytest.mark.parametrize(
        ("text", "place", "words"),
        [
            ("discount: []", "1:1", "unknown key discount"),
            ("discounts:\n  - offers: aws/*\n    percnt: 5", "3:5", "did you mean percent?"),
            ("discounts:\n  - offers: aws/*\n    percent: 100", "3:14", "not between 0 and 100"),
            ("discounts:\n  - percent: 5", "2:5", "offers is missing"),
            ("discounts:\n  - offers: p5.48xlarge\n    percent: 5", "2:13", "is no offer"),
            ("discounts:\n  - offers: aws/*\n    percent: 5\n    until: soon", "4:12", "or a day"),
            (
                "discounts:\n  - {offers: aws/*, percent: 5, from: 2026-02-01, until: 2026-01-01}",
                "2:58",
                "before it begins",
            ),
            ("prices:\n  - offers: aws/*", "2:5", "write one of price_usd_h and price_usd_gpu_h"),
            ("prices:\n  - {offers: aws/*, price_usd_h: 0}", "2:34", "out of range"),
            ("owned:\n  - {offers: aws/*, price_usd_h: a lot}", "2:34", "expected a number"),
            ("committed:\n  - {offers: aws/*, price_usd_h: 1, count: 1}", "2:5", "a commitment has an end"),
            (
                "committed:\n  - {offers: aws/*, price_usd_h: 1, count: 0, until: 2027-01-01}",
                "2:44",
                "less than 1",
            ),
            ("credits:\n  - {cloud: aws, usd: 5, until: 2027-01-01, worth: 30%}", "2:5", "from is missing"),
            (
                "credits:\n  - {cloud: aws, usd: 5, from: 2026-01-01, until: 2027-01-01, worth: 130%}",
                "2:70",
                "not a share",
            ),
            (
                "credits:\n"
                "  - {cloud: aws, usd: 5, from: 2026-01-01, until: 2027-01-01, worth: 30%}\n"
                "  - {cloud: AWS, usd: 5, from: 2027-01-01, until: 2028-01-01, worth: 30%}",
                "3:5",
                "two credits of aws at one time; the other one is at f:2:5",
            ),
        ],
    )
    def test_a_mistake_has_its_place(self, text, place, words):
        with pytest.raises(SettingsError) as caught:
            read_overlay(text, "f")
        assert str(caught.value).startswith(f"f:{place}: ")
        assert words in str(caught.value)
