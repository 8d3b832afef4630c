"""The commits that HEAD descends from. Nothing else counts as a commit, whatever else lies in the store."""

from dataclasses import dataclass
from typing import Optional, Tuple

from broker.wire.errors import Damaged
from broker.wire.head import Head
from broker.wire.manifest import Ancestor, Manifest, load_manifest
from broker.wire.store_client import ObjectStore


@dataclass(frozen=True)
class Lineage:
    """HEAD's commit and those before it.

    Attributes:
        manifest: HEAD's own; None when it is damaged, or there is no commit yet.
        commits: Newest first, HEAD's own included. Older ones may have been deleted by retention since.
    """

    manifest: Optional[Manifest]
    commits: Tuple[Ancestor, ...]


def trace(store: ObjectStore, prefix: str, head: Head) -> Lineage:
    """Follow HEAD back. Each manifest lists its ancestors, so one readable manifest is enough.

    Raises:
        StoreFailed: the store could not be asked.
    """
    link = head.link
    if link is None:
        return Lineage(None, ())
    try:
        manifest = load_manifest(store, prefix, link)
        return Lineage(manifest, (manifest.as_ancestor(link), *manifest.ancestors))
    except Damaged:
        unreadable = Ancestor(link.manifest, link.sha256, head.seq)
    if head.previous is None:
        return Lineage(None, (unreadable,))
    try:
        before = load_manifest(store, prefix, head.previous)
        return Lineage(None, (unreadable, before.as_ancestor(head.previous), *before.ancestors))
    except Damaged:
        return Lineage(
            None, (unreadable, Ancestor(head.previous.manifest, head.previous.sha256, head.seq - 1))
        )
