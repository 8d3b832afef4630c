"""One daemon for one database: a file lock for the machine, an epoch in a row for everything else.

The lock says "somebody is running" at once and vanishes with its process. The epoch holds where a lock does not
reach: a copy of the process that lost its lock, or (on PostgreSQL) a leader that was replaced while it slept. It is
compared inside every write transaction, so a stale daemon changes nothing.
"""

import fcntl
import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from sqlalchemy import Connection, insert, select, update

from broker.core.errors import AlreadyRunning, LeaseLost, SettingsError
from broker.core.time import to_iso
from broker.store.fetch import fetch
from broker.store.tables import LeaseRow, Row

_LEASE = Row.metadata.tables[str(LeaseRow.__tablename__)]
_NOW = "SELECT epoch, holder FROM lease"


@dataclass(frozen=True)
class Holder:
    """Who holds a lock, for the message to whoever comes second."""

    pid: int
    host: str
    started: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.started}"


class FileLock:
    """An exclusive lock on a file beside the database, with its holder's name inside.

    Raises:
        AlreadyRunning: somebody else holds it; the text names who.
    """

    def __init__(self, path: Path, now_ms: int) -> None:
        self.holder = Holder(os.getpid(), socket.gethostname(), to_iso(now_ms))
        self._file: IO[str] | None = None
        try:
            file = open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")  # noqa: SIM115
        except OSError as error:
            raise SettingsError(f"cannot open {path}: {error.strerror}; is state_dir ours?") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read_holder(file)
            file.close()
            raise AlreadyRunning(
                f"{path.parent} is in use by {holder}; stop that broker first, or give this one another state_dir"
            ) from None
        file.truncate(0)
        json.dump(asdict(self.holder), file)
        file.flush()
        self._file = file

    def release(self) -> None:
        """Let go. The file stays: removing it would let two processes lock two files of one name."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _read_holder(file: IO[str]) -> str:
    try:
        return str(Holder(**json.load(file)))
    except (ValueError, TypeError):  # it has the lock and has not yet written its name
        return "another process"


def take_lease(connection: Connection, holder: str, now_ms: int) -> int:
    """Make every older epoch stale; returns ours."""
    epoch: int | None = connection.scalar(select(_LEASE.c.epoch))
    if epoch is None:
        connection.execute(insert(_LEASE).values(id=1, epoch=1, holder=holder, taken_at_ms=now_ms))
        return 1
    connection.execute(update(_LEASE).values(epoch=epoch + 1, holder=holder, taken_at_ms=now_ms))
    return epoch + 1


def check_lease(connection: Connection, epoch: int) -> None:
    """Raises:
    LeaseLost: the row carries another epoch. The caller's transaction must not commit.
    """
    # A write transaction has locked the whole file: no successor can take over between this look and our commit.
    found = fetch(connection, _NOW)
    if not found or found[0][0] != epoch:
        by = found[0][1] if found else "nobody"
        raise LeaseLost(f"this broker has been replaced by {by}; it stops writing and must be restarted")
