"""One contract for every kind of store."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from broker.wire.cas_check import self_test
from broker.wire.errors import PreconditionFailed


def test_an_object_is_read_as_it_was_written(any_store, prefix):
    data = bytes(range(256)) * 300
    etag = any_store.put(f"{prefix}/a b+c=ü", data)
    assert any_store.get(f"{prefix}/a b+c=ü") == (data, etag)
    any_store.put(f"{prefix}/empty", b"")
    assert any_store.get(f"{prefix}/empty")[0] == b""


def test_what_is_not_there_reads_as_none_and_can_be_deleted(any_store, prefix):
    assert any_store.get(f"{prefix}/nothing") is None
    any_store.delete(f"{prefix}/nothing")
    any_store.put(f"{prefix}/x/y", b"1")
    any_store.delete(f"{prefix}/x/y")
    assert any_store.get(f"{prefix}/x/y") is None
    assert any_store.list(f"{prefix}/") == []


def test_lists_exactly_the_prefix_sorted_with_sizes(any_store, prefix):
    for key, data in (("b/2", b"22"), ("b/10", b"333"), ("b-side", b""), ("a", b"1")):
        any_store.put(f"{prefix}/{key}", data)
    assert any_store.list(f"{prefix}/b/") == [(f"{prefix}/b/10", 3), (f"{prefix}/b/2", 2)]
    assert [key[len(prefix) + 1 :] for key, _ in any_store.list(f"{prefix}/b")] == ["b-side", "b/10", "b/2"]
    assert any_store.list(f"{prefix}/c") == []


def test_folders_are_names_one_level_down(any_store, prefix):
    for name in ("a/HEAD", "a/chunks/1", "b/deep/er", "file"):
        any_store.put(f"{prefix}/{name}", b"x")
    assert any_store.folders(f"{prefix}/") == ["a", "b"]
    assert any_store.folders(f"{prefix}/a/") == ["chunks"]
    assert any_store.folders(f"{prefix}/nothing/") == []


def test_lists_more_than_a_page(any_store, prefix):
    keys = [f"{prefix}/page/{number:04d}" for number in range(1_005)]  # a page of S3 has 1000
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: any_store.put(key, b"x"), keys))
    assert any_store.list(f"{prefix}/page/") == [(key, 1) for key in keys]


def test_conditions(any_store, prefix):
    key = f"{prefix}/HEAD"
    with pytest.raises(PreconditionFailed):
        any_store.put(key, b"0", if_match='"0123456789abcdef0123456789abcdef"')
    assert any_store.get(key) is None
    first = any_store.put(key, b"1", if_absent=True)
    with pytest.raises(PreconditionFailed):
        any_store.put(key, b"2", if_absent=True)
    second = any_store.put(key, b"3", if_match=first)
    with pytest.raises(PreconditionFailed):
        any_store.put(key, b"4", if_match=first)
    assert any_store.get(key) == (b"3", second)
    any_store.delete(key)
    with pytest.raises(PreconditionFailed):
        any_store.put(key, b"5", if_match=second)


def test_passes_the_race(any_store, prefix):
    assert self_test(any_store, prefix, rounds=1) is None
    assert any_store.list(prefix) == []


def test_a_reader_never_sees_half_a_write(any_store, prefix):
    key = f"{prefix}/flip"
    versions = [bytes([number]) * 50_000 for number in range(20)]
    any_store.put(key, versions[0])
    seen = []
    done = threading.Event()

    def read():
        while not done.is_set():
            seen.append(any_store.get(key)[0])

    reader = threading.Thread(target=read)
    reader.start()
    for data in versions:
        any_store.put(key, data)
    done.set()
    reader.join()
    assert set(seen) <= set(versions)
