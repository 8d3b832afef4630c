"""Commit files: chunks, then the manifest, then HEAD. What HEAD never named is garbage.

`restore`, `prefetch` and `retain` live in modules of their own; all four verbs are found here.
"""

import hashlib
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from broker.wire.errors import Fenced, SourceChanged
from broker.wire.head import Head, read_head, swap_head
from broker.wire.lineage import trace
from broker.wire.manifest import (
    CHUNK_BYTES,
    CHUNKS,
    DAMAGED,
    MANIFESTS,
    Chunk,
    FileEntry,
    Manifest,
    chunk_folder,
    encode_manifest,
    is_inside,
    link_is_inside,
)
from broker.wire.parallel import run_all
from broker.wire.restore import Prefetched, Restored, prefetch, restore
from broker.wire.retention import Retained, retain
from broker.wire.store_client import ObjectStore

__all__ = ["Prefetched", "Restored", "Retained", "prefetch", "restore", "retain", "write_commit"]

THREADS = 4
_ANCESTORS_MAX = 256  # a job that never prunes keeps its manifests bounded all the same


def write_commit(
    store: ObjectStore,
    prefix: str,
    generation: int,
    nonce: str,
    root: Path,
    files: Sequence[str],
    step: Optional[int] = None,
    metrics: Optional[Mapping[str, float]] = None,
    created_ms: int = 0,
    threads: int = THREADS,
    chunk_bytes: int = CHUNK_BYTES,
) -> Head:
    """Commit these files; the HEAD returned names them.

    A chunk is reused only if HEAD's manifest names it, it is listed in the store, and no restore has found it
    damaged. Memory: `threads` chunks. At most one commit or retention of a generation may run at a time.
    Repeated after a failure it sends only the chunks that are missing.

    Args:
        nonce: Fresh for every call.
        root: The files' folder; they must not change while this runs (a hard-linked copy).
        files: Paths relative to `root`, with slashes. A link is kept if it stays inside, and followed if not.
        created_ms: For people; the commit does not depend on it.

    Raises:
        Fenced: HEAD is not of this generation; stop training.
        LostRace: another commit of this generation came first; try again.
        SourceChanged: a file changed meanwhile; nothing was committed.
        UnknownWrite: see `swap_head`; try again.
        StoreFailed, Damaged: nothing was committed.
    """
    found = read_head(store, prefix)
    if found is None or found[0].generation != generation:
        holder = f"generation {found[0].generation}" if found else "nobody"
        raise Fenced(f"{prefix}: HEAD belongs to {holder}, not to generation {generation}")
    head, etag = found
    seq = head.seq + 1
    lineage = trace(store, prefix, head)
    kept = {key for key, _ in store.list(f"{prefix}/{MANIFESTS}")}
    upload = _Upload(store, prefix, Path(root), chunk_folder(generation, seq), chunk_bytes)
    upload.know(lineage.manifest)
    manifest = Manifest(
        generation=generation,
        seq=seq,
        files=upload.send(files, threads),
        step=step,
        created_ms=created_ms,
        metrics=dict(metrics or {}),
        ancestors=tuple(c for c in lineage.commits if f"{prefix}/{c.manifest}" in kept)[:_ANCESTORS_MAX],
    )
    data, link = encode_manifest(manifest)
    store.put(f"{prefix}/{link.manifest}", data)
    new = Head(generation, seq, nonce, link.manifest, link.sha256, head.link, head.holder)
    return swap_head(store, prefix, etag, new)


@dataclass(frozen=True)
class _Slice:
    """One chunk to be: a stretch of a file."""

    path: Path
    offset: int
    size: int


