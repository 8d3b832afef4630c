import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.wire.commit import restore, retain
from broker.wire.errors import Fenced, UnknownWrite
from broker.wire.head import fence, read_head
from broker.wire.manifest import load_manifest
from tests.unit.wire.faulty import LateDeletes, Lossy, Memory
from tests.unit.wire.test_commit import CHUNK, JOB, save


def seqs(store):
    return sorted(int(key.split("-s")[1][:8]) for key, _ in store.list(f"{JOB}/manifests/"))


def train(store, tree, steps, generation=1, **more):
    for step in steps:
        (tree / "model").write_bytes(f"{step:04d}".encode() * (CHUNK // 4))
        save(store, tree, generation, step=step, **more)


def test_keeps_the_last_and_the_best_and_only_their_chunks(store, tree):
    fence(store, JOB, 1, "f")
    for step, loss in enumerate([5.0, 1.0, float("nan"), 3.0, 2.0, 4.0], start=1):
        train(store, tree, [step], metrics={"loss": loss})
    retained = retain(store, JOB, 1, keep_last=2, keep_best=("loss", "min"))
    assert seqs(store) == [2, 5, 6]
    assert (len(retained.kept), retained.deleted_manifests, retained.deleted_chunks) == (3, 3, 3)
    assert len(store.list(f"{JOB}/chunks/")) == 3
    train(store, tree, [7], metrics={"loss": 9.0})
    retain(store, JOB, 1, keep_last=2, keep_best=("loss", "min"))
    assert seqs(store) == [2, 6, 7]
    retain(store, JOB, 1, keep_last=1, keep_best=("loss", "max"))
    assert seqs(store) == [7]
    assert retain(store, JOB, 1, keep_last=1).deleted_manifests == 0


def test_is_for_the_owner_alone(store, tree):
    fence(store, JOB, 1, "f")
    train(store, tree, [1, 2, 3])
    fence(store, JOB, 2, "g")
    with pytest.raises(Fenced):
        retain(store, JOB, 1, keep_last=1)
    assert seqs(store) == [1, 2, 3]


def test_nothing_goes_while_heads_manifest_is_damaged(store, tree):
    fence(store, JOB, 1, "f")
    train(store, tree, [1, 2, 3])
    store.put(f"{JOB}/{read_head(store, JOB)[0].manifest}", b"rotten")
    assert retain(store, JOB, 1, keep_last=1).deleted_manifests == 0
    assert seqs(store) == [1, 2, 3]


def test_a_commit_that_may_yet_happen_is_left_alone(store, tree, tmp_path):
    """Its swap was sent, every reply was lost, and it lands after retention ran."""
    fence(store, JOB, 1, "f")
    train(store, tree, [1])

    class Delayed(Lossy):
        def put(self, key, data, if_match=None, if_absent=False):
            if if_match is not None:
                self.swap = lambda: self.inner.put(key, data, if_match)
                raise UnknownWrite("on its way")
            return super().put(key, data, if_match, if_absent)

    delayed = Delayed(store)
    with pytest.raises(UnknownWrite):
        train(delayed, tree, [2])
    retain(store, JOB, 1, keep_last=1)
    delayed.swap()
    assert restore(store, JOB, tmp_path / "d").manifest.step == 2


def test_garbage_of_a_zombie_goes_once_head_has_moved_on(store, tree):
    fence(store, JOB, 1, "f")
    train(store, tree, [1])

    class Overtaken(Lossy):
        def put(self, key, data, if_match=None, if_absent=False):
            if if_match is not None:
                fence(self.inner, JOB, 2, "g")
            return self.inner.put(key, data, if_match, if_absent)

    with pytest.raises(Fenced):
        train(Overtaken(store), tree, [100])
    assert seqs(store) == [1, 2]
    train(store, tree, [2, 3], generation=2)
    retain(store, JOB, 2, keep_last=3)
    assert [
        key for key, _ in store.list(f"{JOB}/") if "g000001-s00000002" in key or "g000001/s00000002" in key
    ] == []
    assert seqs(store) == [1, 2, 3]


def test_what_a_newer_generation_wrote_is_out_of_reach(store, tree, tmp_path):
    """A zombie slept between working out what to delete and deleting it."""
    fence(store, JOB, 1, "f")
    train(store, tree, [1, 2, 3, 4])
    zombie = LateDeletes(store)
    retain(zombie, JOB, 1, keep_last=2)
    assert zombie.pending
    fence(store, JOB, 2, "g")
    restore(store, JOB, tmp_path / "landed")
    train(store, tmp_path / "landed", [1, 2, 5], generation=2)  # content that the zombie holds to be garbage
    zombie.arrive()
    assert restore(store, JOB, tmp_path / "d").manifest.step == 5


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["commit", "retain", "fence", "arrive"]), st.integers(0, 3), st.integers(0, 3)),
    min_size=5,
    max_size=25,
)


@settings(max_examples=200, deadline=None)
@given(ACTIONS)
def test_deletes_that_arrive_at_any_later_time_hurt_no_kept_commit(tmp_path_factory, actions):
    """All deletes of all owners are on their way until an `arrive`; contents come from a few, so that they return."""
    folder = tmp_path_factory.mktemp("late")
    store, tree = Memory(), folder / "tree"
    tree.mkdir()
    late = LateDeletes(store)
    generation = 1
    keep = {"keep_last": 2, "keep_best": ("loss", "min")}
    fence(late, JOB, generation, "f")
    try:
        for action, first, second in actions:
            if action == "commit":
                (tree / "a").write_bytes(bytes([first]) * CHUNK)
                (tree / "b").write_bytes(bytes([second]) * CHUNK + bytes([first]) * CHUNK)
                save(late, tree, generation, threads=1, metrics={"loss": float(first)})
            elif action == "retain":
                retain(late, JOB, generation, **keep)
            elif action == "fence":
                generation += 1
                fence(late, JOB, generation, f"g{generation}")
            else:
                late.arrive()
        head = read_head(store, JOB)[0]
        wanted = retain(LateDeletes(store), JOB, generation, **keep).kept  # as an owner would choose now
        late.arrive()
        if head.link is not None:
            present = {key[len(JOB) + 1 :] for key, _ in store.list(f"{JOB}/")}
            links = {a.manifest: a for a in (head.link, *load_manifest(store, JOB, head.link).ancestors)}
            for manifest in wanted:
                assert set(load_manifest(store, JOB, links[manifest]).chunks()) <= present
            assert restore(store, JOB, folder / "d").fell_back == ()
    finally:
        shutil.rmtree(folder)


def test_leaves_alone_what_is_not_its_own(store, tree):
    fence(store, JOB, 1, "f")
    train(store, tree, [1, 2])
    strangers = [f"chunks/g000002/s00000001/{'0' * 64}", "chunks/by-hand", "notes.txt"]
    for key in strangers:
        store.put(f"{JOB}/{key}", b"?")
    retain(store, JOB, 1, keep_last=1)
    assert all(store.get(f"{JOB}/{key}") for key in strangers)
