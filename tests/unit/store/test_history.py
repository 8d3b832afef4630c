"""history.db: changes with both times, in any order of arrival."""

import threading
from dataclasses import replace
from itertools import count, permutations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.core.offer import Quote, RawQuote
from broker.store.history import HistoryStore, Poll
from tests.unit.store.rows import OFFER

MINUTE = 60_000
FRESH = count()


def quote(
    at_min: int, price: int, observed_min: int | None = None, zone: str = "use1-az6", source: str = "s"
) -> Quote:
    seen = at_min if observed_min is None else observed_min
    return Quote(replace(OFFER, zone=zone), price, at_min * MINUTE, seen * MINUTE, source)


def as_of(history: HistoryStore, at_min: int) -> int | None:
    points = history.points(OFFER.key, at_min * MINUTE, at_min * MINUTE + 1)
    return points[-1].price_micro_usd_h if points else None


def test_only_changes_are_points_and_seeing_one_again_makes_it_younger(history: HistoryStore):
    assert history.ingest([quote(1, 10)]) == 0, "a price that is seen for the first time is no change of it"
    assert history.ingest([quote(1, 10, observed_min=5)]) == 0
    assert history.ingest([quote(6, 10)]) == 0
    assert history.now() == {OFFER.key: quote(1, 10, observed_min=6)}
    assert history.ingest([quote(7, 12)]) == 1
    assert history.now() == {OFFER.key: quote(7, 12)}
    assert history.points(OFFER.key, 0, 99 * MINUTE) == [quote(1, 10), quote(7, 12)]


def test_a_price_that_the_cloud_confirms_holds_whatever_arrives_for_the_time_before(history: HistoryStore):
    history.ingest([quote(1, 10, observed_min=2)])
    assert history.ingest([quote(5, 10, observed_min=6)]) == 0
    assert history.now()[OFFER.key] == quote(5, 10, observed_min=6)
    assert history.ingest([quote(3, 12, observed_min=7)]) == 1
    assert [as_of(history, at) for at in (2, 4, 6)] == [10, 12, 10]
    assert history.now()[OFFER.key] == quote(5, 10, observed_min=6)


def test_a_window_begins_with_the_price_that_held_then(history: HistoryStore):
    history.ingest([quote(1, 10), quote(4, 12), quote(8, 14)])
    assert history.points(OFFER.key, 5 * MINUTE, 8 * MINUTE) == [quote(4, 12)]
    assert history.points(OFFER.key, 4 * MINUTE, 9 * MINUTE) == [quote(1, 10), quote(4, 12), quote(8, 14)]
    assert history.points(OFFER.key, 0, MINUTE) == []
    assert history.points("no/such/offer/spot", 0, MINUTE) == []
    assert [as_of(history, at) for at in (0, 1, 3, 4, 7, 8, 9)] == [None, 10, 10, 12, 12, 14, 14]


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_the_order_of_arrival_does_not_matter(history: HistoryStore, order: tuple[int, ...]):
    quotes = [quote(at, price, observed_min=90) for at, price in ((1, 10), (3, 12), (5, 10), (7, 11))]
    for index in order:
        history.ingest([quotes[index]])
    assert [as_of(history, at) for at in range(9)] == [None, 10, 10, 12, 12, 10, 10, 11, 11]
    assert history.now()[OFFER.key] == quotes[3]


