"""A manifest lists the files of one commit by chunks. It is immutable, and its key tells generation, seq and hash.

    manifests/g000003-s00000012-<sha256>.json
    chunks/g000003/s00000012/<sha256>

All keys in it are relative to the job's prefix, so that a job's objects can be copied to another store as they
are. Why chunk keys carry generation *and* seq is told in `broker.wire.retention`.
"""

import hashlib
import json
import posixpath
import re
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple

from broker.wire.bounds import float_or_none, whole, whole_or_none
from broker.wire.errors import Damaged
from broker.wire.head import Link
from broker.wire.store_client import ObjectStore

FORMAT = "broker-manifest/1"
CHUNK_BYTES = 64 << 20
MANIFESTS = "manifests/"
CHUNKS = "chunks/"
DAMAGED = "damaged/"  # followed by the key of a chunk that a restore could not read

# Nanoseconds since 1970 as file systems and SQLite have them; before 1970 they are negative.
_MAX_TIME = 2**63 - 1

_KEY = re.compile(
    r"^(?:manifests/g(?P<mg>\d{6,})-s(?P<ms>\d{8,})-[0-9a-f]{64}\.json"
    r"|chunks/g(?P<cg>\d{6,})/s(?P<cs>\d{8,})/[0-9a-f]{64})$"
)


@dataclass(frozen=True)
class Chunk:
    """One immutable object.

    Attributes:
        key: Relative to the job's prefix.
        sha256: Of its bytes.
        size: In bytes.
    """

    key: str
    sha256: str
    size: int


@dataclass(frozen=True)
class FileEntry:
    """One file or symbolic link.

    Attributes:
        path: Relative, with slashes.
        size: In bytes.
        mtime_ns: Trainers prune and resume by it, so it is kept.
        mode: Permission bits.
        chunks: In order; their sizes add up to `size`.
        link: Target of a symbolic link that stays inside the tree; then there are no chunks.
    """

    path: str
    size: int
    mtime_ns: int
    mode: int
    chunks: Tuple[Chunk, ...] = ()
    link: Optional[str] = None


@dataclass(frozen=True)
class Ancestor:
    """An earlier commit that was still in the store when this one was written.

    Attributes:
        metrics: As in its manifest: so retention finds the best without reading them all.
    """

    manifest: str
    sha256: str
    seq: int
    step: Optional[int] = None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """One commit.

    Attributes:
        created_ms: By the committer's clock; for people.
        step: Training step, where it could be told.
        metrics: Readings that belong to this step.
        ancestors: Newest first; the first is the predecessor.
    """

    generation: int
    seq: int
    files: Tuple[FileEntry, ...]
    step: Optional[int] = None
    created_ms: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    ancestors: Tuple[Ancestor, ...] = ()

    @property
    def bytes(self) -> int:
        """Size of the files together."""
        return sum(entry.size for entry in self.files)

    def chunks(self) -> Dict[str, Chunk]:
        """Every chunk it names, by key."""
        return {chunk.key: chunk for entry in self.files for chunk in entry.chunks}

    def as_ancestor(self, link: Link) -> Ancestor:
        """This commit, as the next one lists it."""
        return Ancestor(link.manifest, link.sha256, self.seq, self.step, self.metrics)


def chunk_folder(generation: int, seq: int) -> str:
    """Where the commit `seq` of `generation` writes its new chunks; ends with a slash."""
    return f"{CHUNKS}g{generation:06d}/s{seq:08d}/"


def origin(key: str) -> Optional[Tuple[int, int]]:
    """Generation and seq of the commit that wrote this key (relative to the prefix); None for a key not of ours."""
    match = _KEY.match(key)
    if match is None:
        return None
    return int(match["mg"] or match["cg"]), int(match["ms"] or match["cs"])


def encode_manifest(manifest: Manifest) -> Tuple[bytes, Link]:
    """Its bytes, and the key and hash under which they are stored."""
    data = json.dumps({"format": FORMAT, **asdict(manifest)}, sort_keys=True, separators=(",", ":")).encode()
    sha256 = hashlib.sha256(data).hexdigest()
    return data, Link(f"{MANIFESTS}g{manifest.generation:06d}-s{manifest.seq:08d}-{sha256}.json", sha256)


def decode_manifest(data: bytes) -> Manifest:
    """The opposite of `encode_manifest`; unknown keys are ignored.

    Raises:
        ValueError: no manifest, or one that contradicts itself.
    """
    try:
        document: Dict[str, Any] = json.loads(data)
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']!r}; this version reads {FORMAT}")
        manifest = Manifest(
            generation=whole(document["generation"]),
            seq=whole(document["seq"]),
            files=tuple(_decode_file(entry) for entry in document["files"]),
            step=whole_or_none(document["step"]),
            created_ms=_time(document["created_ms"]),
            metrics=_metrics(document["metrics"]),
            ancestors=tuple(_decode_ancestor(entry) for entry in document["ancestors"]),
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a manifest: {error!r}") from error
    for entry in manifest.files:
        if sum(chunk.size for chunk in entry.chunks) != entry.size and entry.link is None:
            raise ValueError(f"the chunks of {entry.path} do not add up to its size")
    return manifest


def load_manifest(store: ObjectStore, prefix: str, link: Link) -> Manifest:
    """Read and verify one manifest; read twice before it is given up.

    Raises:
        Damaged: missing, or not the bytes that the link names.
        StoreFailed: the store could not be asked; that proves no damage.
    """
    why = ""
    for _ in range(2):
        found = store.get(f"{prefix}/{link.manifest}")
        if found is None:
            why = "manifest is missing"
        elif hashlib.sha256(found[0]).hexdigest() != link.sha256:
            why = "manifest does not match its hash"
        else:
            try:
                return decode_manifest(found[0])
            except ValueError as error:
                raise Damaged(link.manifest, str(error)) from error
    raise Damaged(link.manifest, why)


def _decode_file(entry: Mapping[str, Any]) -> FileEntry:
    path = str(entry["path"])
    if not is_inside(path):
        raise ValueError(f"{path!r} leads out of the checkpoint folder")
    chunks = tuple(Chunk(str(c["key"]), str(c["sha256"]), whole(c["size"])) for c in entry["chunks"])
    return FileEntry(
        path, whole(entry["size"]), _time(entry["mtime_ns"]), whole(entry["mode"]), chunks, entry.get("link")
    )


def _decode_ancestor(entry: Mapping[str, Any]) -> Ancestor:
    return Ancestor(
        str(entry["manifest"]),
        str(entry["sha256"]),
        whole(entry["seq"]),
        whole_or_none(entry.get("step")),
        _metrics(entry.get("metrics") or {}),
    )


def _time(value: Any) -> int:
    if not isinstance(value, int) or abs(value) > _MAX_TIME:
        raise ValueError(f"expected a time, got {value!r:.40}")
    return value


def _metrics(found: Mapping[str, Any]) -> Dict[str, float]:
    """Those that are numbers: a reading that is none is no reason to lose a checkpoint."""
    return {name: value for name, value in found.items() if float_or_none(value) is not None}


def is_inside(path: str) -> bool:
    """Whether a relative path with slashes stays inside the folder it is relative to."""
    parts: List[str] = path.split("/")
    return bool(path) and "\0" not in path and all(part not in ("", ".", "..") for part in parts)


def link_is_inside(path: str, target: str) -> bool:
    """Whether a symbolic link at `path` (relative, with slashes) points inside the folder that `path` is relative to."""
    if target.startswith("/"):
        return False
    whole = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return whole != ".." and not whole.startswith("../")
