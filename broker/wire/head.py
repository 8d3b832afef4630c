"""HEAD: the one object of a job that changes, and only by compare-and-swap.

    {generation, holder, seq, nonce, manifest, sha256, previous: {manifest, sha256}}

A commit swaps in its manifest, a fence swaps in a higher generation; each swap names the etag that it read, so
the versions of HEAD form one line, and of two writers that read the same version exactly one goes on it.

The nonce is fresh for every *intended* version and the same in every attempt at it. It does two things. Two
versions with the same content would have the same etag, and a writer that slept through both could then swap
over the newer: the nonce keeps etags apart. And when the reply to a swap is lost, the nonce tells whether the
HEAD that is read back is ours. An attempt that is still under way somewhere can land after we have read HEAD
unchanged; since a second attempt carries the same bytes and the same etag, it does not matter which one lands.

The holder is for the day when a copy of a broker's database runs beside the original. Both count on from the same
generation, so the number alone would let each believe that the other's fence was its own.
"""

import json
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Tuple

from broker.wire.bounds import is_legible, whole
from broker.wire.errors import (
    Damaged,
    Fenced,
    LostRace,
    NewerGeneration,
    PreconditionFailed,
    UnknownWrite,
)
from broker.wire.store_client import ObjectStore

HEAD_NAME = "HEAD"
_SWAP_TRIES = 4
_FENCE_TRIES = (
    32  # against an old owner that keeps committing; commits are minutes apart, so this is never reached
)


@dataclass(frozen=True)
class Link:
    """A manifest by name and hash.

    Attributes:
        manifest: Key, relative to the job's prefix.
        sha256: Of the manifest's bytes.
    """

    manifest: str
    sha256: str


@dataclass(frozen=True)
class Head:
    """One version of HEAD.

    Attributes:
        generation: Who may commit.
        seq: Of the last commit, over all generations; 0 before the first.
        nonce: Fresh for every version.
        manifest: Key of the last commit's manifest, relative to the job's prefix; empty before the first.
        manifest_sha256: Of the manifest's bytes.
        holder: To whom the generation was given: something that no two brokers draw alike. Empty says nothing.
        previous: The commit before, so that a damaged manifest has a way back too.
    """

    generation: int
    seq: int
    nonce: str
    manifest: str = ""
    manifest_sha256: str = ""
    previous: Optional[Link] = None
    holder: str = ""

    @property
    def link(self) -> Optional[Link]:
        """The last commit, or None before the first."""
        return Link(self.manifest, self.manifest_sha256) if self.manifest else None


def head_key(prefix: str) -> str:
    """Key of a job's HEAD."""
    return f"{prefix}/{HEAD_NAME}"


def encode_head(head: Head) -> bytes:
    """HEAD as it lies in the store."""
    document = {
        "generation": head.generation,
        "holder": head.holder,
        "seq": head.seq,
        "nonce": head.nonce,
        "manifest": head.manifest,
        "sha256": head.manifest_sha256,
        "previous": {"manifest": head.previous.manifest, "sha256": head.previous.sha256}
        if head.previous
        else None,
    }
    return json.dumps(document, sort_keys=True).encode()


def decode_head(data: bytes) -> Head:
    """The opposite of `encode_head`; unknown keys are ignored.

    Raises:
        Damaged: these bytes are no HEAD, or have a number or a text that no writer of ours makes.
    """
    try:
        document: Mapping[str, Any] = json.loads(data)
        previous = document.get("previous")
        head = Head(
            generation=whole(document["generation"]),
            seq=whole(document["seq"]),
            nonce=str(document["nonce"]),
            manifest=str(document["manifest"]),
            manifest_sha256=str(document["sha256"]),
            previous=Link(str(previous["manifest"]), str(previous["sha256"])) if previous else None,
            holder=str(document.get("holder", "")),
        )
        texts = [head.nonce, head.manifest, head.manifest_sha256, head.holder]
        texts += [head.previous.manifest, head.previous.sha256] if head.previous else []
        if not all(is_legible(text) for text in texts):
            raise ValueError("a text that cannot be sent")
        return head
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(HEAD_NAME, f"not a HEAD: {error!r}") from error


