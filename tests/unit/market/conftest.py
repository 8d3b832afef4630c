"""What every test of the poller needs: a real history database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.store.history import HistoryStore


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def history(tmp_path: Path) -> Iterator[HistoryStore]:
    store = HistoryStore.open(tmp_path / "history.db")
    yield store
    store.close()
