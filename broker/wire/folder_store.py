"""A folder as checkpoint store: for a shared file system that honours `flock`, and for tests.

Content goes to a temporary file, is synced, and is renamed over the key under one lock for the whole folder. The
lock is held for the comparison and the rename only, never while bytes are written: that makes a conditional put
atomic against every other put and delete, and keeps uploads parallel.
"""

import fcntl
import hashlib
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List, Optional, Tuple

from broker.wire.errors import PreconditionFailed, StoreFailed

_INNER = ".broker"  # lock and unfinished writes; no key may start with a dot


class FolderStore:
    """See `broker.wire.store_client.ObjectStore`. The etag is a hash of the content."""

    def __init__(self, path: str) -> None:
        """The folder is created by the first write."""
        self._root = Path(path)

    def get(self, key: str) -> Optional[Tuple[bytes, str]]:
        """Content and etag; a rename is atomic, so no lock is needed to read one write whole."""
        try:
            data = self._path(key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._failed("read", key, error) from error
        return data, _etag(data)

    def put(self, key: str, data: bytes, if_match: Optional[str] = None, if_absent: bool = False) -> str:
        """Write, sync, then compare and rename under the lock."""
        path = self._path(key)
        try:
            unfinished = self._write_unfinished(data)
        except OSError as error:
            raise self._failed("write", key, error) from error
        try:
            with self._lock():
                if if_match is not None or if_absent:
                    self._compare(key, if_match)
                path.parent.mkdir(parents=True, exist_ok=True)
                os.replace(unfinished, path)
                _sync_directory(path.parent)
        except OSError as error:
            raise self._failed("write", key, error) from error
        finally:
            unfinished.unlink(missing_ok=True)
        return _etag(data)

    def delete(self, key: str) -> None:
        """Unlink, and drop the folders that it leaves empty; under the lock, or a put could lose its folder."""
        path = self._path(key)
        try:
            with self._lock():
                path.unlink(missing_ok=True)
                for parent in path.parents:
                    if parent == self._root or not _remove_if_empty(parent):
                        break
        except NotADirectoryError:
            return
        except OSError as error:
            raise self._failed("delete", key, error) from error

    def list(self, prefix: str) -> List[Tuple[str, int]]:
        """Walks only the folder that the prefix lies in."""
        start = self._root / prefix.rpartition("/")[0]
        found = []
        for directory, names, files in os.walk(start):
            names[:] = [name for name in names if name != _INNER]
            for name in files:
                path = Path(directory, name)
                key = path.relative_to(self._root).as_posix()
                if key.startswith(prefix):
                    try:
                        found.append((key, path.stat().st_size))
                    except FileNotFoundError:  # deleted since the walk saw it
                        continue
        return sorted(found)

    def folders(self, prefix: str) -> List[str]:
        """Sub-folders; an empty one is none, since `delete` drops it."""
        try:
            found = [entry.name for entry in os.scandir(self._root / prefix) if entry.is_dir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._failed("list", prefix, error) from error
        return sorted(name for name in found if name != _INNER)

    def _compare(self, key: str, if_match: Optional[str]) -> None:
        current = self.get(key)
        if if_match is None and current is not None:
            raise PreconditionFailed(f"{key} exists already")
        if if_match is not None and (current is None or current[1] != if_match):
            raise PreconditionFailed(f"{key} has changed")

    def _write_unfinished(self, data: bytes) -> Path:
        inner = self._root / _INNER
        inner.mkdir(parents=True, exist_ok=True)
        path = inner / f"unfinished-{os.getpid()}-{os.urandom(8).hex()}"
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return path

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """One writer in all processes and threads: `flock` belongs to the open file, and each caller opens its own."""
        inner = self._root / _INNER
        inner.mkdir(parents=True, exist_ok=True)
        with (inner / "lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if not all(parts) or any(part.startswith(".") for part in parts):
            raise StoreFailed(f"{key!r} is not a key: empty parts and leading dots are not allowed")
        return self._root.joinpath(*parts)

    def _failed(self, verb: str, key: str, error: OSError) -> StoreFailed:
        return StoreFailed(f"could not {verb} {key} in {self._root}: {error.strerror or error}")


def _etag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _remove_if_empty(directory: Path) -> bool:
    try:
        directory.rmdir()
    except OSError:
        return False
    return True


def _sync_directory(directory: Path) -> None:
    """A rename survives a power cut only once its folder is synced."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
