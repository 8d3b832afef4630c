"""Real stores with faults put between them and their user."""

import hashlib
import threading
from collections.abc import Callable, Sequence

from broker.wire.errors import PreconditionFailed, UnknownWrite
from broker.wire.store_client import ObjectStore


class Through:
    """A store that passes everything on; the faults are subclasses."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner

    def get(self, key: str) -> tuple[bytes, str] | None:
        return self.inner.get(key)

    def put(self, key: str, data: bytes, if_match: str | None = None, if_absent: bool = False) -> str:
        return self.inner.put(key, data, if_match, if_absent)

    def delete(self, key: str) -> None:
        self.inner.delete(key)

    def list(self, prefix: str) -> list[tuple[str, int]]:
        return self.inner.list(prefix)

    def folders(self, prefix: str) -> "list[str]":
        return self.inner.folders(prefix)


class Lossy(Through):
    """A real store whose conditional writes lose their replies, as a script says: ``done`` or ``undone``, then lost."""

    def __init__(self, inner: ObjectStore, script: Sequence[str] = ()) -> None:
        super().__init__(inner)
        self.script = list(script)
        self.between: Callable[[], None] | None = None  # what others do before the writer looks again

    def put(self, key: str, data: bytes, if_match: str | None = None, if_absent: bool = False) -> str:
        if not (if_match is not None or if_absent) or not self.script:
            return self.inner.put(key, data, if_match, if_absent)
        if self.script.pop(0) == "done":
            self.inner.put(key, data, if_match, if_absent)
        if self.between is not None:
            self.between()
        raise UnknownWrite("the reply was lost")


class LateDeletes(Through):
    """A zombie's store: its deletes are on their way until `arrive`."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.pending: list[str] = []

    def delete(self, key: str) -> None:
        self.pending.append(key)

    def arrive(self) -> None:
        for key in self.pending:
            self.inner.delete(key)
        self.pending.clear()


class Counting(Through):
    """Remembers which keys were written."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.written: list[str] = []

    def put(self, key: str, data: bytes, if_match: str | None = None, if_absent: bool = False) -> str:
        self.written.append(key)
        return super().put(key, data, if_match, if_absent)

    def chunks(self) -> int:
        """How many chunks were written since the last call."""
        count = sum("/chunks/" in key for key in self.written)
        self.written.clear()
        return count


class Memory:
    """The smallest object store there is, for tests that want thousands of requests."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def get(self, key: str) -> tuple[bytes, str] | None:
        data = self.objects.get(key)
        return None if data is None else (data, hashlib.sha256(data).hexdigest())

    def put(self, key: str, data: bytes, if_match: str | None = None, if_absent: bool = False) -> str:
        with self._lock:
            current = self.get(key)
            if (if_absent and current) or (
                if_match is not None and (current is None or current[1] != if_match)
            ):
                raise PreconditionFailed(key)
            self.objects[key] = data
        return hashlib.sha256(data).hexdigest()

    def delete(self, key: str) -> None:
        self.objects.pop(key, None)

    def list(self, prefix: str) -> list[tuple[str, int]]:
        return sorted((key, len(data)) for key, data in list(self.objects.items()) if key.startswith(prefix))

    def folders(self, prefix: str) -> "list[str]":
        inside = [key[len(prefix) :] for key in list(self.objects) if key.startswith(prefix)]
        return sorted({key.partition("/")[0] for key in inside if "/" in key})
