"""Prices are held from one reading to the next: what is as it was is handed out again, and nothing else."""

from dataclasses import replace
from pathlib import Path

from broker.core.availability import Availability, Signal
from broker.store.history import HistoryStore, Poll
from broker.store.past import PastStore
from tests.unit.store.rows import OFFER
from tests.unit.store.test_history import quote

HERE, THERE = quote(1, 10), quote(1, 20, zone="there")


def test_the_same_mapping_until_a_price_is_written(history: HistoryStore):
    history.ingest([HERE, THERE])
    before = history.now()
    history.record_poll(Poll("aws", 70_000, 80_000, False))
    history.record_hints("aws", [Availability(OFFER.key, Signal.LISTED, 0, 1, 5, "s")], whole=False)
    assert history.now() is before
    history.ingest([quote(2, 11)])
    assert history.now() is not before
    assert before[OFFER.key] == HERE, "who has it may still read it"


def test_only_what_a_poll_has_seen_is_made_anew(history: HistoryStore):
    history.ingest([HERE, THERE])
    before = history.now()
    history.ingest([quote(5, 10)])
    now = history.now()
    assert now[OFFER.key] == replace(HERE, observed_at_ms=quote(5, 10).observed_at_ms)
    assert now[THERE.offer.key] is before[THERE.offer.key]
    assert list(now) == list(before)


def test_the_first_poll_of_an_offer_that_came_before_those_that_have_a_price(
    history: HistoryStore, tmp_path: Path
):
    past = PastStore.open(tmp_path / "history.db")
    try:
        past.add([HERE], confirmed=False)
    finally:
        past.close()
    history.ingest([THERE])
    assert history.now() == {THERE.offer.key: THERE}
    history.ingest([quote(3, 30)])
    assert history.now() == {OFFER.key: quote(3, 30), THERE.offer.key: THERE}


def test_a_price_that_is_gone_is_held_no_longer(history: HistoryStore):
    history.ingest([HERE, THERE])
    assert len(history.now()) == 2
    with history._engines.writer.begin() as connection:  # nothing of ours deletes one
        connection.exec_driver_sql("DELETE FROM price_now WHERE price_micro_usd_h = 10")
    assert history.now() == {THERE.offer.key: THERE}
