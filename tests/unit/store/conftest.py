"""Real files of SQLite in a folder of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.store.history import HistoryStore
from broker.store.state import StateStore
from tests.clocks import CountingIds, ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[StateStore]:
    opened = StateStore.open(tmp_path / "state.db", clock, CountingIds())
    yield opened
    opened.close()


@pytest.fixture
def history(tmp_path: Path) -> Iterator[HistoryStore]:
    opened = HistoryStore.open(tmp_path / "history.db")
    yield opened
    opened.close()
