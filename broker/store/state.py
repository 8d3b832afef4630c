"""``state.db``: the truth about jobs, placements and nodes, and the log of everything that happened.

    store = StateStore.open(folder / "state.db", clock, ids)
    with store.write() as tx:
        seq = tx.emit(Event("node.intended", clock.now_ms(), ...))
        tx.save(replace(node, event_seq=seq))

A transaction is one short moment: no network call and no await inside. Any thread may open one; writers wait for
each other, readers for nobody.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog
from sqlmodel import Session, select

from broker.core.ports import Clock, Ids
from broker.store.access import DEFAULT_PROJECT, Access
from broker.store.engines import Engines, make_private, open_engines
from broker.store.lease import FileLock, check_lease, take_lease
from broker.store.memory import Memory
from broker.store.migrate import migrate
from broker.store.tables import InstallationRow, ProjectRow

log = structlog.get_logger()

OnCommit = Callable[[int], None]


class Tx(Access, Memory):
    """One transaction; everything it reads is of one moment, everything it writes comes true at once or not at all."""


class StateStore:
    """Owner of ``state.db`` until `close`. Safe for use from several threads."""

    def __init__(
        self, engines: Engines, lock: FileLock, epoch: int, installation_id: str, clock: Clock
    ) -> None:
        self._engines = engines
        self._lock = lock
        self._clock = clock
        self._callbacks: list[OnCommit] = []
        self._thread = threading.local()
        self.epoch = epoch
        self.installation_id = installation_id

    @classmethod
    def open(cls, path: Path, clock: Clock, ids: Ids) -> "StateStore":
        """Take the database over: lock, upgrade, new epoch.

        Raises:
            AlreadyRunning: another process holds it; the text names which.
            BrokerError: it was written by a newer release.
            SettingsError: the path is no place for a database.
        """
        make_private(path)
        lock = FileLock(path.with_suffix(".lock"), clock.now_ms())
        try:
            migrate(path, "state")
            engines = open_engines(path, synchronous="FULL")
            with engines.writer.begin() as connection:
                epoch = take_lease(connection, str(lock.holder), clock.now_ms())
                installation_id = _first_rows(Session(connection), clock, ids)
        except BaseException:
            lock.release()
            raise
        log.info("store.opened", path=str(path), epoch=epoch, installation_id=installation_id)
        return cls(engines, lock, epoch, installation_id, clock)

    @contextmanager
    def write(self) -> Iterator[Tx]:
        """A transaction that commits when the block ends, and does nothing at all when it raises.

        Raises:
            LeaseLost: another daemon has taken over. Nothing was written.
        """
        # The writer has one connection: a second write in the same thread would wait for the first for ever.
        assert not getattr(self._thread, "writing", False), "a write inside a write"
        self._thread.writing = True
        try:
            with self._engines.writer.begin() as connection:
                check_lease(connection, self.epoch)
                tx = Tx(connection, self._clock)
                try:
                    yield tx
                    tx.flush()
                finally:
                    tx.close()
        finally:
            self._thread.writing = False
        if tx.last_emitted is not None:
            self._tell(tx.last_emitted)

    @contextmanager
    def read(self) -> Iterator[Tx]:
        """A transaction that sees one moment; writing in it fails."""
        with self._engines.reader.begin() as connection:
            tx = Tx(connection, self._clock)
            try:
                yield tx
            finally:
                tx.close()

    def on_commit(self, callback: OnCommit) -> None:
        """Call with the number of the newest event after every commit that wrote one, in the thread that wrote it.

        Two threads may report out of order: take the number as a hint and read from the log.
        """
        self._callbacks.append(callback)

    def close(self) -> None:
        """Close every connection and let the next daemon in."""
        self._engines.dispose()
        self._lock.release()

    def _tell(self, seq: int) -> None:
        for callback in self._callbacks:
            try:
                callback(seq)
            except Exception:
                log.exception("store.listener_failed", seq=seq)


def _first_rows(session: Session, clock: Clock, ids: Ids) -> str:
    """Make what every database has: its installation id, which is returned, and the default project."""
    now_ms = clock.now_ms()
    installation = session.exec(select(InstallationRow)).one_or_none()
    if installation is None:
        installation = InstallationRow(id=f"bi-{ids.base32(16)}", created_at_ms=now_ms)
        session.add(installation)
    if session.get(ProjectRow, DEFAULT_PROJECT) is None:
        session.add(ProjectRow(id=DEFAULT_PROJECT, created_by="broker", created_at_ms=now_ms))
    session.flush()
    return installation.id
