"""HEAD of every job, read again and again beside whoever writes it: it may only ever go forward."""

import threading
from collections.abc import Callable

from broker.wire.errors import WireError
from broker.wire.head import Head, read_head
from broker.wire.manifest import origin
from broker.wire.store_client import ObjectStore

_EVERY_S = 0.1


class HeadWatch:
    """A thread that looks, and remembers what was wrong.

    Args:
        store: Object store and prefix of a job.

    Attributes:
        wrong: One line for each step back.
        seen: How many versions of HEAD it has seen, by job.
    """

    def __init__(self, store: Callable[[str], tuple[ObjectStore, str]]) -> None:
        self._store = store
        self._open: dict[str, tuple[ObjectStore, str]] = {}
        self._last: dict[str, Head] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="heads", daemon=True)
        self.wrong: list[str] = []
        self.seen: dict[str, int] = {}

    def start(self) -> "HeadWatch":
        """Look from now on."""
        self._thread.start()
        return self

    def watch(self, job_id: str) -> None:
        """This job too."""
        self._open = self._open | {job_id: self._store(job_id)}

    def last(self, job_id: str) -> Head | None:
        """What it has seen last."""
        return self._last.get(job_id)

    def stop(self) -> None:
        """Look once more, and no longer. Harmless when called twice."""
        if self._over.is_set() or not self._thread.is_alive():
            return
        self._over.set()
        self._thread.join(30)
        self._look_once()

    def _look(self) -> None:
        while not self._over.wait(_EVERY_S):
            self._look_once()

    def _look_once(self) -> None:
        for job_id, (store, prefix) in self._open.items():
            try:
                found = read_head(store, prefix)
            except (WireError, OSError):
                continue  # the store is down; what it says when it is back counts
            before, now = self._last.get(job_id), found[0] if found else None
            if now == before:
                continue
            self.wrong += [f"{job_id}: {text}" for text in steps_back(before, now)]
            self.seen[job_id] = self.seen.get(job_id, 0) + 1
            if now is not None:
                self._last[job_id] = now


def steps_back(before: Head | None, now: Head | None) -> list[str]:
    """What cannot have happened between two looks at one HEAD, however many versions lie between them."""
    if now is None:
        return [] if before is None else ["HEAD has vanished"]
    wrong = []
    writer = origin(now.manifest)
    if (writer is None) != (now.seq == 0):
        return [f"HEAD says commit {now.seq} and names {now.manifest!r}"]
    if writer is not None and writer[1] != now.seq:
        wrong.append(f"HEAD says commit {now.seq} and names {now.manifest}")
    if writer is not None and writer[0] > now.generation:
        wrong.append(
            f"generation {now.generation} names {now.manifest}, of a generation that HEAD has not reached"
        )
    if before is None:
        return wrong
    if now.generation < before.generation:
        wrong.append(f"generation {before.generation} was followed by {now.generation}")
    if now.seq < before.seq:
        wrong.append(f"commit {before.seq} was followed by {now.seq}")
    if now.seq == before.seq and now.manifest != before.manifest:
        wrong.append(f"commit {now.seq} was {before.manifest} and is {now.manifest}")
    if now.seq == before.seq + 1 and now.previous != before.link:
        wrong.append(f"commit {now.seq} does not follow {before.manifest}")
    if writer is not None and now.seq > before.seq and writer[0] < before.generation:
        wrong.append(f"{now.manifest} was committed after generation {before.generation} held HEAD")
    return wrong
