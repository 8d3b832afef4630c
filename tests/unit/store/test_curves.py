"""Curves: the right offers, the right points, and without looking at all of them."""

from dataclasses import replace

from broker.core.offer import Market, Quote
from broker.store.history import HistoryStore
from tests.unit.store.rows import OFFER
from tests.unit.store.test_history import MINUTE, quote

SPOT = OFFER
OTHER = replace(OFFER, zone="use1-az1")
EIGHT = replace(OFFER, cloud="gcp", zone="us-central1-a", gpus=OFFER.gpus * 8)
ALIEN = replace(OFFER, zone="use1-az2", gpu="L4-24GB")


def put(history: HistoryStore, offer, *prices: tuple[int, int]) -> None:
    for minute, price in prices:
        history.ingest([Quote(offer, price, minute * MINUTE, minute * MINUTE, "s")])


def test_offers_of_a_gpu_cheapest_of_one_gpu_first(history: HistoryStore):
    put(history, SPOT, (1, 10), (5, 30))
    put(history, OTHER, (1, 20))
    put(history, EIGHT, (1, 80))
    put(history, ALIEN, (1, 1))
    keys = [known.offer.key for known in history.offers([OFFER.gpu])]
    assert keys == [EIGHT.key, OTHER.key, SPOT.key]
    assert [k.offer.key for k in history.offers([OFFER.gpu], cloud="gcp")] == [EIGHT.key]
    assert [k.offer.key for k in history.offers([OFFER.gpu, ALIEN.gpu], count=OFFER.gpus)] == [
        ALIEN.key,
        OTHER.key,
        SPOT.key,
    ]
    assert history.offers([OFFER.gpu], market=Market.RESERVED) == []
    assert history.offers([]) == []


def test_a_curve_begins_with_what_held_and_keeps_the_newest_when_it_is_long(history: HistoryStore):
    put(history, SPOT, *((minute, 10 + minute) for minute in range(1, 10)))
    (known,) = history.offers([OFFER.gpu])
    assert (known.last_micro_usd_h, known.last_seen_ms) == (19, 9 * MINUTE)
    (curve,) = history.curves([known], 5 * MINUTE, 8 * MINUTE, most=10)
    assert [p.effective_at_ms // MINUTE for p in curve.points] == [4, 5, 6, 7]
    assert not curve.cut
    (curve,) = history.curves([known], 0, 99 * MINUTE, most=3)
    assert [p.price_micro_usd_h for p in curve.points] == [17, 18, 19]
    assert curve.cut
    assert history.points(SPOT.key, 5 * MINUTE, 8 * MINUTE) == [quote(m, 10 + m) for m in (4, 5, 6, 7)]


def test_points_are_found_by_their_key(history: HistoryStore):
    put(history, SPOT, (1, 10))
    from broker.store import curves

    with history._engines.reader.connect() as connection:
        for statement in (curves._INSIDE, curves._BEFORE):
            plan = connection.exec_driver_sql(
                f"EXPLAIN QUERY PLAN {statement}", {"id": 1, "from_ms": 0, "to_ms": 1, "most": 1}
            ).all()
            assert any("SEARCH p USING PRIMARY KEY (offer_id=? AND effective_at_ms" in row[3] for row in plan)
            assert not any("TEMP B-TREE" in row[3] for row in plan)