def read_head(store: ObjectStore, prefix: str) -> Optional[Tuple[Head, str]]:
    """HEAD and its etag; None when the job has none yet.

    Raises:
        StoreFailed: the store could not be asked.
        Damaged: HEAD is unreadable; a person must look, since nothing may be concluded from it.
    """
    found = store.get(head_key(prefix))
    return (decode_head(found[0]), found[1]) if found else None


def swap_head(store: ObjectStore, prefix: str, etag: Optional[str], head: Head) -> Head:
    """Make `head` the HEAD, if HEAD is still what had `etag` (None: if there is none).

    Raises:
        Fenced: another generation holds HEAD now.
        LostRace: somebody of the same generation was first.
        UnknownWrite: the store kept losing replies. The swap may have happened, *or may still happen*: whatever
            `head` names must stay in the store until HEAD has moved on.
        StoreFailed: it did not happen.
    """
    data = encode_head(head)
    doubt: Optional[UnknownWrite] = None
    for _ in range(_SWAP_TRIES):
        try:
            store.put(head_key(prefix), data, if_match=etag, if_absent=etag is None)
            return head
        except PreconditionFailed:
            pass  # perhaps lost against our own earlier attempt, whose reply was lost
        except UnknownWrite as error:
            doubt = error
        current = read_head(store, prefix)
        if current is not None and current[0].nonce == head.nonce:
            return head
        if (current[1] if current else None) == etag:
            continue
        if current is None or current[0].generation != head.generation:
            raise Fenced(
                f"{prefix}: HEAD is {_words(current and current[0])}, not generation {head.generation}"
            )
        raise LostRace(f"{prefix}: HEAD has moved on to {_words(current[0])}")
    raise doubt or LostRace(f"{prefix}: the store kept refusing to swap a HEAD that had not changed")


def fence(
    store: ObjectStore, prefix: str, generation: int, nonce: str, holder: str = "", must_exist: bool = False
) -> Head:
    """Give the right to commit to `generation`: no commit of an older one can happen from here on.

    Commits that are under way decide themselves: either their swap came first, and the HEAD returned here names
    them, or it finds another etag and is refused. Repeated for the same generation and holder it changes nothing.

    Args:
        generation: From 1.
        nonce: Fresh for this fence. Attempts against different versions of HEAD may share it: their content differs.
        holder: See `Head`.
        must_exist: The job has had a HEAD: making a new one would start it from nothing.

    Raises:
        Damaged: HEAD is unreadable, or gone although it must exist; a person must look.
        NewerGeneration: HEAD is ahead, or somebody else holds this generation; this fence comes too late and must
            not be retried.
        StoreFailed: it is not known to have happened; repeat it.
    """
    assert generation >= 1, generation
    for _ in range(_FENCE_TRIES):
        current = read_head(store, prefix)
        if current is None:
            if must_exist:
                raise Damaged(head_key(prefix), "it is gone, and this job had one")
            wanted, etag = Head(generation, 0, nonce, holder=holder), None
        else:
            head, etag = current
            if head.generation == generation:
                if head.holder and holder and head.holder != holder:
                    raise NewerGeneration(
                        f"{prefix}: generation {generation} is held by {head.holder}, not by {holder}: "
                        "do two brokers run on copies of one database?"
                    )
                return head
            if head.generation > generation:
                raise NewerGeneration(f"{prefix}: HEAD is {_words(head)}, ahead of generation {generation}")
            wanted = Head(
                generation, head.seq, nonce, head.manifest, head.manifest_sha256, head.previous, holder
            )
        try:
            return swap_head(store, prefix, etag, wanted)
        except (Fenced, LostRace):
            continue  # a commit or another fence came between: look again
    raise LostRace(f"{prefix}: HEAD changed under {_FENCE_TRIES} attempts to fence generation {generation}")


def _words(head: Optional[Head]) -> str:
    return f"generation {head.generation}, commit {head.seq}" if head else "absent"
