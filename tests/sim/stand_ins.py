"""A simulation with its folder and its loop; stand-ins for the few parts of the broker that would reach outside."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import structlog

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


class _Threading:
    Thread = SimThread


def _one_by_one(threads: int, work: Callable[[Any], Any], items: Any) -> list[Any]:
    return [work(item) for item in items]