class _Upload:
    """Chunks of one commit on their way."""

    def __init__(self, store: ObjectStore, prefix: str, root: Path, folder: str, chunk_bytes: int) -> None:
        self._store = store
        self._prefix = prefix
        self._root = root
        self._folder = folder
        self._chunk_bytes = chunk_bytes
        self._files: Dict[str, FileEntry] = {}
        self._chunks: Dict[
            str, Chunk
        ] = {}  # by hash: in the store, or claimed by a thread that is sending it
        self._lock = threading.Lock()

    def know(self, base: Optional[Manifest]) -> None:
        """Learn which chunks need not be sent: HEAD's, and those that an interrupted attempt at this commit left."""
        skip = len(self._prefix) + 1
        present = {key[skip:]: size for key, size in self._store.list(f"{self._prefix}/{CHUNKS}")}
        damaged = {key[skip + len(DAMAGED) :] for key, _ in self._store.list(f"{self._prefix}/{DAMAGED}")}
        for key, size in present.items():
            if key.startswith(self._folder) and key not in damaged:
                sha256 = key[len(self._folder) :]
                self._chunks[sha256] = Chunk(key, sha256, size)
        for entry in base.files if base else ():
            good = [c for c in entry.chunks if present.get(c.key) == c.size and c.key not in damaged]
            self._chunks.update({chunk.sha256: chunk for chunk in good})
            if len(good) == len(entry.chunks) and entry.link is None:
                self._files[entry.path] = entry

    def send(self, files: Sequence[str], threads: int) -> Tuple[FileEntry, ...]:
        """Send what is missing; the entries of the manifest, sorted by path."""
        entries: List[FileEntry] = []
        slices: List[_Slice] = []
        for name in sorted(files):
            assert is_inside(name), name
            entry, wanted = self._plan(name)
            entries.append(entry)
            slices += wanted
        chunks = iter(run_all(threads, self._send_slice, slices))
        done = []
        for entry in entries:
            if entry.link is None and not entry.chunks:
                count = -(-entry.size // self._chunk_bytes)
                entry = FileEntry(
                    entry.path,
                    entry.size,
                    entry.mtime_ns,
                    entry.mode,
                    tuple(next(chunks) for _ in range(count)),
                )
            self._check_unchanged(entry)
            done.append(entry)
        return tuple(done)

    def _plan(self, name: str) -> Tuple[FileEntry, List[_Slice]]:
        path = self._root / name
        target = os.readlink(path) if path.is_symlink() else None
        if target is not None and link_is_inside(name, target):
            return FileEntry(name, 0, path.lstat().st_mtime_ns, 0o777, (), target), []
        status = path.stat()
        known = self._files.get(name)
        # The same size and mtime to the nanosecond is the same content, as for rsync. Content that changed within
        # one tick of the file system's clock cannot get here: a checkpoint has been quiet for seconds.
        if known is not None and (known.size, known.mtime_ns) == (status.st_size, status.st_mtime_ns):
            return FileEntry(name, known.size, known.mtime_ns, status.st_mode & 0o777, known.chunks), []
        entry = FileEntry(name, status.st_size, status.st_mtime_ns, status.st_mode & 0o777)
        starts = range(0, entry.size, self._chunk_bytes)
        return entry, [_Slice(path, at, min(self._chunk_bytes, entry.size - at)) for at in starts]

    def _send_slice(self, piece: _Slice) -> Chunk:
        with piece.path.open("rb") as file:
            file.seek(piece.offset)
            data = file.read(piece.size)
        if len(data) != piece.size:
            raise SourceChanged(f"{piece.path} has become shorter while it was committed")
        sha256 = hashlib.sha256(data).hexdigest()
        with self._lock:
            chunk = self._chunks.get(sha256)
            if chunk is not None:
                # If the thread that claimed it fails, so does the whole commit.
                return chunk
            chunk = self._chunks[sha256] = Chunk(self._folder + sha256, sha256, len(data))
        self._store.put(f"{self._prefix}/{chunk.key}", data)
        return chunk

    def _check_unchanged(self, entry: FileEntry) -> None:
        path = self._root / entry.path
        status = path.lstat() if entry.link is not None else path.stat()
        if (entry.link is None and status.st_size != entry.size) or status.st_mtime_ns != entry.mtime_ns:
            raise SourceChanged(f"{path} changed while it was committed")
