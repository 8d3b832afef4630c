import os
import threading
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.wire import commit as commit_module
from broker.wire.commit import restore, write_commit
from broker.wire.errors import Fenced, LostRace, SourceChanged, StoreFailed, UnknownWrite
from broker.wire.folder_store import FolderStore
from broker.wire.head import fence, read_head
from broker.wire.manifest import load_manifest
from tests.unit.wire.faulty import Counting, Lossy, Through

JOB = "jobs/x"
CHUNK = 64
nonces = (f"n{number}" for number in count())


def names(root):
    return [
        str(path.relative_to(root)) for path in sorted(root.rglob("*")) if path.is_symlink() or path.is_file()
    ]


def save(store, root, generation=1, job=JOB, **more):
    return write_commit(store, job, generation, next(nonces), root, names(root), chunk_bytes=CHUNK, **more)


def content(root):
    return {name: (root / name).read_bytes() for name in names(root)}


def test_comes_back_with_bytes_times_modes_and_links(any_store, prefix, tree, tmp_path):
    (tree / "step-1").mkdir()
    (tree / "step-1" / "model.bin").write_bytes(os.urandom(5 * CHUNK + 1))
    (tree / "step-1" / "empty").touch(mode=0o600)
    (tree / "latest").symlink_to("step-1/model.bin")
    (tree / "outside").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("kept as a file")
    os.utime(tree / "step-1" / "model.bin", ns=(1, 1_700_000_000_123_456_789))
    os.utime(tree / "step-1" / "empty", ns=(1, 1_600_000_000_000_000_000))
    fence(any_store, prefix, 1, "f")
    head = save(any_store, tree, job=prefix, step=7, metrics={"loss": 0.5}, created_ms=99)
    assert (head.generation, head.seq) == (1, 1)

    dest = tmp_path / "landed"
    restored = restore(any_store, prefix, dest)
    assert restored.head == head
    assert (restored.manifest.step, restored.manifest.metrics, restored.fell_back) == (7, {"loss": 0.5}, ())
    assert content(dest) == content(tree)
    assert os.readlink(dest / "latest") == "step-1/model.bin"
    assert (dest / "outside").read_text() == "kept as a file"
    assert (dest / "step-1/model.bin").stat().st_mtime_ns == 1_700_000_000_123_456_789
    assert (dest / "step-1").stat().st_mtime_ns == 1_700_000_000_123_456_789
    assert (dest / "step-1/empty").stat().st_mode & 0o777 == 0o600


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=3 * CHUNK), max_size=4), st.integers(min_value=1, max_value=2 * CHUNK))
def test_any_files_in_any_chunk_size(tmp_path_factory, contents, chunk_bytes):
    folder = tmp_path_factory.mktemp("any")
    store, root = FolderStore(str(folder / "s")), folder / "r"
    root.mkdir()
    for number, data in enumerate(contents):
        (root / str(number)).write_bytes(data)
    fence(store, JOB, 1, "f")
    head = write_commit(store, JOB, 1, "n", root, names(root), chunk_bytes=chunk_bytes)
    manifest = load_manifest(store, JOB, head.link)
    assert manifest.bytes == sum(map(len, contents))
    assert all(chunk.size <= chunk_bytes for chunk in manifest.chunks().values())
    restore(store, JOB, folder / "d")
    assert content(folder / "d") == content(root)


def test_sends_only_what_head_does_not_name(store, tree):
    counting = Counting(store)
    fence(counting, JOB, 1, "f")
    (tree / "a").write_bytes(b"1" * CHUNK + b"2" * CHUNK)
    (tree / "twin").write_bytes(b"1" * CHUNK)
    save(counting, tree)
    assert counting.chunks() == 2
    save(counting, tree)
    assert counting.chunks() == 0
    (tree / "a").write_bytes(
        b"1" * CHUNK + b"3" * CHUNK
    )  # found by hash: size and mtime say nothing any more
    head = save(counting, tree)
    assert counting.chunks() == 1
    (tree / "a").write_bytes(
        b"1" * CHUNK + b"2" * CHUNK
    )  # HEAD does not name it now: a new key, whatever is there
    save(counting, tree)
    assert counting.chunks() == 1
    assert [commit.seq for commit in load_manifest(store, JOB, head.link).ancestors] == [2, 1]


