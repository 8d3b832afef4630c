"""Run seeds: faults, then calm; the same seed and commit give the same history."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from tests.sim.bill import ledger_is_the_bill
from tests.sim.faults import Kind
from tests.sim.history import Violation
from tests.sim.nemesis import Nemesis
from tests.sim.people import operate, submit_jobs
from tests.sim.rest import come_to_rest
from tests.sim.settings import HOUR_S, Settings
from tests.sim.sim import Sim
from tests.sim.stand_ins import simulation
from tests.sim.supervisor import supervise


@dataclass
class Result:
    """What one seed came to."""

    settings: Settings
    rule: str = ""
    text: str = ""
    sha256: str = ""
    simulated_s: float = 0.0
    counts: Counter[Kind] = field(default_factory=Counter)
    sometimes: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)
    cause: str = ""

    @property
    def seed(self) -> int:
        return self.settings.seed

    @property
    def ok(self) -> bool:
        return not self.rule


def run_seed(settings: Settings, *, echo: bool = False) -> Result:
    """One seed from start to end."""
    with simulation(settings, echo=echo) as sim:
        asyncio.set_event_loop(sim.loop)
        try:
            sim.loop.run_until_complete(_both_phases(sim))
        except Violation as error:
            sim.failed(error, "at the end")
        finally:
            sim.loop.run_until_complete(_tear_down(sim))
        found = sim.violation
        result = Result(
            settings, sha256=sim.history.sha256, simulated_s=sim.loop.now_s, lines=sim.history.lines
        )
        result.counts, result.sometimes = sim.chaos.counts, sim.chaos.sometimes
        if found is not None:
            import traceback

            result.rule, result.text = found.rule, str(found)
            result.cause = "".join(traceback.format_exception(found))
        return result


async def _both_phases(sim: Sim) -> None:
    parts = (supervise(sim), submit_jobs(sim), sim.watch_time(), operate(sim))
    tasks = [sim.spawn(work) for work in parts]
    nemesis = Nemesis(sim)
    nemesis.start()
    await sim.wait(sim.hours * HOUR_S)
    if sim.violation is None:
        sim.note("calm")
        sim.calm_since_s = sim.loop.now_s
        nemesis.end()
        await come_to_rest(sim)
    if sim.violation is None:
        ledger_is_the_bill(sim)
    sim.over = True
    for task in tasks:
        task.cancel()


async def _tear_down(sim: Sim) -> None:
    sim.over = True
    for daemon in sim.daemons:
        if daemon.alive:
            daemon.kill("the end")
            await daemon.close()
    for node in sim.fleet.values():
        node.die()
    others = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
