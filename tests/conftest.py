"""What several rooms' tests share: a real object store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.seaweed import SeaweedFS


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """A running SeaweedFS for the session; tests that use it are marked `process` and keep to a prefix of their own."""
    directory: Path = tmp_path_factory.mktemp("seaweed")
    with SeaweedFS(directory) as store:
        yield store
