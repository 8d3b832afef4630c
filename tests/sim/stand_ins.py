"""A simulation with its folder and its loop; stand-ins for the few parts of the broker that would reach outside."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import structlog

from broker.store.migrate import migrate
from tests.sim.loop import SimThread
from tests.sim.settings import Settings
from tests.sim.sim import Sim


@contextmanager
def simulation(settings: Settings, *, echo: bool = False) -> Iterator[Sim]:
    """A world in which nothing has happened yet; its folder is gone afterwards."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="sim-", dir=memory if memory.is_dir() else None))
    sim = Sim(settings, folder, echo=echo)
    nonces = sim.chaos.random("nonces")
    structlog.configure(processors=[sim.logged], cache_logger_on_first_use=False)
    try:
        with ExitStack() as stack:
            for name, stand_in in (
                ("broker.store.state.migrate", _start_empty),
                ("broker.store.history.migrate", _start_empty),
                ("broker.checkpoint.commits._nonce", lambda: f"{nonces.getrandbits(128):032x}"),
                ("broker.market.reader.threading", _Threading),
                ("broker.wire.commit.run_all", _one_by_one),
                ("broker.wire.restore.run_all", _one_by_one),
                ("broker.wire.retention.run_all", _one_by_one),
            ):
                stack.enter_context(patch(name, stand_in))
            yield sim
    finally:
        asyncio.set_event_loop(None)
        sim.loop.close()
        structlog.reset_defaults()
        shutil.rmtree(folder, ignore_errors=True)


def _start_empty(path: Path, database: str) -> None:
    """Every life of every seed begins with this release's schema: it is made once in a process."""
    if not path.exists() or path.stat().st_size == 0:
        path.write_bytes(_empty(database))


@lru_cache
def _empty(database: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        migrate(path, database)
        return path.read_bytes()


class _Threading:
    Thread = SimThread


def _one_by_one(threads: int, work: Callable[[Any], Any], items: Any) -> list[Any]:
    return [work(item) for item in items]
