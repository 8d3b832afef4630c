"""A whole poll written down: what a cloud says now is what bills read, whatever was written before and by which clock."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.core.offer import Offer, Quote, RawQuote
from broker.market.confirming import confirmed
from broker.market.intake import Taken, take_in
from broker.store.history import HistoryStore, Poll
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


# -- a clock that was ahead ------------------------------------------------------------------------------------------------


def test_a_price_read_while_the_clock_was_ahead_is_replaced_by_the_next_poll(history: HistoryStore):
    poll(history, NOW + 28 * DAY, "3.29")
    poll(history, NOW, "4.29")
    assert history.now()[ON_DEMAND.key] == Quote(ON_DEMAND, 4_290_000, NOW, NOW, "test")
    poll(history, NOW + 5 * MINUTE, "4.39")
    assert [billed(history, NOW + at * MINUTE) for at in (0, 1, 6)] == [4_290_000, 4_290_000, 4_390_000]
    # The time has come that the false point names.
    poll(history, NOW + 28 * DAY + MINUTE, "4.39")
    assert history.now()[ON_DEMAND.key].price_micro_usd_h == 4_390_000
    assert billed(history, NOW + 28 * DAY + 2 * MINUTE) == 4_390_000


@pytest.mark.parametrize("began", [None, NOW - 900 * DAY])
def test_a_price_that_is_the_same_once_the_clock_is_right_holds_from_then_on(
    history: HistoryStore, began: int | None
):
    poll(history, NOW + 28 * DAY, "3.29")
    taken = poll(history, NOW, "3.29", began)
    assert not taken.sifted.doubts
    now = history.now()[ON_DEMAND.key]
    assert (now.price_micro_usd_h, now.observed_at_ms) == (3_290_000, NOW)
    assert now.effective_at_ms <= NOW
    assert billed(history, NOW + MINUTE) == 3_290_000
    assert poll(history, NOW + 5 * MINUTE, "3.29", began).changes == 0
    assert history.now()[ON_DEMAND.key].age_s(NOW + 6 * MINUTE) == 60


def test_what_was_known_before_the_clock_ran_ahead_is_known_again(history: HistoryStore):
    poll(history, NOW, "3.29")
    poll(history, NOW + 28 * DAY, "3.49")
    poll(history, NOW + 5 * MINUTE, "3.29")
    assert history.now()[ON_DEMAND.key] == Quote(ON_DEMAND, 3_290_000, NOW, NOW + 5 * MINUTE, "test")
    assert billed(history, NOW + 6 * MINUTE) == 3_290_000


def test_a_price_seen_again_while_the_clock_was_ahead_is_as_old_as_the_next_poll(history: HistoryStore):
    poll(history, NOW, "3.29")
    poll(history, NOW + 28 * DAY, "3.29")
    poll(history, NOW + 5 * MINUTE, "3.29")
    assert history.now()[ON_DEMAND.key] == Quote(ON_DEMAND, 3_290_000, NOW, NOW + 5 * MINUTE, "test")


def test_a_price_dated_ahead_of_the_clock_is_never_fresh_and_ages_from_the_first_poll_that_fails(
    history: HistoryStore,
):
    poll(history, NOW + 28 * DAY, "3.29")
    assert history.now()[ON_DEMAND.key].age_s(NOW) == 28 * 86_400
    history.record_poll(Poll("aws", NOW, NOW + MINUTE, ok=False, error="down"))
    assert history.now()[ON_DEMAND.key].age_s(NOW + 11 * MINUTE) == 600


def test_a_clock_that_was_behind_for_one_poll_takes_nothing_away(history: HistoryStore):
    for day, price in ((0, "3.29"), (10, "3.39"), (20, "3.49")):
        poll(history, NOW + day * DAY, price)
    poll(history, NOW - 10 * DAY, "3.49")
    poll(history, NOW + 20 * DAY + MINUTE, "3.49")
    assert [billed(history, NOW + day * DAY + 2 * MINUTE) for day in (0, 10, 20)] == [
        3_290_000,
        3_390_000,
        3_490_000,
    ]


def test_the_newest_poll_is_the_one_written_last(history: HistoryStore):
    history.record_poll(Poll("aws", NOW + 28 * DAY, NOW + 28 * DAY, ok=True, offers=9))
    history.record_poll(Poll("aws", NOW, NOW, ok=True, offers=7))
    history.record_poll(Poll("aws", NOW + 1, NOW + 1, ok=False, error="down"))
    assert [(at.ok, at.started_at_ms) for at in history.polls("aws", 2)] == [(False, NOW + 1), (True, NOW)]
    assert (history.polled(0)["aws"].whole_at_ms, history.polled(0)["aws"].offers) == (NOW, 7)


def test_a_doubt_seen_while_the_clock_was_ahead_waits_from_the_next_poll_on(history: HistoryStore):
    poll(history, NOW, "3.29")
    poll(history, NOW + 28 * DAY, "13.29")
    poll(history, NOW + 5 * MINUTE, "13.29")
    entry = history.quarantined()[ON_DEMAND.key]
    assert (entry.first_seen_ms, entry.last_seen_ms) == (NOW + 5 * MINUTE, NOW + 5 * MINUTE)
    for minute in (15, 25, 35):
        poll(history, NOW + minute * MINUTE, "13.29")
    assert history.now()[ON_DEMAND.key].price_micro_usd_h == 13_290_000


def test_no_price_at_all_that_was_seen_while_the_clock_was_ahead_is_dated_anew(history: HistoryStore):
    poll(history, NOW + 28 * DAY, "0")
    poll(history, NOW, "0")
    entry = history.quarantined()[ON_DEMAND.key]
    assert (entry.first_seen_ms, entry.last_seen_ms) == (NOW, NOW)


def test_a_person_is_believed_over_a_price_dated_ahead_of_the_clock(history: HistoryStore):
    poll(history, NOW + 28 * DAY, "3.29")
    poll(history, NOW + 29 * DAY, "13.29")
    entry = history.quarantined()[ON_DEMAND.key]
    quote = confirmed(entry, history.now()[ON_DEMAND.key])
    assert history.believe(quote, entry.raw.price_text, NOW)
    now = history.now()[ON_DEMAND.key]
    assert (now.price_micro_usd_h, now.effective_at_ms, now.observed_at_ms) == (13_290_000, NOW, NOW)
    assert billed(history, NOW + MINUTE) == 13_290_000


def test_the_last_price_of_an_offer_is_what_it_costs_now_and_no_point_to_come(history: HistoryStore):
    poll(history, NOW + 28 * DAY, "3.29")
    poll(history, NOW, "4.29")
    (known,) = history.offers([ON_DEMAND.gpu])
    assert known.last_micro_usd_h == 4_290_000


# -- texts of a vendor -----------------------------------------------------------------------------------------------------


def reading(price: str, **said: str) -> RawQuote:
    currency = said.pop("currency", "USD")
    return RawQuote(replace(ON_DEMAND, **said), price, currency, None, "test")  # type: ignore[arg-type]


def test_texts_of_a_vendor_are_kept_short_and_without_what_a_terminal_would_obey(history: HistoryStore):
    taken = take_in(
        history,
        [
            reading("\x1b[2J\x1b[31m6.98\u202e", zone="a"),
            reading("\ud800", zone="b"),
            reading("6.98", zone="c", currency="\ud800"),
            reading("x" * 10_000_000, zone="d"),
            reading("6.98", zone="e\x1b[2J", gpu="H900\u202e" * 1000),
            reading("6.98", zone="f"),
        ],
        NOW,
    )
    assert [quote.offer.zone for quote in taken.sifted.quotes] == ["f"]
    doubts = {entry.raw.offer.zone: entry for entry in history.quarantined().values()}
    assert doubts["a"].raw.price_text == r"\x1b[2J\x1b[31m6.98\u202e"
    assert (doubts["b"].raw.price_text, doubts["c"].raw.currency) == (r"\ud800", r"\ud800")
    assert len(doubts["d"].raw.price_text) == 64
    assert r"e\x1b[2J" in doubts
    for entry in doubts.values():
        texts = (entry.raw.price_text, entry.raw.offer.key, entry.raw.offer.gpu, entry.reason)
        assert all(text.isprintable() and len(text) <= 300 for text in texts)


def test_a_poll_that_failed_with_a_text_that_nobody_can_write_is_kept(history: HistoryStore):
    history.record_poll(Poll("aws", NOW, NOW, ok=False, error="HTTP 500: \ud800\n" + "x" * 10_000_000))
    (poll,) = history.polls("aws")
    assert poll.error.startswith(r"HTTP 500: \ud800\nxxx")
    assert len(poll.error) == 1000
