"""Answers are kept until anybody has written, and no longer."""

from pathlib import Path

from broker.store.history import HistoryStore, Poll
from tests.unit.store.rows import OFFER
from tests.unit.store.test_history import quote


def test_the_same_mapping_until_something_is_written(history: HistoryStore):
    history.ingest([quote(1, 10)])
    before = history.quarantined()
    assert history.quarantined() is before
    history.record_poll(Poll("aws", 60_001, 60_002, True))
    assert history.quarantined() is not before
    assert history.quarantined() == before


def test_what_another_connection_writes_is_seen_at_once(history: HistoryStore, tmp_path: Path):
    history.ingest([quote(1, 10)])
    assert history.now()[OFFER.key].price_micro_usd_h == 10
    other = HistoryStore.open(tmp_path / "history.db")
    try:
        other.ingest([quote(2, 11)])
        assert history.now()[OFFER.key].price_micro_usd_h == 11
        history.ingest([quote(3, 12)])
        assert other.now()[OFFER.key].price_micro_usd_h == 12
    finally:
        other.close()


def test_each_kind_of_answer_is_kept_by_itself(history: HistoryStore):
    history.ingest([quote(1, 10)])
    assert history.quarantined() == {}
    assert history.hints() == {}
    assert list(history.now()) == [OFFER.key]
    assert history.quarantined() is history.quarantined()
