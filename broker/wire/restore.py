"""Bring a commit back: every chunk is verified, and a damaged commit falls back to the one before it."""

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Dict, List, Optional, Tuple

from broker.wire.errors import Damaged
from broker.wire.head import Head, Link, read_head
from broker.wire.lineage import trace
from broker.wire.manifest import DAMAGED, Chunk, FileEntry, Manifest, link_is_inside, load_manifest
from broker.wire.parallel import run_all
from broker.wire.store_client import ObjectStore

THREADS = 4
_STAGING = ".broker-restore"


@dataclass(frozen=True)
class Restored:
    """What was restored.

    Attributes:
        head: As it was read.
        link: Of the manifest that was restored; None when the job has no commit yet.
        manifest: The same, decoded.
        fell_back: Commits that were given up for damage, newest first: key of the manifest, and why.
    """

    head: Optional[Head]
    link: Optional[Link] = None
    manifest: Optional[Manifest] = None
    fell_back: Tuple[Tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Prefetched:
    """What lies in the cache now.

    Attributes:
        chunks: How many of HEAD's chunks.
        bytes: Their size.
        missing: How many could not be had; `restore` judges those.
    """

    chunks: int = 0
    bytes: int = 0
    missing: int = 0


def restore(
    store: ObjectStore, prefix: str, dest: Path, cache: Optional[Path] = None, threads: int = THREADS
) -> Restored:
    """Make `dest` hold exactly the files of the newest undamaged commit; without a commit it is left alone.

    Files are staged inside `dest` and moved into place once all are verified. What was there before is deleted,
    but for names with a leading dot that the commit does not have. Damaged chunks are marked in the store, so
    that no later commit relies on them; the objects stay, since it may be this node that cannot read.

    Args:
        cache: Folder filled by `prefetch`.

    Raises:
        StoreFailed: the store could not be asked. That proves no damage, so nothing falls back.
        Damaged: there are commits, and none of them can be restored. Never taken for "start from scratch".
    """
    found = read_head(store, prefix)
    if found is None or found[0].link is None:
        return Restored(found[0] if found else None)
    head = found[0]
    fell_back: List[Tuple[str, str]] = []
    for number, commit in enumerate(trace(store, prefix, head).commits):
        link = Link(commit.manifest, commit.sha256)
        if number > 0 and store.get(f"{prefix}/{link.manifest}") is None:
            continue  # retention has deleted it: the chain ends here, but for the best
        try:
            manifest = load_manifest(store, prefix, link)
            _Download(store, prefix, Path(dest), cache).run(manifest, threads)
            return Restored(head, link, manifest, tuple(fell_back))
        except Damaged as error:
            fell_back.append((link.manifest, error.why if error.key == link.manifest else str(error)))
    raise Damaged(
        prefix, "no commit can be restored: " + "; ".join(f"{key}: {why}" for key, why in fell_back)
    )


def prefetch(store: ObjectStore, prefix: str, cache: Path, threads: int = THREADS) -> Prefetched:
    """Bring HEAD's chunks near, while the old owner may still commit; what HEAD no longer names is dropped.

    Raises:
        StoreFailed: the store could not be asked.
    """
    cache = Path(cache)
    cache.mkdir(parents=True, exist_ok=True)
    found = read_head(store, prefix)
    if found is None or found[0].link is None:
        return Prefetched()
    try:
        wanted = {
            chunk.sha256: chunk for chunk in load_manifest(store, prefix, found[0].link).chunks().values()
        }
    except Damaged:
        return Prefetched()  # damaged, or deleted by the owner's retention since we read HEAD
    for path in cache.iterdir():
        if path.name not in wanted:
            path.unlink()

    def bring(chunk: Chunk) -> int:
        path = cache / chunk.sha256
        if path.exists() and path.stat().st_size == chunk.size:
            return chunk.size
        try:
            data = _fetch(store, prefix, chunk)
        except Damaged:
            return -1
        unfinished = path.with_suffix(".part")
        unfinished.write_bytes(data)
        unfinished.replace(path)
        return chunk.size

    sizes = run_all(threads, bring, wanted.values())
    good = [size for size in sizes if size >= 0]
    return Prefetched(len(good), sum(good), len(sizes) - len(good))


class _Download:
    """One commit on its way into a folder."""

    def __init__(self, store: ObjectStore, prefix: str, dest: Path, cache: Optional[Path]) -> None:
        self._store = store
        self._prefix = prefix
        self._dest = dest
        self._cache = Path(cache) if cache else None
        self._staging = dest / _STAGING
        self._new = self._staging / "new"

    def run(self, manifest: Manifest, threads: int) -> None:
        """Stage, verify, move into place.

        Raises:
            Damaged: `dest` is as it was before.
        """
        shutil.rmtree(self._staging, ignore_errors=True)
        self._new.mkdir(parents=True)
        try:
            self._stage(manifest, threads)
            self._move_into_place()
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)

    def _stage(self, manifest: Manifest, threads: int) -> None:
        # A chunk that several places hold is fetched once and written to each of them.
        places: Dict[str, Tuple[Chunk, List[Tuple[Path, int]]]] = {}
        for entry in manifest.files:
            path = self._new / entry.path
            path.parent.mkdir(parents=True, exist_ok=True)
            if entry.link is not None:
                continue
            with path.open("wb") as file:
                file.truncate(entry.size)
            offset = 0
            for chunk in entry.chunks:
                places.setdefault(chunk.key, (chunk, []))[1].append((path, offset))
                offset += chunk.size
        # All chunks are tried although one damaged chunk decides: the others must not be relied upon unread.
        outcomes = run_all(threads, self._place, places.values())
        damaged = [outcome for outcome in outcomes if outcome is not None]
        for error in damaged:
            self._store.put(f"{self._prefix}/{DAMAGED}{error.key}", error.why.encode())
        if damaged:
            raise damaged[0]
        # Links come last, so that no file was ever written through one.
        for entry in manifest.files:
            self._finish(entry)
        self._date_folders(manifest)

    def _place(self, work: Tuple[Chunk, List[Tuple[Path, int]]]) -> Optional[Damaged]:
        chunk, places = work
        data = self._cached(chunk)
        if data is None:
            try:
                data = _fetch(self._store, self._prefix, chunk)
            except Damaged as error:
                return error
        for path, offset in places:
            with path.open("r+b") as file:
                file.seek(offset)
                file.write(data)
        return None

    def _cached(self, chunk: Chunk) -> Optional[bytes]:
        if self._cache is None:
            return None
        try:
            data = (self._cache / chunk.sha256).read_bytes()
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == chunk.sha256 else None

    def _finish(self, entry: FileEntry) -> None:
        path = self._new / entry.path
        if entry.link is not None:
            if not link_is_inside(entry.path, entry.link):
                raise Damaged(entry.path, f"links to {entry.link!r}, out of the checkpoint folder")
            os.symlink(entry.link, path)
        else:
            path.chmod(entry.mode & 0o777)
        os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns), follow_symlinks=False)

    def _date_folders(self, manifest: Manifest) -> None:
        """A folder is as old as the newest file in it: trainers rotate `checkpoint-N` folders by mtime."""
        newest: Dict[Path, int] = {}
        for entry in manifest.files:
            for parent in PurePosixPath(entry.path).parents:
                folder = self._new / parent
                newest[folder] = max(newest.get(folder, 0), entry.mtime_ns)
        for folder, mtime_ns in newest.items():
            os.utime(folder, ns=(mtime_ns, mtime_ns))

    def _move_into_place(self) -> None:
        """Killed in between, `dest` is incomplete: so a restore must finish before a job starts, and it can be repeated."""
        old = self._staging / "old"
        old.mkdir()
        coming = {path.name for path in self._new.iterdir()}
        for path in list(self._dest.iterdir()):
            if path.name in coming or not path.name.startswith("."):
                path.rename(old / path.name)
        for name in coming:
            (self._new / name).rename(self._dest / name)


def _fetch(store: ObjectStore, prefix: str, chunk: Chunk) -> bytes:
    """One chunk, verified; read twice before it is given up.

    Raises:
        Damaged: missing, or not the bytes that its name says.
    """
    why = ""
    for _ in range(2):
        found = store.get(f"{prefix}/{chunk.key}")
        if found is None:
            why = "chunk is missing"
        elif hashlib.sha256(found[0]).hexdigest() != chunk.sha256:
            why = f"chunk does not match its hash ({len(found[0])} of {chunk.size} bytes)"
        else:
            return found[0]
    raise Damaged(chunk.key, why)
