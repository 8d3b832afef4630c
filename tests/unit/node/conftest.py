from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.node.small import SmallDaemon, SmallNode


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[SmallDaemon]:
    (tmp_path / "daemon").mkdir()
    found = SmallDaemon(tmp_path / "daemon")
    yield found
    found.close()


@pytest.fixture
def node(tmp_path: Path, daemon: SmallDaemon) -> Iterator[SmallNode]:
    found = SmallNode(tmp_path / "node", daemon)
    yield found
    found.close()
