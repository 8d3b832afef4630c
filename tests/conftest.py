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


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of one `xdist_group` on one worker.

    xdist 3.8 means to do that by a suffix of each test's id, but pytest 9.2 keeps the id elsewhere than it writes to:
    groups are then ignored without a word, and each worker starts a deployment of its own.
    """
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        mark = item.get_closest_marker("xdist_group")
        if mark is not None and not item.nodeid.endswith(f"@{mark.args[0]}"):
            item._id = type(item.id).parse(f"{item.nodeid}@{mark.args[0]}")