def test_imported_history_keeps_when_we_learned_of_it(history: HistoryStore):
    history.ingest([quote(90, 20)])
    assert history.ingest([quote(10, 10, observed_min=95), quote(50, 15, observed_min=95)]) == 2
    assert history.ingest([quote(10, 10, observed_min=99), quote(50, 15, observed_min=99)]) == 0
    points = history.points(OFFER.key, 0, 99 * MINUTE)
    assert [(p.effective_at_ms // MINUTE, p.observed_at_ms // MINUTE) for p in points] == [
        (10, 95),
        (50, 95),
        (90, 90),
    ]
    assert history.now()[OFFER.key] == quote(90, 20)


def test_a_correction_stands_beside_what_it_corrects(history: HistoryStore):
    history.ingest([quote(1, 10)])
    assert history.ingest([quote(1, 12, observed_min=3)]) == 1
    assert history.points(OFFER.key, 0, 9 * MINUTE) == [quote(1, 10), quote(1, 12, observed_min=3)]
    assert as_of(history, 2) == 12
    assert history.now()[OFFER.key].price_micro_usd_h == 12


def test_two_prices_for_one_moment_in_one_poll_are_one_point(history: HistoryStore):
    assert history.ingest([quote(1, 10, source="a"), quote(1, 11, source="b")]) == 0
    assert history.now()[OFFER.key] == quote(1, 10, source="a")
    assert len(history.points(OFFER.key, 0, 99 * MINUTE)) == 1


def test_an_offer_may_change_its_shape(history: HistoryStore):
    history.ingest([quote(1, 10)])
    grown = replace(OFFER, vcpus=192, fabric="efa")
    history.ingest([replace(quote(2, 10), offer=grown)])
    assert history.now()[OFFER.key].offer == grown


def test_a_gpu_that_this_release_names_otherwise_is_left_out_until_it_is_polled(history: HistoryStore):
    old = replace(OFFER, zone="use1-az9", gpu="B200-SXM-192GB")
    history.ingest([quote(1, 10), Quote(old, 20, MINUTE, MINUTE, "s")])
    assert set(history.now()) == {OFFER.key}
    history.ingest([Quote(replace(old, gpu="B200-SXM-180GB"), 20, 2 * MINUTE, 2 * MINUTE, "s")])
    assert history.now()[old.key].offer.model.sku == "B200-SXM-180GB"


def test_an_impossible_price_never_gets_in(history: HistoryStore):
    with pytest.raises(Exception, match="CHECK constraint failed"):
        history.ingest([quote(1, 10, zone="a"), quote(1, 0)])
    assert history.now() == {}


def test_polls_of_several_threads(history: HistoryStore):
    def poll(cloud: int) -> None:
        for minute in range(5):
            history.ingest([quote(minute, minute + 1, zone=f"{cloud}-{zone}") for zone in range(20)])
            history.record_poll(Poll(f"c{cloud}", minute, minute + 1, True, 20, 20))

    threads = [threading.Thread(target=poll, args=(cloud,)) for cloud in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    now = history.now()
    assert len(now) == 60
    assert {q.price_micro_usd_h for q in now.values()} == {5}
    assert len(history.polls()) == 15


def test_polls_newest_first(history: HistoryStore):
    good, bad = Poll("aws", 1, 2, True, 10, 3), Poll("aws", 5, 6, False, error="page 2: throttled")
    for poll in (good, Poll("gcp", 3, 4, True), bad):
        history.record_poll(poll)
    assert history.polls("aws") == [bad, good]
    assert [poll.cloud for poll in history.polls(limit=2)] == ["aws", "gcp"]


def test_quarantine_counts_the_same_reading_and_keeps_all_on_record(history: HistoryStore):
    raw = RawQuote(replace(OFFER, gpu="H900"), "0.00", "USD", None, "aws:spot_history")
    assert history.quarantine(raw, 1, "price is zero") == 1
    assert history.quarantine(raw, 2, "price is zero") == 2
    assert history.quarantine(replace(raw, price_text="-1"), 3, "price is negative") == 1
    held = history.quarantined()[OFFER.key]
    assert (held.raw.price_text, held.raw.offer.gpu, held.reason, held.times_seen) == (
        "-1",
        "H900",
        "price is negative",
        1,
    )
    assert not history.release(OFFER.key, "0.00", 4), "that is not what waits any more"
    assert history.release(OFFER.key, "-1", 4)
    assert history.quarantined() == {}
    assert history.quarantine(raw, 5, "price is zero") == 1


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 3)), unique_by=lambda c: c[0], min_size=1, max_size=8
    ),
    cuts=st.lists(st.integers(0, 8), max_size=3),
    data=st.data(),
)
def test_as_of_is_what_the_cloud_said(
    history: HistoryStore, changes: list[tuple[int, int]], cuts: list[int], data: st.DataObject
):
    zone = f"zone-{next(FRESH)}"  # an offer of its own for each example, in one database
    shuffled = data.draw(st.permutations(changes))
    batches = [shuffled[a:b] for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), len(shuffled)], strict=True)]
    for observed, batch in enumerate(batches):
        history.ingest([quote(at, price, observed_min=100 + observed, zone=zone) for at, price in batch])
    points = history.points(replace(OFFER, zone=zone).key, 0, 99 * MINUTE)
    for at in range(32):
        said = [price for since, price in sorted(changes) if since <= at]
        known = [point.price_micro_usd_h for point in points if point.effective_at_ms <= at * MINUTE]
        assert known[-1:] == said[-1:]
