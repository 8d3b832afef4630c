import os

import pytest

from broker.wire.commit import prefetch, restore, retain, write_commit
from broker.wire.errors import Damaged, StoreFailed
from broker.wire.head import Head, fence, read_head, swap_head
from broker.wire.manifest import FileEntry, Manifest, encode_manifest, load_manifest
from tests.unit.wire.faulty import Counting, Through
from tests.unit.wire.test_commit import CHUNK, JOB, content, save


@pytest.fixture
def three(store, tree):
    """A store with three commits of a file that changes, beside one that does not."""
    fence(store, JOB, 1, "f")
    (tree / "fixed").write_bytes(b"f" * CHUNK)
    for step in (1, 2, 3):
        (tree / "model").write_bytes(str(step).encode() * CHUNK)
        save(store, tree, step=step)
    return store


def newest_chunk(store, root_name="model"):
    head = read_head(store, JOB)[0]
    entry = next(e for e in load_manifest(store, JOB, head.link).files if e.path == root_name)
    return entry.chunks[0].key


def damage(store, key):
    store.put(f"{JOB}/{key}", b"!" * CHUNK)


def test_without_a_commit_nothing_is_touched(store, tmp_path):
    dest = tmp_path / "d"
    assert restore(store, JOB, dest).head is None
    head = fence(store, JOB, 1, "f")
    assert restore(store, JOB, dest).head == head
    assert not dest.exists()


def test_holds_exactly_the_commit_afterwards(three, tree, tmp_path):
    dest = tmp_path / "d"
    (dest / "checkpoint-900").mkdir(parents=True)
    (dest / "checkpoint-900" / "half").touch()
    (dest / ".set-aside").mkdir()
    (dest / "model").write_text("old")
    restore(three, JOB, dest)
    assert content(dest) == content(tree)
    assert sorted(path.name for path in dest.iterdir()) == [".set-aside", "fixed", "model"]


@pytest.mark.parametrize("how", ["corrupt", "missing", "truncated"])
def test_a_damaged_chunk_falls_back_one_commit_and_says_so(three, tmp_path, how):
    key = newest_chunk(three)
    if how == "missing":
        three.delete(f"{JOB}/{key}")
    else:
        three.put(f"{JOB}/{key}", b"rotten" if how == "corrupt" else b"3" * (CHUNK - 1))
    newest = read_head(three, JOB)[0].manifest
    restored = restore(three, JOB, tmp_path / "d")
    assert restored.manifest.step == 2
    assert (tmp_path / "d/model").read_bytes() == b"2" * CHUNK
    ((manifest, why),) = restored.fell_back
    assert manifest == newest
    assert key in why


def test_damage_is_not_carried_on_by_the_next_commit(three, tree, tmp_path):
    """The same bytes again, as a trainer that repeats its steps writes them: they must go to the store anew."""
    damage(three, newest_chunk(three))
    restore(three, JOB, tmp_path / "d")
    head = save(three, tree, step=4)
    restored = restore(three, JOB, tmp_path / "d")
    assert (restored.head, restored.manifest.step, restored.fell_back) == (head, 4, ())
    assert content(tmp_path / "d") == content(tree)
    retain(three, JOB, 1, keep_last=1)
    assert three.list(f"{JOB}/damaged/") == []


def test_falls_as_far_as_it_must(three, tmp_path):
    damage(three, newest_chunk(three))
    before = load_manifest(three, JOB, read_head(three, JOB)[0].link).ancestors[0]
    three.put(f"{JOB}/{before.manifest}", b"rotten")
    restored = restore(three, JOB, tmp_path / "d")
    assert restored.manifest.step == 1
    assert restored.fell_back[1] == (before.manifest, "manifest does not match its hash")


def test_a_damaged_manifest_falls_back_too(three, tmp_path):
    three.delete(f"{JOB}/{read_head(three, JOB)[0].manifest}")
    assert restore(three, JOB, tmp_path / "d").manifest.step == 2


def test_when_nothing_is_left_it_never_starts_from_scratch(three, tree, tmp_path):
    damage(three, newest_chunk(three, "fixed"))  # all three commits share it
    with pytest.raises(Damaged, match="no commit can be restored"):
        restore(three, JOB, tmp_path / "d")
    assert list((tmp_path / "d").iterdir()) == []


