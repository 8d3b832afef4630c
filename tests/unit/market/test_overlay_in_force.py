"""The overlay as the daemon uses it: reread, laid over prices once, in snapshots, in bills and in `doctor`."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest
from readings import NOW, ON_DEMAND, SPOT, quote

from broker.core.errors import SettingsError
from broker.core.model import Job, Node, NodeState, Placement, Purpose
from broker.core.offer import Offer, Quote
from broker.core.spec import GpuRequest, JobSpec, Resources
from broker.core.tariff import BillingRule
from broker.core.time import HOUR_S, MS
from broker.market.overlay import Commitment, Credit, Discount, Overlay
from broker.market.overlay_file import Laid, Laying, OverlayFile
from broker.market.snapshot import Snapshots
from broker.serve.paid import Prices, Spending
from broker.settings import Settings
from broker.store.history import HistoryStore
from broker.store.state import StateStore
from tests.clocks import CountingIds, ManualClock

HOUR = HOUR_S * MS
HALF = "discounts:\n  - {offers: '*/on_demand', percent: 50}\n"


@pytest.fixture
def file(tmp_path):
    (tmp_path / "overlay.yaml").write_text(HALF)
    return tmp_path / "overlay.yaml"


@pytest.fixture
def history(tmp_path):
    store = HistoryStore.open(tmp_path / "history.db")
    store.ingest([quote(10, ON_DEMAND), quote(3, SPOT)])
    yield store
    store.close()


@pytest.fixture
def state(tmp_path):
    store = StateStore.open(tmp_path / "state.db", ManualClock(), CountingIds())
    yield store
    store.close()


def rent(state: StateStore, number: int, from_ms: int, to_ms: int | None, offer: Offer = ON_DEMAND) -> None:
    """A node whose meter ran from then to then."""
    job_id = f"j{number}"
    spec = JobSpec("train", "python train.py", Resources((GpuRequest("H100", 1),)))
    with state.write() as tx:
        tx.save(Job(job_id, spec, "default", "ann", from_ms))
        tx.save(Placement(f"{job_id}.1", job_id, 1, offer, 1, Purpose.PLACE, "default", "ann", from_ms))
        tx.save(
            Node(
                f"bk-{'a' * 26}-{number}", f"{job_id}.1", job_id, 0, offer.cloud, offer.region, offer.zone,
                "default", "ann", from_ms, state=NodeState.GONE if to_ms else NodeState.RUNNING,
                billed_from_ms=from_ms, ended_at_ms=to_ms,
            )
        )  # fmt: skip


def by_the_second(cloud: str, market: object) -> BillingRule:
    return BillingRule(unit_s=1, minimum_s=0)


class TestFile:
    def test_an_edit_is_found_by_content_and_a_broken_one_leaves_what_was_in_force(self, file):
        overlay = OverlayFile(file)
        assert overlay.overlay.discounts[0].share == Fraction(1, 2)
        assert not overlay.reload()
        file.write_text(HALF.replace("50", "20"))
        assert overlay.reload()
        assert overlay.overlay.discounts[0].share == Fraction(1, 5)
        file.write_text(HALF.replace("percent", "precent"))
        assert not overlay.reload()
        assert overlay.overlay.discounts[0].share == Fraction(1, 5)
        assert "did you mean percent?" in str(overlay.error)
        file.unlink()
        assert not overlay.reload()
        assert "cannot read" in str(overlay.error)
        file.write_text(HALF.replace("50", "20"))
        assert not overlay.reload()
        assert overlay.error is None

    def test_no_daemon_starts_on_a_broken_file(self, tmp_path):
        with pytest.raises(SettingsError, match="cannot read"):
            OverlayFile(tmp_path / "nowhere.yaml")
        (tmp_path / "o.yaml").write_text("discounts: 5")
        with pytest.raises(SettingsError, match=r"o\.yaml:1:12: discounts: expected a list"):
            OverlayFile(tmp_path / "o.yaml")

    def test_without_a_file_nothing_is_laid_over(self):
        overlay = OverlayFile(None)
        assert not overlay.reload()
        assert overlay.overlay == Overlay()
        assert list(overlay.checks({}, frozenset(), NOW)) == []


class TestDoctor:
    def checks(self, file, text, clouds=frozenset({"aws"})):
        file.write_text(text)
        quotes = {q.offer.key: q for q in (quote(10, ON_DEMAND), quote(3, SPOT))}
        return [(check.ok, check.detail) for check in OverlayFile(file).checks(quotes, clouds, NOW)]

    def test_all_well(self, file):
        over = "prices:\n  - {offers: 'aws/*', price_usd_h: 1, until: 2020-01-01}\n"
        assert self.checks(file, HALF + over) == [(True, f"1 of 2 entries of {file} hold today")]

    def test_what_matches_nothing_is_named(self, file):
        text = (
            "discounts:\n"
            "  - {offers: 'aws/*/p4d*', percent: 5}\n"
            "  - {offers: 'azuer/*', percent: 5}\n"
            "credits:\n"
            "  - {cloud: gcp, usd: 1, from: 2026-01-01, until: 2027-01-01, worth: 0%}\n"
        )
        assert self.checks(file, text) == [
            (None, f"{file}:2:5: discounts aws/*/p4d*: no offer that has a price matches"),
            (None, f"{file}:3:5: discounts azuer/*: the cloud azuer is not configured"),
            (None, f"{file}:5:5: credits: the cloud gcp is not configured"),
        ]

    def test_a_broken_edit_fails(self, file):
        overlay = OverlayFile(file)
        file.write_text("discounts: 5")
        overlay.reload()
        (check, *_) = overlay.checks({}, frozenset({"aws"}), NOW)
        assert check.ok is False
        assert "the version before it is in force" in check.detail


class TestLaying:
    QUOTES: Mapping[str, Quote] = {q.offer.key: q for q in (quote(10, ON_DEMAND), quote(3, SPOT))}
    OVERLAY = Overlay(discounts=(Discount(offers="*/on_demand", share=Fraction(1, 2), until_ms=NOW + HOUR),))

    def lay(self, laying, quotes=QUOTES, overlay=OVERLAY, at_ms=NOW) -> Laid:
        return laying.over(quotes, overlay, overlay.standing(at_ms, {}, {}), at_ms)

    def test_list_prices_stay_beside(self):
        laid = self.lay(Laying())
        assert laid.quotes[ON_DEMAND.key].price_micro_usd_h == 5_000_000
        assert laid.quotes[SPOT.key] is self.QUOTES[SPOT.key]
        assert laid.list_micro_usd_h == {ON_DEMAND.key: 10_000_000}

    def test_it_is_done_once_until_something_is_another(self):
        laying = Laying()
        first = self.lay(laying)
        assert self.lay(laying, at_ms=NOW + 1).quotes is first.quotes
        later = self.lay(laying, at_ms=NOW + HOUR)
        assert later.quotes == self.QUOTES, "the discount is over"
        assert self.lay(laying, overlay=Overlay()).quotes is self.QUOTES
        dearer = {**self.QUOTES, ON_DEMAND.key: quote(12, ON_DEMAND)}
        assert self.lay(laying, dearer).quotes[ON_DEMAND.key].price_micro_usd_h == 6_000_000

    def test_an_offer_of_another_shape_is_matched_anew(self):
        laying = Laying()
        overlay = replace(self.OVERLAY, discounts=(replace(self.OVERLAY.discounts[0], offers="*"),))
        self.lay(laying, overlay=overlay)
        grown = {SPOT.key: quote(8, replace(SPOT, gpus=8))}
        assert self.lay(laying, grown, overlay).quotes[SPOT.key].offer.gpus == 8


class TestSnapshot:
    def snapshot(self, history, state, overlay, tmp_path, at_ms=NOW):
        holder = OverlayFile(None)
        holder.overlay = overlay
        prices = Prices(history, by_the_second, lambda: overlay)
        with state.read() as tx:
            return Snapshots(history, holder, Spending(prices).micro_usd).of(tx, at_ms, frozenset())

    def test_a_commitment_that_is_full_is_list_price_for_the_next_and_its_own_for_who_is_there(
        self, history, state, tmp_path
    ):
        overlay = Overlay(committed=(Commitment(offers="*/on_demand", micro_usd_h=4_000_000, count=1),))
        empty = self.snapshot(history, state, overlay, tmp_path)
        assert empty.quotes[ON_DEMAND.key].price_micro_usd_h == 4_000_000
        assert empty.held(ON_DEMAND) == empty.quotes[ON_DEMAND.key]
        rent(state, 1, NOW - HOUR, None)
        full = self.snapshot(history, state, overlay, tmp_path)
        assert full.quotes[ON_DEMAND.key].price_micro_usd_h == 10_000_000
        held = full.held(ON_DEMAND)
        assert held is not None
        assert held.price_micro_usd_h == 4_000_000
        assert full.held(SPOT) == full.quotes[SPOT.key]
        assert full.held(replace(SPOT, zone="nowhere")) is None

    def test_a_credit_counts_until_bills_have_used_it_up(self, history, state, tmp_path):
        credit = Credit(
            cloud="aws",
            micro_usd=20_000_000,
            from_ms=NOW - HOUR,
            until_ms=NOW + 9 * HOUR,
            worth=Fraction(1, 10),
        )
        overlay = Overlay(credits=(credit,))
        history.ingest([quote(10, ON_DEMAND, at_ms=NOW - 20 * HOUR)])
        # Ten hours before the credit and half of one since: $5 of $20.
        rent(state, 1, NOW - 11 * HOUR, NOW - HOUR // 2)
        assert self.snapshot(history, state, overlay, tmp_path).quotes[SPOT.key].price_micro_usd_h == 300_000
        rent(state, 2, NOW - HOUR // 2, None)
        later = self.snapshot(history, state, overlay, tmp_path, NOW + HOUR + HOUR // 2)
        assert later.quotes[SPOT.key].price_micro_usd_h == 3_000_000, "$5 and $20"


class TestBills:
    def test_a_bill_changes_with_a_date_and_with_the_room_of_a_commitment(self, history, state):
        # Two points of the fixture's price: each has its line.
        history.ingest([quote(10, ON_DEMAND, at_ms=NOW - 20 * HOUR)])
        overlay = Overlay(
            committed=(Commitment(offers="*", micro_usd_h=4_000_000, count=1),),
            discounts=(Discount(offers="*", share=Fraction(1, 2), from_ms=NOW - HOUR),),
        )
        rent(state, 1, NOW - 4 * HOUR, NOW - 3 * HOUR)
        rent(state, 2, NOW - 4 * HOUR, NOW)
        rent(state, 3, NOW - 2 * HOUR, NOW)
        with state.read() as tx:
            segments = tx.segments()
        prices = Prices(history, by_the_second, lambda: overlay)
        first, second, third = prices.bills(segments, segments, NOW)
        # One is inside, then the next: 4; outside 10 till the discount, then 5.
        assert [bill.paid_micro_usd / 1e6 for bill in (first, second, third)] == [4, 10 + 3 * 4, 10 + 5]
        assert second.lines[-1].source == "test+committed"
        assert [line.source for line in third.lines] == ["test", "test+discount", "test+discount"]
        plain = Prices(history, by_the_second, Overlay)
        assert [bill.paid_micro_usd / 1e6 for bill in plain.bills(segments, (), NOW)] == [10, 40, 20]


def test_the_settings_name_the_file_from_their_own_folder(tmp_path):
    parsed = Settings.parse('[market]\noverlay = "overlay.yaml"\nkeep_history = "90d"\n', folder=tmp_path)
    assert parsed.market.overlay == tmp_path / "overlay.yaml"
    assert parsed.market.keep_history_s == 90 * 24 * HOUR_S
    plain = Settings.parse("")
    assert (plain.market.overlay, plain.market.keep_history_s) == (None, 400 * 24 * HOUR_S)
