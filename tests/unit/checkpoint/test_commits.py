from dataclasses import replace

import pytest

from broker.checkpoint.commits import CheckpointStore
from broker.checkpoint.credentials import StoreSettings, mint
from broker.core.errors import Conflict, Corrupt, StoreError
from broker.wire.commit import write_commit
from broker.wire.errors import Fenced
from broker.wire.folder_store import FolderStore
from broker.wire.store_client import open_store


@pytest.fixture
def settings(tmp_path):
    return StoreSettings("folder", prefix="team", path=str(tmp_path / "store"))


def test_a_job_from_first_fence_to_deletion(settings, tmp_path):
    daemon = CheckpointStore(settings)
    assert daemon.head("a-1") is None
    assert daemon.fence("a-1", 1).generation == 1
    assert daemon.fence("a-1", 1) == daemon.head("a-1")

    access = mint(settings, "a-1", 1800)
    node = open_store(access)
    (tmp_path / "model").write_bytes(b"weights")
    committed = write_commit(node, access.prefix, 1, "n", tmp_path, ["model"])
    assert daemon.head("a-1") == committed
    fenced = daemon.fence("a-1", 2)
    assert (fenced.seq, fenced.link) == (1, committed.link)
    with pytest.raises(Conflict, match="ahead of generation 1"):
        daemon.fence("a-1", 1)

    daemon.fence("a-10", 1)
    assert daemon.delete_job("a-1") == 3
    assert daemon.head("a-1") is None
    assert daemon.head("a-10") is not None
    with pytest.raises(Fenced):
        write_commit(node, access.prefix, 1, "n", tmp_path, ["model"])


def test_the_self_test_passes_or_says_why(settings, tmp_path):
    CheckpointStore(settings).self_test()
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="could not be tested"):
        CheckpointStore(replace(settings, path=str(tmp_path / "file"))).self_test()


def test_an_unreadable_head_is_corrupt_and_not_absent(settings):
    FolderStore(settings.path).put("team/jobs/a/HEAD", b"?")
    with pytest.raises(Corrupt):
        CheckpointStore(settings).head("a")


def test_settings_that_describe_no_store_are_refused(settings):
    with pytest.raises(StoreError, match="without a path"):
        CheckpointStore(replace(settings, path=""))


@pytest.mark.process
def test_on_a_real_s3_store(seaweed, monkeypatch):
    monkeypatch.setenv("CK_ID", seaweed.access_key)
    monkeypatch.setenv("CK_SECRET", seaweed.secret_key)
    settings = StoreSettings(
        "s3", seaweed.endpoint, bucket=seaweed.bucket, access_key_env="CK_ID", secret_key_env="CK_SECRET"
    )
    daemon = CheckpointStore(settings)
    daemon.self_test()
    assert daemon.fence("real", 3).generation == 3
    assert open_store(mint(settings, "real", 60)).get("jobs/real/HEAD") is not None
    assert daemon.delete_job("real") == 1