def test_the_retained_chain_ends_cleanly(three, tmp_path):
    retain(three, JOB, 1, keep_last=2)
    damage(three, newest_chunk(three))
    assert restore(three, JOB, tmp_path / "d").manifest.step == 2
    three.delete(f"{JOB}/{newest_chunk(three, 'fixed')}")
    with pytest.raises(Damaged) as caught:
        restore(three, JOB, tmp_path / "d")
    assert str(caught.value).count("manifests/") == 2


def test_an_unreachable_store_is_no_damage(three, tmp_path):
    class Down(Through):
        def get(self, key):
            if "/chunks/" in key:
                raise StoreFailed("down")
            return super().get(key)

    with pytest.raises(StoreFailed, match="down"):
        restore(Down(three), JOB, tmp_path / "d")


def test_one_bad_read_is_forgiven(three, tmp_path):
    class Flaky(Through):
        bad = 1

        def get(self, key):
            found = super().get(key)
            if "/chunks/" in key and self.bad:
                self.bad -= 1
                return b"noise", found[1]
            return found

    restored = restore(Flaky(three), JOB, tmp_path / "d")
    assert (restored.manifest.step, restored.fell_back) == (3, ())
    assert three.list(f"{JOB}/damaged/") == []


def test_a_link_that_leads_out_is_damage_and_not_followed(store, tmp_path):
    fence(store, JOB, 1, "f")
    data, link = encode_manifest(Manifest(1, 1, (FileEntry("a", 0, 0, 0o777, (), "../../etc"),)))
    store.put(f"{JOB}/{link.manifest}", data)
    _, etag = read_head(store, JOB)
    swap_head(store, JOB, etag, Head(1, 1, "n", link.manifest, link.sha256))
    with pytest.raises(Damaged, match="out of the checkpoint folder"):
        restore(store, JOB, tmp_path / "d")


def test_prefetched_chunks_are_not_fetched_again(three, tree, tmp_path):
    cache = tmp_path / "cache"
    assert prefetch(three, JOB, cache) == prefetch(three, JOB, cache)
    assert prefetch(three, JOB, cache).chunks == 2
    (tree / "model").write_bytes(os.urandom(CHUNK))
    save(three, tree, step=4)

    class Fetches(Counting):
        def get(self, key):
            self.written.append(key)
            return super().get(key)

    fetches = Fetches(three)
    restore(fetches, JOB, tmp_path / "d", cache=cache)
    assert fetches.chunks() == 1
    assert content(tmp_path / "d") == content(tree)
    prefetch(three, JOB, cache)
    assert len(list(cache.iterdir())) == 2


def test_a_rotten_cache_is_seen_through(three, tree, tmp_path):
    cache = tmp_path / "cache"
    prefetch(three, JOB, cache)
    for path in cache.iterdir():
        path.write_bytes(b"rotten")
    assert restore(three, JOB, tmp_path / "d", cache=cache).fell_back == ()
    assert content(tmp_path / "d") == content(tree)


def test_prefetch_before_the_first_commit_and_against_damage(store, three, tmp_path):
    assert prefetch(store, "jobs/other", tmp_path / "c").chunks == 0
    three.delete(f"{JOB}/{newest_chunk(three)}")
    got = prefetch(three, JOB, tmp_path / "c")
    assert (got.chunks, got.missing, got.bytes) == (1, 1, CHUNK)


def test_a_new_owner_goes_on_from_the_old_ones_commit(any_store, prefix, tree, tmp_path):
    fence(any_store, prefix, 1, "f")
    (tree / "model").write_bytes(b"1" * 3 * CHUNK)
    save(any_store, tree, job=prefix, step=1)
    fence(any_store, prefix, 2, "g")
    landed = tmp_path / "landed"
    restore(any_store, prefix, landed)
    (landed / "more").write_bytes(b"2" * CHUNK)
    head = write_commit(any_store, prefix, 2, "h", landed, ["model", "more"], step=2, chunk_bytes=CHUNK)
    assert (head.generation, head.seq) == (2, 2)
    assert restore(any_store, prefix, tmp_path / "again").manifest.step == 2
    assert content(tmp_path / "again") == content(landed)
