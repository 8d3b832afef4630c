"""The checkpoint store's objects in memory, under the broker's own `CheckpointStore` and `broker.wire.head`."""

import hashlib
from collections.abc import Mapping

from broker.checkpoint.commits import CheckpointStore
from broker.checkpoint.credentials import StoreSettings
from broker.wire.errors import PreconditionFailed

Keys = list[str]  # inside the class, `list` is a method


class Objects:
    """`broker.wire.store_client.ObjectStore` over a dictionary."""

    def __init__(self, content: Mapping[str, bytes] | None = None) -> None:
        self.content: dict[str, bytes] = dict(content or {})

    def get(self, key: str) -> tuple[bytes, str] | None:
        data = self.content.get(key)
        return None if data is None else (data, _etag(data))

    def put(self, key: str, data: bytes, if_match: str | None = None, if_absent: bool = False) -> str:
        held = self.get(key)
        if (if_absent and held is not None) or (
            if_match is not None and (held is None or held[1] != if_match)
        ):
            raise PreconditionFailed(f"{key} is another one now")
        self.content[key] = data
        return _etag(data)

    def delete(self, key: str) -> None:
        self.content.pop(key, None)

    def list(self, prefix: str) -> list[tuple[str, int]]:
        return [(key, len(data)) for key, data in sorted(self.content.items()) if key.startswith(prefix)]

    def folders(self, prefix: str) -> Keys:
        return sorted({key[len(prefix) :].split("/")[0] for key in self.content if key.startswith(prefix)})


class MemoryCheckpoints(CheckpointStore):
    """The daemon's own fence and HEAD, on objects in memory."""

    def __init__(self, objects: Objects) -> None:
        self._settings = StoreSettings(kind="folder", path="/nowhere")
        self._store = objects

    def prefix(self, job_id: str) -> str:
        """Where a job's objects lie."""
        return self._settings.job_prefix(job_id)


def _etag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