def test_a_repeated_attempt_resumes(store, tree):
    class Breaks(Through):
        left = 5

        def put(self, key, data, if_match=None, if_absent=False):
            if "/chunks/" in key:
                if self.left == 0:
                    raise StoreFailed("gone")
                self.left -= 1
            return super().put(key, data, if_match, if_absent)

    fence(store, JOB, 1, "f")
    (tree / "a").write_bytes(os.urandom(8 * CHUNK))
    with pytest.raises(StoreFailed, match="gone"):
        save(Breaks(store), tree, threads=1)
    assert read_head(store, JOB)[0].seq == 0
    counting = Counting(store)
    save(counting, tree)
    assert counting.chunks() == 3


def test_a_chunk_that_has_vanished_is_sent_again(store, tree, tmp_path):
    fence(store, JOB, 1, "f")
    (tree / "a").write_bytes(b"1" * CHUNK)
    head = save(store, tree)
    (key,) = load_manifest(store, JOB, head.link).chunks()
    store.delete(f"{JOB}/{key}")
    save(store, tree)
    restored = restore(store, JOB, tmp_path / "d")
    assert restored.fell_back == ()


def test_a_file_that_changes_meanwhile_is_no_checkpoint(store, tree):
    class Meddles(Through):
        def put(self, key, data, if_match=None, if_absent=False):
            with (tree / "a").open("ab") as file:
                file.write(b"more")
            return super().put(key, data, if_match, if_absent)

    fence(store, JOB, 1, "f")
    (tree / "a").write_bytes(b"1" * 10)
    with pytest.raises(SourceChanged, match="a changed"):
        save(Meddles(store), tree)
    assert read_head(store, JOB)[0].seq == 0


def test_a_copy_that_was_cut_off_cannot_commit(store, tree):
    """Neither one that starts after the fence, nor one that was uploading when it happened."""
    (tree / "a").write_bytes(b"1")
    with pytest.raises(Fenced, match="nobody"):
        save(store, tree)
    fence(store, JOB, 1, "f")
    save(store, tree)

    class FencedMeanwhile(Through):
        def put(self, key, data, if_match=None, if_absent=False):
            if "/manifests/" in key:
                fence(self.inner, JOB, 2, "g")
            return super().put(key, data, if_match, if_absent)

    (tree / "a").write_bytes(b"22")
    with pytest.raises(Fenced):
        save(FencedMeanwhile(store), tree)
    with pytest.raises(Fenced, match="generation 2, not to generation 1"):
        save(store, tree)
    assert (read_head(store, JOB)[0].generation, read_head(store, JOB)[0].seq) == (2, 1)


def test_of_two_committers_exactly_one_wins(any_store, prefix, tmp_path):
    fence(any_store, prefix, 1, "f")
    start = threading.Barrier(2)
    won, lost = [], []

    class Together(Through):
        def put(self, key, data, if_match=None, if_absent=False):
            if if_match is not None:
                start.wait()
            return super().put(key, data, if_match, if_absent)

    def run(name):
        root = tmp_path / name
        root.mkdir()
        (root / "who").write_text(name)
        try:
            won.append((save(Together(any_store), root, job=prefix), name))
        except LostRace:
            lost.append(name)

    threads = [threading.Thread(target=run, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ((head, name),) = won
    assert len(lost) == 1
    assert read_head(any_store, prefix)[0] == head
    restore(any_store, prefix, tmp_path / "d")
    assert (tmp_path / "d/who").read_text() == name


def test_a_commit_whose_reply_was_lost_counts_once(store, tree):
    fence(store, JOB, 1, "f")
    (tree / "a").write_bytes(b"1")
    assert save(Lossy(store, ["done"]), tree).seq == 1
    with pytest.raises(UnknownWrite):
        save(Lossy(store, ["undone"] * 9), tree)
    assert save(store, tree).seq == 2


def test_ancestors_are_bounded(store, tree, monkeypatch):
    monkeypatch.setattr(commit_module, "_ANCESTORS_MAX", 3)
    fence(store, JOB, 1, "f")
    (tree / "a").write_bytes(b"1")
    for _ in range(6):
        head = save(store, tree)
    assert [commit.seq for commit in load_manifest(store, JOB, head.link).ancestors] == [5, 4, 3]
