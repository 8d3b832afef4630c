from dataclasses import replace

import pytest

from broker.checkpoint.commits import CheckpointStore
from broker.checkpoint.credentials import StoreSettings, mint
from broker.core.errors import Conflict, Corrupt, StoreError
from broker.wire.commit import write_commit
from broker.wire.errors import Fenced
from broker.wire.folder_store import FolderStore
from broker.wire.head import head_key
from broker.wire.store_client import open_store
from tests.exhaustive.objects import MemoryCheckpoints, Objects


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


class Recording(Objects):
    """Remembers in which order keys were deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[str] = []

    def delete(self, key: str) -> None:
        self.deleted.append(key)
        super().delete(key)


def test_head_is_deleted_last() -> None:
    objects = Recording()
    store = MemoryCheckpoints(objects)
    store.fence("train-1", 1)
    prefix = store.prefix("train-1")
    for name in ("A-chunk", "chunk", "manifest"):
        objects.put(f"{prefix}/{name}", b"x")
    store.fence("train-10", 1)
    assert store.job_ids() == ["train-1", "train-10"]
    assert store.delete_job("train-1") == 4
    assert objects.deleted[-1] == head_key(prefix)
    assert store.job_ids() == ["train-10"]


@pytest.mark.parametrize("prefix", ["", "team", "X"])
def test_the_race_at_the_start_is_run_under_a_key_of_its_own(settings, prefix):
    class Keys(Objects):
        def __init__(self):
            super().__init__()
            self.seen = set()

        def put(self, key, data, if_match=None, if_absent=False):
            self.seen.add(key)
            return super().put(key, data, if_match, if_absent)

    store, objects = CheckpointStore(replace(settings, prefix=prefix)), Keys()
    store._store = objects
    store.self_test()
    assert objects.seen
    assert all(key.startswith(f"{prefix}/self-test".lstrip("/")) for key in objects.seen)


def test_no_two_fences_write_the_same_head(settings):
    """Equal ones would have equal etags, and a writer that slept through both could swap over the newer."""
    daemon = CheckpointStore(settings)
    nonces = {daemon.fence(job, 1).nonce for job in ("a", "b", "c")}
    assert len(nonces) == 3
    assert all(len(nonce) == 32 for nonce in nonces)


def test_a_generation_has_one_holder(settings):
    daemon = CheckpointStore(settings)
    assert daemon.fence("a", 1, "bk-1").holder == "bk-1"
    assert daemon.fence("a", 1, "bk-1") == daemon.head("a"), "its own fence, once more"
    with pytest.raises(Conflict, match="held by bk-1, not by bk-2"):
        daemon.fence("a", 1, "bk-2")
    assert daemon.fence("a", 2, "bk-2").holder == "bk-2"


def test_who_names_no_holder_says_nothing_of_one(settings):
    daemon = CheckpointStore(settings)
    daemon.fence("a", 1)
    assert daemon.fence("a", 1, "bk-1").holder == ""


def test_a_head_that_is_gone_is_refused_to_a_job_that_had_one(settings):
    daemon = CheckpointStore(settings)
    daemon.fence("a", 1, "bk-1")
    assert daemon.fence("a", 2, "bk-2", must_exist=True).generation == 2
    FolderStore(settings.path).delete(head_key("team/jobs/a"))
    with pytest.raises(Corrupt, match="it is gone, and this job had one"):
        daemon.fence("a", 3, "bk-3", must_exist=True)
    assert daemon.head("a") is None, "and none is made in its place"
    assert daemon.fence("a", 3, "bk-3").generation == 3, "to a job that had none it is given"


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
