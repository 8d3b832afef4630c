"""A copy of the state folder, taken while the daemon runs, that knows that it is a copy.

SQLite's own backup reads one moment of each database through the write-ahead log, so nobody has to stop writing. A
copy that is started later is older than the world; so report-only is latched *inside* the copy, before anything could
be done with it.
"""

import errno
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from broker.core.errors import BrokerError, Conflict, NotFound
from broker.core.ports import Clock
from broker.core.time import to_iso
from broker.store.access import REPORT_ONLY, Access
from broker.store.engines import open_engines

# Of the state folder. Logs, locks and a `folder` checkpoint store are not in the copy.
DATABASES = ("history.db", "state.db")
FILES = ("operator.token",)
FOLDERS = ("tls", "sources")


def back_up(state_dir: Path, into: Path, clock: Clock) -> list[tuple[str, int]]:
    """Copy databases, certificates, the operator's token and jobs' sources; whole or not at all.

    Args:
        into: A folder that does not exist yet; it can be used as a state folder as it is.

    Returns:
        Names with their size in bytes.

    Raises:
        NotFound: there is no state database.
        Conflict: `into` exists.
        BrokerError: it cannot be read or written, or the copy is damaged.
    """
    if not (state_dir / "state.db").is_file():
        raise NotFound(f"no state.db in {state_dir}; name the daemon's configuration with --config")
    if into.exists():
        raise Conflict(f"{into} exists; a backup is written into a new folder")
    partial: Path | None = None
    try:
        into.parent.mkdir(parents=True, exist_ok=True)
        # A name of its own: a second backup that is started meanwhile neither meets this one nor cleans it away.
        partial = Path(tempfile.mkdtemp(prefix=f".{into.name}.", suffix=".partial", dir=into.parent))
        _copy(state_dir, partial, clock)
        _publish(partial, into)
    except (OSError, sqlite3.Error) as error:
        raise BrokerError(f"no backup was made in {into}: {error}") from error
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)
    return [(name, _size(into / name)) for name in (*DATABASES, *FILES, *FOLDERS) if (into / name).exists()]


def _publish(partial: Path, into: Path) -> None:
    """Give the copy its name. Whoever has it keeps it, were it a backup that was started later: nothing is replaced."""
    try:
        partial.rename(into)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise Conflict(f"{into} has appeared meanwhile; this backup was given up") from error
        raise


def _copy(state_dir: Path, into: Path, clock: Clock) -> None:
    # What the copy says of its age: never later than what is in it, however long the copying takes.
    taken_ms = clock.now_ms()
    # Databases first: a source is there before the row that needs it, so every row of the copy finds its source.
    for name in DATABASES:
        if (state_dir / name).is_file():
            _copy_database(state_dir / name, into / name)
    _latch(into / "state.db", clock, taken_ms)
    for name in FOLDERS:
        if (state_dir / name).is_dir():
            shutil.copytree(state_dir / name, into / name, ignore=shutil.ignore_patterns(".*"))
    for name in FILES:
        if (state_dir / name).is_file():
            shutil.copy2(state_dir / name, into / name)


def _copy_database(source: Path, target: Path) -> None:
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with (
        closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as here,
        closing(sqlite3.connect(target)) as there,
    ):
        here.backup(there)
        _one_file(there)
        (found,) = there.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise BrokerError(f"{source} is damaged: {found}")


def _latch(database: Path, clock: Clock, taken_ms: int) -> None:
    engines = open_engines(database, synchronous="FULL")
    try:
        with engines.writer.begin() as connection:
            access = Access(connection, clock)
            access.set_switch(
                REPORT_ONLY, True, by="backup", reason=f"restored from the backup of {to_iso(taken_ms)}"
            )
            access.flush()
            access.close()
    finally:
        engines.dispose()
    with closing(sqlite3.connect(database)) as copy:
        _one_file(copy)


def _one_file(connection: sqlite3.Connection) -> None:
    """No write-ahead log beside it: what is copied by hand is then whole."""
    connection.execute("PRAGMA journal_mode=DELETE")


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
