from collections.abc import Iterator
from pathlib import Path

import pytest
from readings import NOW, ON_DEMAND, SPOT, quote, raw

from broker.clock import SystemIds
from broker.market.snapshot import build_snapshot
from broker.store.history import HistoryStore
from broker.store.state import StateStore

MINUTE = 60_000


class Stopped:
    """A clock that stands at NOW."""

    rate = 1.0

    def now_ms(self) -> int:
        return NOW

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here sleeps")


@pytest.fixture
def history(tmp_path: Path) -> Iterator[HistoryStore]:
    store = HistoryStore.open(tmp_path / "history.db")
    yield store
    store.close()


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateStore]:
    store = StateStore.open(tmp_path / "state.db", Stopped(), SystemIds())
    yield store
    store.close()


def test_everything_that_is_known(history: HistoryStore, state: StateStore) -> None:
    history.ingest([quote(2.5), quote(6.88, ON_DEMAND)])
    history.quarantine(raw("0"), NOW, "the price is zero")
    with state.write() as tx:
        tx.mark_empty(SPOT.key, NOW + MINUTE, "out_of_capacity")
        tx.mark_empty(ON_DEMAND.key, NOW - 1, "out_of_capacity")
        tx.record_launch(NOW - MINUTE, SPOT, ok=False, error="out_of_capacity")
        tx.record_launch(NOW - MINUTE, SPOT, ok=True)
        tx.record_launch(NOW - MINUTE, ON_DEMAND, ok=False, error="out_of_quota")
        tx.record_launch(NOW - 61 * MINUTE, SPOT, ok=False, error="out_of_capacity")
    with state.read() as tx:
        snapshot = build_snapshot(history, tx, NOW)
    assert snapshot.at_ms == NOW
    assert snapshot.quotes == {SPOT.key: quote(2.5), ON_DEMAND.key: quote(6.88, ON_DEMAND)}
    assert snapshot.empty_until_ms == {SPOT.key: NOW + MINUTE}
    assert snapshot.is_empty(SPOT)
    assert snapshot.quarantined == {SPOT.key: "the price is zero"}
    assert snapshot.spot_launch_failures_1h == 0.5
    assert snapshot.spot_life_s == {}


def test_nothing_known(history: HistoryStore, state: StateStore) -> None:
    with state.read() as tx:
        snapshot = build_snapshot(history, tx, NOW)
    assert not snapshot.quotes
    assert snapshot.spot_launch_failures_1h == 0
