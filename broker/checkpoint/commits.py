"""HEAD of every job, as the daemon reads and fences it. Blocking; the errors are those of `broker.core.errors`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from broker.checkpoint.credentials import StoreSettings, own_access
from broker.core.errors import CasFailed, Conflict, Corrupt, StoreError
from broker.wire import cas_check
from broker.wire.errors import Damaged, NewerGeneration, StoreFailed, WireError
from broker.wire.head import Head, fence, head_key, read_head
from broker.wire.store_client import ObjectStore, open_store

log = structlog.get_logger(__name__)


class CheckpointStore:
    """The checkpoint store with the daemon's own keys. Thread-safe."""

    def __init__(self, settings: StoreSettings) -> None:
        """Nothing is sent yet.

        Raises:
            SettingsError: keys or CA are missing.
            StoreError: the settings describe no store.
        """
        self._settings = settings
        with _translated():
            self._store: ObjectStore = open_store(own_access(settings))

    def head(self, job_id: str) -> Head | None:
        """The job's HEAD, or None before its first fence.

        Raises:
            StoreError: the store could not be asked.
            Corrupt: HEAD is there and unreadable.
        """
        with _translated():
            found = read_head(self._store, self._settings.job_prefix(job_id))
            return found[0] if found else None

    def job_ids(self) -> list[str]:
        """Jobs that have anything in the store, whoever put it there; sorted.

        Raises:
            StoreError: the store could not be asked.
        """
        with _translated():
            return self._store.folders(self._settings.job_prefix(""))

    def fence(self, job_id: str, generation: int, holder: str = "", must_exist: bool = False) -> Head:
        """Give the right to commit to `generation`; the HEAD returned names the last commit before it.

        Idempotent: repeat it after every error but Conflict.

        Args:
            holder: Who gets it: the token of a node, which no other broker has drawn.
            must_exist: The job has had a HEAD.

        Raises:
            Conflict: HEAD is ahead of this generation, or another holder has it: another broker, or our own later
                past, has fenced it.
            Corrupt: HEAD is unreadable, or gone although it must exist; a person must look.
            StoreError: it is not known to have happened.
        """
        with _translated():
            prefix = self._settings.job_prefix(job_id)
            head = fence(self._store, prefix, generation, _nonce(), holder, must_exist)
        log.info("head.fenced", job=job_id, generation=generation, holder=holder, seq=head.seq)
        return head

    def delete_job(self, job_id: str) -> int:
        """Delete everything of a job; the answer is how many objects. HEAD goes last, so that a stop in between shows.

        A copy of the job that was cut off may write chunks until its run lease ends; call it after that, or again.
        It cannot commit: without HEAD its swap is refused.

        Raises:
            StoreError: some objects may be left; call it again.
        """
        prefix = self._settings.job_prefix(job_id)
        with _translated():
            keys = [key for key, _ in self._store.list(f"{prefix}/")]
            for key in sorted(keys, key=lambda key: key == head_key(prefix)):
                self._store.delete(key)
        log.info("checkpoints.deleted", job=job_id, objects=len(keys))
        return len(keys)

    def self_test(self) -> None:
        """Prove by a race that the store compares and swaps.

        Raises:
            StoreError: it does not, or could not be asked; the text says which.
        """
        with _translated():
            wrong = cas_check.self_test(self._store, f"{self._settings.prefix}/self-test".lstrip("/"))
        if wrong is not None:
            raise StoreError(wrong)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except NewerGeneration as error:
        raise Conflict(str(error)) from error
    except Damaged as error:
        raise Corrupt(str(error)) from error
    except StoreFailed as error:
        raise StoreError(str(error)) from error
    except WireError as error:
        raise CasFailed(str(error)) from error


def _nonce() -> str:
    """No clock and no seeded generator may decide this: two daemons must never draw the same."""
    return os.urandom(16).hex()
