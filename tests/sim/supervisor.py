"""systemd: a daemon is started again whenever it ends."""

import asyncio
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

from broker.store.access import PAUSED, REPORT_ONLY
from tests.sim.daemon import SimDaemon
from tests.sim.sim import Sim


def open_daemon(sim: Sim) -> SimDaemon:
    """A new process, over the database that is there now."""
    with patch("broker.store.state.FileLock", _NoLock) if sim.without_lock else nullcontext():
        daemon = SimDaemon(sim, len(sim.daemons) + 1, sim.clock)
    sim.daemons.append(daemon)
    sim.truth.reload(daemon)
    with daemon.store.read() as tx:
        on = {name: tx.switch(name) for name in (PAUSED, REPORT_ONLY)}
    sim.truth.report_only_since_s = sim.loop.now_s if on[REPORT_ONLY] else None
    sim.truth.paused_since_s = sim.loop.now_s if on[PAUSED] else None
    sim.note("daemon.started", daemon=daemon.number, epoch=daemon.store.epoch)
    daemon.start()
    return daemon


async def supervise(sim: Sim) -> None:
    """One life after the other, with what happens to the files in between."""
    random = sim.chaos.random("supervisor")
    while not sim.over:
        for deed in sim.between_lives:
            deed()
        sim.between_lives.clear()
        daemon = open_daemon(sim)
        await daemon.ended.wait()
        await daemon.close()
        if not sim.over:
            await asyncio.sleep(sim.stay_down_s or random.expovariate(1 / 10))
            sim.stay_down_s = 0.0
    sim.without_lock = False


class _NoLock:
    """A lock that locks nothing."""

    def __init__(self, path: Path, now_ms: int) -> None:
        self.holder = "nobody"

    def release(self) -> None:
        pass
