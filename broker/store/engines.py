"""Two engines on one SQLite file: one writer, many readers.

Measured with four threads that each read, add one and write: SQLAlchemy's default loses three updates of four
without any error, since the SELECT runs outside the transaction; ``BEGIN`` fails nine times of ten, since a reader
cannot become a writer once somebody else has written; ``BEGIN IMMEDIATE`` on a single connection loses none.
"""

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine, ExceptionContext, QueuePool, create_engine, event

from broker.core.errors import DiskFull, SettingsError

BUSY_TIMEOUT_MS = 5000
# With less than this no file of a database can grow.
_ROOM_BYTES = 64 << 10
# WAL needs memory that is shared between processes and locks that work: https://sqlite.org/wal.html, "Overview".
_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "beegfs", "gpfs"}
)


@dataclass(frozen=True)
class Engines:
    """Both engines of one file.

    Attributes:
        writer: One connection; every transaction is ``BEGIN IMMEDIATE``. A second thread waits for it.
        reader: Connections that cannot write; each transaction sees one moment.
    """

    writer: Engine
    reader: Engine

    def dispose(self) -> None:
        """Close every connection."""
        self.reader.dispose()
        self.writer.dispose()


def open_engines(path: Path, *, synchronous: str) -> Engines:
    """Open a file, or make it, readable by its owner alone (it holds hashes of tokens).

    Args:
        synchronous: ``FULL`` where a commit must survive a power cut (intents), ``NORMAL`` where the last few may
            be lost (prices).

    Raises:
        SettingsError: the path is no place for a database.
    """
    assert synchronous in ("FULL", "NORMAL"), synchronous
    make_private(path)
    return Engines(
        writer=_engine(path, f"PRAGMA synchronous={synchronous}", begin="BEGIN IMMEDIATE", size=1),
        reader=_engine(path, "PRAGMA query_only=ON", begin="BEGIN", size=8),
    )


def migration_engine(path: Path) -> Engine:
    """One connection without foreign keys: a batch migration drops and renames tables that others refer to."""
    make_private(path)
    return _engine(path, "PRAGMA foreign_keys=OFF", begin="BEGIN IMMEDIATE", size=1)


def make_private(path: Path) -> None:
    """Make the folder and an empty file, both for their owner alone.

    Raises:
        SettingsError: it cannot be made, or it would lie on a network file system.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise SettingsError(
            f"cannot open {path}: {error.strerror}; set state_dir to a folder that is ours"
        ) from None
    kind = _file_system(path)
    if kind in _NETWORK or kind.startswith("fuse.sshfs"):
        raise SettingsError(f"{path} is on {kind}, where SQLite loses data; set state_dir to a local disk")


def _engine(path: Path, pragma: str, *, begin: str, size: int) -> Engine:
    def connect() -> sqlite3.Connection:
        # isolation_level None: the driver must never begin or commit by itself; `begin` below does.
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for line in (
            f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}",
            "PRAGMA journal_mode=WAL",
            "PRAGMA foreign_keys=ON",
            pragma,
        ):
            connection.execute(line)
        return connection

    engine = create_engine(
        "sqlite://", creator=connect, poolclass=QueuePool, pool_size=size, max_overflow=0, pool_timeout=60
    )
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    event.listen(engine, "handle_error", lambda context: _say_if_full(path, context))
    return engine


def _say_if_full(path: Path, context: ExceptionContext) -> None:
    """Raises:
    DiskFull: that is what the error comes from. SQLite has undone the transaction.
    """
    # The low byte is the kind of error. Files beside the database that cannot grow are reported as a failed read or
    # write, so there the disk is asked.
    kind = getattr(context.original_exception, "sqlite_errorcode", 0) & 0xFF
    if kind == sqlite3.SQLITE_FULL or (
        kind in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _is_full(path)
    ):
        raise DiskFull(f"no room left for {path}; make some, and it goes on")


def _is_full(path: Path) -> bool:
    disk = os.statvfs(path.parent)
    return disk.f_bavail * disk.f_frsize < _ROOM_BYTES


def _file_system(path: Path) -> str:
    """Type of the file system below a path, by the longest mount point; empty where the kernel does not say."""
    try:
        mounts = Path("/proc/self/mounts").read_text()
    except OSError:
        return ""
    here, best, kind = str(path.resolve()), "", ""
    for line in mounts.splitlines():
        _, point, found, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        if (here + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best):
            best, kind = point, found
    return kind
