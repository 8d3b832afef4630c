"""Does this store's compare-and-swap hold? A race decides, at start-up and in `doctor`, not a vendor's word.

Everything that keeps two copies of a job from both committing rests on it, so a store that fails is refused.
"""

import os
import threading
from typing import Callable, List, Optional

from broker.wire.errors import PreconditionFailed, StoreFailed, UnknownWrite
from broker.wire.store_client import ObjectStore

WRITERS = 4
ROUNDS = 3


class CasBroken(Exception):
    """The store's compare-and-swap does not hold."""


def self_test(store: ObjectStore, prefix: str, writers: int = WRITERS, rounds: int = ROUNDS) -> Optional[str]:
    """Race `writers` threads for one object; None if the store is sound, else what is wrong with it.

    Leaves nothing behind. A store that cannot be reached has proved nothing, and is reported in the same way.
    """
    key = f"{prefix}/cas-check-{os.urandom(8).hex()}"
    try:
        for _ in range(rounds):
            _check_round(store, key, writers)
            store.delete(key)
    except CasBroken as error:
        return f"the checkpoint store's compare-and-swap does not hold: {error}; use another store"
    except StoreFailed as error:
        return f"the checkpoint store's compare-and-swap could not be tested: {error}"
    finally:
        try:
            store.delete(key)
        except StoreFailed:
            pass  # already reported, or it will be by the next request
    return None


def _check_round(store: ObjectStore, key: str, writers: int) -> None:
    if store.get(key) is not None:
        raise CasBroken("an object that was never written, or was deleted, can be read")
    if _accepted(lambda: store.put(key, b"x", if_match='"0123456789abcdef0123456789abcdef"')):
        raise CasBroken("If-Match wrote an object that did not exist")
    _race(store, key, writers, lambda data: store.put(key, data, if_absent=True), "If-None-Match: *")
    first = _etag(store, key)
    if _accepted(lambda: store.put(key, b"late", if_absent=True)):
        raise CasBroken("If-None-Match: * overwrote an object")
    _race(store, key, writers, lambda data: store.put(key, data, if_match=first), "If-Match")
    second = _etag(store, key)
    # HEAD's nonce makes two versions of equal content differ; the etag has to follow.
    if second == first:
        raise CasBroken("two different contents have the same etag")
    if _accepted(lambda: store.put(key, b"stale", if_match=first)):
        raise CasBroken("If-Match accepted a stale etag")
    store.put(key, b"next", if_match=second)
    if (store.get(key) or (b"",))[0] != b"next":
        raise CasBroken("a write that was accepted cannot be read back")


def _race(store: ObjectStore, key: str, writers: int, write: Callable[[bytes], str], condition: str) -> None:
    """All at once; exactly one may win, and its bytes must be what is there.

    Raises:
        CasBroken: none or several won, or what is there is not the winner's.
        StoreFailed: a writer could not be heard, so the race proves nothing.
    """
    start = threading.Barrier(writers)
    winners: List[bytes] = []
    doubtful: List[bytes] = []
    failures: List[StoreFailed] = []

    def run() -> None:
        data = os.urandom(16).hex().encode()
        start.wait()
        try:
            write(data)
            winners.append(data)
        except PreconditionFailed:
            pass
        except UnknownWrite:
            doubtful.append(data)
        except StoreFailed as error:
            failures.append(error)

    threads = [threading.Thread(target=run, name=f"cas-{number}") for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    there = (store.get(key) or (b"",))[0]
    winners += [data for data in doubtful if data == there]
    if len(winners) != 1:
        raise CasBroken(
            f"of {writers} simultaneous writes with `{condition}` {len(winners)} were accepted, not one"
        )
    if winners[0] != there:
        raise CasBroken(f"a write with `{condition}` was accepted, but another one is there")


def _accepted(write: Callable[[], str]) -> bool:
    try:
        write()
    except PreconditionFailed:
        return False
    return True


def _etag(store: ObjectStore, key: str) -> str:
    found = store.get(key)
    if found is None or not found[1]:
        raise CasBroken("an object that was just written has no etag, or cannot be read")
    return found[1]
