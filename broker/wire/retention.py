"""Delete what the last commits do not need, also against a zombie: a paused copy of the job that wakes up late.

A zombie's deletes cannot be fenced. It may have read HEAD at commit m, worked out what to delete, and then slept
while a new owner committed on up to n; or its DELETE requests may be on their way for minutes. So it must be
*impossible* that what was garbage at m is needed at n. Three rules make it so:

1. A chunk's key carries the generation and the seq of the commit that wrote it. Content that comes back later is
   written under a new key: a key that is garbage once is garbage for ever.
2. A commit reuses only chunks that HEAD's own manifest names (`write_commit`).
3. Retention at HEAD m leaves alone every key whose seq is above m, and keeps all that HEAD m names.

Take a key K that HEAD n names, n > m. If its seq is above m, rule 3 spares it. If not, some commit at or before m
wrote it, and by rule 2 every HEAD from then to n names it; m is among them, and rule 3 keeps it. Fences do not
disturb this: they put the same manifest into a new version of HEAD, and a zombie's swap is refused after one.
The commits kept beside HEAD follow: the last N of n that are not above m are among the last N of m; and the best
of n, if it is not above m, was the best of m (of equal ones the newest is taken). This needs both owners to run
with the same `keep_last` and `keep_best`, which are the job's and do not change.

Rule 3 also covers a swap whose reply was lost and which may yet happen: its seq is above HEAD's until HEAD moves,
and when HEAD has moved, its etag is stale and it never will. Retention of generation g deletes nothing that a
newer generation wrote, even if all of the above were wrong.
"""

from dataclasses import dataclass
from math import isfinite, nan
from typing import List, Optional, Sequence, Set, Tuple

from broker.wire.errors import Damaged, Fenced
from broker.wire.head import Link, read_head
from broker.wire.lineage import trace
from broker.wire.manifest import CHUNKS, DAMAGED, MANIFESTS, Ancestor, load_manifest, origin
from broker.wire.parallel import run_all
from broker.wire.store_client import ObjectStore

THREADS = 4


@dataclass(frozen=True)
class Retained:
    """What is left of a job's commits.

    Attributes:
        kept: Manifests that stay, newest first.
        deleted_manifests, deleted_chunks: How many objects went.
    """

    kept: Tuple[str, ...] = ()
    deleted_manifests: int = 0
    deleted_chunks: int = 0


def retain(
    store: ObjectStore,
    prefix: str,
    generation: int,
    keep_last: int,
    keep_best: Optional[Tuple[str, str]] = None,
    threads: int = THREADS,
) -> Retained:
    """Delete every manifest and chunk that the last `keep_last` commits and the best one do not need.

    Repeated, it goes on where it stopped. While HEAD's own manifest is damaged it deletes nothing.

    Args:
        generation: Ours; what newer ones wrote is never touched.
        keep_last: At least 1; with 1 there is nothing to fall back to.
        keep_best: Metric and ``min`` or ``max``.

    Raises:
        Fenced: HEAD is not of this generation; nothing was deleted.
        StoreFailed: some of it may have been deleted.
    """
    assert keep_last >= 1, keep_last
    found = read_head(store, prefix)
    if found is None or found[0].generation != generation:
        raise Fenced(f"{prefix}: HEAD is not of generation {generation}; retention is for its owner")
    head = found[0]
    lineage = trace(store, prefix, head)
    if lineage.manifest is None:
        return Retained()
    kept: List[str] = []
    needed: Set[str] = set(lineage.manifest.chunks())
    for commit in _choose(lineage.commits, keep_last, keep_best):
        try:
            needed |= set(load_manifest(store, prefix, Link(commit.manifest, commit.sha256)).chunks())
        except Damaged:
            continue  # nobody can restore a commit whose manifest is gone: it protects nothing
        kept.append(commit.manifest)

    def doomed(folder: str, keep: Set[str]) -> List[str]:
        skip = len(prefix) + 1
        found = []
        for key, _ in store.list(f"{prefix}/{folder}"):
            writer = origin(key[skip:])
            ours = writer is not None and writer[0] <= generation and writer[1] <= head.seq
            if ours and key[skip:] not in keep:
                found.append(key)
        return found

    # Manifests first: stopped in between, a chunk without a manifest is garbage for the next pass, while a
    # manifest without its chunks would look like damage to a restore.
    manifests = doomed(MANIFESTS, set(kept))
    run_all(threads, store.delete, manifests)
    chunks = doomed(CHUNKS, needed)
    run_all(threads, store.delete, chunks)
    _drop_stale_marks(store, prefix, needed)
    return Retained(tuple(kept), len(manifests), len(chunks))


def _choose(
    commits: Sequence[Ancestor], keep_last: int, keep_best: Optional[Tuple[str, str]]
) -> Tuple[Ancestor, ...]:
    """The last ones, and the best of all if it is not among them; newest first."""
    last = tuple(commits[:keep_last])
    if keep_best is None:
        return last
    metric, mode = keep_best
    assert mode in ("min", "max"), mode
    measured = [commit for commit in commits if isfinite(commit.metrics.get(metric, nan))]
    if not measured:
        return last
    sign = 1 if mode == "min" else -1
    best = min(
        measured, key=lambda commit: sign * commit.metrics[metric]
    )  # the newest of equal ones: first wins
    return last if best in last else (*last, best)


def _drop_stale_marks(store: ObjectStore, prefix: str, needed: Set[str]) -> None:
    """A mark of damage is of use while a kept commit names its chunk."""
    skip = len(f"{prefix}/{DAMAGED}")
    for key, _ in store.list(f"{prefix}/{DAMAGED}"):
        if key[skip:] not in needed:
            store.delete(key)
