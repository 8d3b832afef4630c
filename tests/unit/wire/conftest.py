"""Stores for the tests of the wire: a folder for all, SeaweedFS beside it where the store itself is the subject."""

import os
from pathlib import Path

import pytest

from broker.wire.folder_store import FolderStore
from broker.wire.messages import StoreAccess
from broker.wire.store_client import ObjectStore, open_store


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(str(tmp_path / "store"))


@pytest.fixture(params=["folder", pytest.param("seaweed", marks=pytest.mark.process)])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """Every kind of store, each really there."""
    if request.param == "folder":
        return open_store(StoreAccess("folder", "", path=str(tmp_path / "store")))
    server = request.getfixturevalue("seaweed")
    return open_store(
        StoreAccess(
            "s3",
            "",
            endpoint=server.endpoint,
            bucket=server.bucket,
            access_key=server.access_key,
            secret_key=server.secret_key,
        )
    )


@pytest.fixture
def prefix() -> str:
    """A job's prefix of its own, so that tests can share a server."""
    return f"jobs/{os.urandom(6).hex()}"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """An empty checkpoint folder."""
    root = tmp_path / "checkpoints"
    root.mkdir()
    return root
