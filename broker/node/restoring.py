"""Before a start: make the checkpoint directory hold what HEAD names, and nothing that must not be resumed from."""

from pathlib import Path
from typing import Optional, Tuple

from broker.node.checkpoints import Unit
from broker.node.log import say
from broker.node.set_aside import clear_the_way, newest_whole, point_trackers
from broker.wire.commit import restore
from broker.wire.errors import Damaged
from broker.wire.head import read_head
from broker.wire.manifest import load_manifest
from broker.wire.messages import RestoreNote, StoreAccess
from broker.wire.store_client import ObjectStore, open_store


def restore_for_start(root: Path, access: StoreAccess, cache: Path) -> Tuple[RestoreNote, Optional[Unit]]:
    """Bring back the newest undamaged commit.

    Args:
        root: The checkpoint directory; made if missing.
        cache: Chunks that came before the hand-over.

    Returns:
        What was restored, and the checkpoint to resume from.

    Raises:
        StoreFailed: the store could not be asked; try again.
        Damaged: there are commits and none can be restored. Never taken for a fresh start.
    """
    store = open_store(access)
    root.mkdir(parents=True, exist_ok=True)
    seq, step = _head(store, access.prefix)
    for name in clear_the_way(root, seq, step):
        say("checkpoint.set_aside", name=name)
    done = restore(store, access.prefix, root, cache)
    for tracker in point_trackers(root):
        say("tracker.rewritten", name=tracker)
    unit = newest_whole(root)
    if done.manifest is None or done.link is None:
        return RestoreNote(seq=0), unit
    fell_back = [f"{manifest}: {why}" for manifest, why in done.fell_back]
    return RestoreNote(done.manifest.seq, done.manifest.step, done.link.manifest, fell_back), unit


def _head(store: ObjectStore, prefix: str) -> Tuple[int, Optional[int]]:
    """Seq and step of the last commit; no step when its manifest cannot be read (`restore` will fall back)."""
    found = read_head(store, prefix)
    if found is None or found[0].link is None:
        return 0, None
    try:
        return found[0].seq, load_manifest(store, prefix, found[0].link).step
    except Damaged:
        return found[0].seq, None
