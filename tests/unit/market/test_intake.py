"""A whole poll written down: what a cloud says now is what bills read, whatever was written before and by which clock."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.core.offer import Offer, Quote
from broker.market.intake import Taken, take_in
from broker.store.history import HistoryStore
from broker.store.past import PastStore
from tests.unit.market.readings import MINUTE, NOW, ON_DEMAND, raw

DAY = 1440 * MINUTE


@pytest.fixture
def past(history: HistoryStore, tmp_path: Path) -> Iterator[PastStore]:
    opened = PastStore.open(tmp_path / "history.db")
    yield opened
    opened.close()


def poll(history: HistoryStore, at_ms: int, price: str, effective_at_ms: int | None = None) -> Taken:
    return take_in(history, [raw(price, ON_DEMAND, effective_at_ms)], at_ms)


def billed(history: HistoryStore, at_ms: int, offer: Offer = ON_DEMAND) -> int | None:
    """What a bill reads for that moment, in micro-USD an hour."""
    points = history.points(offer.key, at_ms, at_ms + 1)
    return points[-1].price_micro_usd_h if points else None


def imported(past: PastStore, price_micro_usd_h: int, at_ms: int) -> None:
    past.add([Quote(ON_DEMAND, price_micro_usd_h, at_ms, NOW, "import")], confirmed=False)


def test_a_price_that_is_polled_holds_from_then_on_whatever_an_import_has_said_before(
    history: HistoryStore, past: PastStore
):
    imported(past, 3_000_000, NOW - DAY)
    assert poll(history, NOW + MINUTE, "6.98", NOW - 900 * DAY).changes
    assert history.now()[ON_DEMAND.key].price_micro_usd_h == 6_980_000
    assert billed(history, NOW) == 3_000_000
    assert billed(history, NOW + 2 * MINUTE) == 6_980_000
    assert poll(history, NOW + 6 * MINUTE, "6.98", NOW - 900 * DAY).changes == 0
    assert billed(history, NOW + 7 * MINUTE) == 6_980_000
    assert poll(history, NOW + 11 * MINUTE, "7.10", NOW - 800 * DAY).changes == 1
    assert billed(history, NOW + 12 * MINUTE) == 7_100_000


def test_a_first_poll_that_says_what_an_import_has_said_is_no_change(history: HistoryStore, past: PastStore):
    imported(past, 6_980_000, NOW - DAY)
    assert poll(history, NOW + MINUTE, "6.98").changes == 0
    assert history.now()[ON_DEMAND.key] == Quote(ON_DEMAND, 6_980_000, NOW - DAY, NOW + MINUTE, "test")
    assert len(history.points(ON_DEMAND.key, 0, NOW + DAY)) == 1


def test_what_got_into_the_past_after_the_price_now_is_overruled_by_the_next_poll(
    history: HistoryStore, past: PastStore
):
    poll(history, NOW, "6.98", NOW - 900 * DAY)
    # As if an import had read the prices now before that poll, and has written after it.
    with history.alone() as kept:
        kept._connection.exec_driver_sql(
            "INSERT INTO price_point SELECT offer_id, ?, ?, 3000000, source_id FROM price_now",
            (NOW - DAY, NOW - 1),
        )
    assert billed(history, NOW) == 3_000_000
    assert poll(history, NOW + MINUTE, "6.98", NOW - 900 * DAY).changes == 1
    assert billed(history, NOW + 2 * MINUTE) == 6_980_000
    assert poll(history, NOW + 6 * MINUTE, "6.98", NOW - 900 * DAY).changes == 0
