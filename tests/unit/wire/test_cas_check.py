"""The self-test must catch the ways in which stores get compare-and-swap wrong."""

import time
from contextlib import contextmanager

import pytest

from broker.wire.cas_check import self_test
from broker.wire.errors import StoreFailed
from broker.wire.folder_store import FolderStore
from tests.unit.wire.faulty import Through


class NoLock(FolderStore):
    """Compares, then writes, with time in between: the classic."""

    @contextmanager
    def _lock(self):
        yield

    def _compare(self, key, if_match):
        super()._compare(key, if_match)
        time.sleep(0.01)


class IgnoresIfMatch(Through):
    def put(self, key, data, if_match=None, if_absent=False):
        return super().put(key, data, if_absent=if_absent)


class IgnoresIfAbsent(Through):
    def put(self, key, data, if_match=None, if_absent=False):
        return super().put(key, data, if_match=if_match)


class OneEtag(Through):
    def get(self, key):
        found = super().get(key)
        return found and (found[0], "same")

    def put(self, key, data, if_match=None, if_absent=False):
        if if_match == "same":
            if_match = super().get(key)[1]
        return super().put(key, data, if_match, if_absent)


class NeverAccepts(Through):
    def put(self, key, data, if_match=None, if_absent=False):
        return super().put(key, data, if_match="no" if if_match else None, if_absent=if_absent)


class Down(Through):
    def put(self, key, data, if_match=None, if_absent=False):
        raise StoreFailed("no route to host")


def test_a_sound_store_passes_and_is_left_clean(store):
    assert self_test(store, "check") is None
    assert store.list("") == []


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (IgnoresIfMatch, "If-Match wrote an object that did not exist"),
        (IgnoresIfAbsent, "`If-None-Match: *` 4 were accepted, not one"),
        (NeverAccepts, "`If-Match` 0 were accepted, not one"),
    ],
)
def test_a_store_that_does_not_compare_is_refused(store, broken, says):
    text = self_test(broken(store), "check")
    assert says in text
    assert "use another store" in text
    assert store.list("") == []


def test_a_store_whose_etags_never_change_is_refused(store):
    text = self_test(OneEtag(store), "check")
    # In the race a second writer may read the first one's etag and win too; which of the two is seen first is luck.
    assert "same etag" in text or ("`If-Match`" in text and "were accepted, not one" in text)
    assert store.list("") == []


def test_a_store_that_compares_and_then_writes_is_refused(tmp_path):
    assert "were accepted, not one" in self_test(NoLock(str(tmp_path)), "check")


def test_a_store_that_is_down_has_proved_nothing(store):
    assert self_test(Down(store), "check") == (
        "the checkpoint store's compare-and-swap could not be tested: no route to host"
    )
