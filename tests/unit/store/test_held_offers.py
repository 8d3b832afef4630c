"""Offers are held from one reading of the prices to the next, and never longer than they are true."""

from dataclasses import replace
from pathlib import Path

import pytest

from broker.store.history import HistoryStore
from tests.unit.store.rows import OFFER
from tests.unit.store.test_history import quote


def test_a_poll_of_known_offers_hands_out_the_very_same_ones(history: HistoryStore):
    history.ingest([quote(1, 10)])
    before = history.now()
    history.ingest([quote(2, 11)])
    ((key, after),) = history.now().items()
    assert after.price_micro_usd_h == 11
    assert after.offer is before[key].offer
    assert key is next(iter(before))


def test_an_offer_that_another_connection_reshapes_or_adds_is_read_again(
    history: HistoryStore, tmp_path: Path
):
    history.ingest([quote(1, 10)])
    assert history.now()[OFFER.key].offer == OFFER
    grown, new = replace(OFFER, gpus=OFFER.gpus * 2), replace(OFFER, zone="elsewhere")
    other = HistoryStore.open(tmp_path / "history.db")
    try:
        other.ingest([replace(quote(2, 11), offer=grown)])
        assert history.now()[OFFER.key].offer == grown
        other.ingest([replace(quote(3, 12), offer=new)])
        assert {q.offer for q in history.now().values()} == {grown, new}
    finally:
        other.close()


def test_an_offer_of_a_poll_that_was_not_committed_is_not_held(history: HistoryStore):
    history.ingest([quote(1, 10)])
    new = replace(OFFER, zone="elsewhere")
    with pytest.raises(Exception, match="positive"):
        history.ingest([replace(quote(2, -1), offer=new)])
    assert list(history.now()) == [OFFER.key]
    history.ingest([replace(quote(3, 12), offer=new)])
    assert set(history.now()) == {OFFER.key, new.key}
