"""Run seeds: faults, then calm; the same seed and commit give the same history."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from broker.jobs.ledger import ledger
from lab.machines import EndedBy
from tests.sim.faults import Kind
from tests.sim.history import Violation
from tests.sim.nemesis import Nemesis
from tests.sim.sim import HOUR_S, Settings, Sim, simulation

CALM_S = 2.5 * HOUR_S
# Jobs times places that are each cheaper than the one before.
MOVES_IN_CALM = 12


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
    tasks = [sim.spawn(work) for work in (sim.supervise(), sim.submits(), sim.watch_time(), sim.operate())]
    nemesis = Nemesis(sim)
    nemesis.start()
    await sim.wait(sim.hours * HOUR_S)
    if sim.violation is None:
        sim.note("calm")
        sim.calm_since_s = sim.loop.now_s
        nemesis.end()
        await _come_to_rest(sim)
    if sim.violation is None:
        _ledger_is_the_bill(sim)
    sim.over = True
    for task in tasks:
        task.cancel()


async def _come_to_rest(sim: Sim) -> None:
    """Prices stand still now, and a move has to save: after a few of them nobody may want another."""
    for _ in range(MOVES_IN_CALM):
        await _converge(sim)
        if sim.violation is not None or not await _moves(sim):
            break
        sim.chaos.reached("a move in calm")
    else:
        sim.violate("L1 converges", f"jobs have moved {MOVES_IN_CALM} times at prices that stand still")
    if sim.violation is None:
        await _nothing_left_to_do(sim)


async def _moves(sim: Sim) -> bool:
    """Whether a wish has ripened just now: it waits for its hold and its cooldown, however quiet the rest is."""
    daemon = await sim.some_daemon()
    return bool(daemon.decider.one_pass())


async def _converge(sim: Sim) -> None:
    began_s = sim.loop.now_s
    quiet = 0
    while quiet < 6:
        await sim.wait(20)
        if sim.violation is not None:
            return
        why = sim.unsettled()
        quiet = 0 if why else quiet + 1
        if sim.loop.now_s - began_s > CALM_S:
            sim.violate("L1 converges", f"after {CALM_S / 3600:g} h of calm: {why}")


async def _nothing_left_to_do(sim: Sim) -> None:
    """A second pass has no effects. The first may still write down how far the jobs have come."""
    daemon = await sim.some_daemon()
    daemon.reconciler.one_pass()
    left = daemon.reconciler.one_pass()
    if left or daemon.reconciler._running:
        sim.violate(
            "L2 quiet", f"a pass over a world at rest wants {left} changes: {daemon.reconciler._running}"
        )
    await daemon.collector.one_pass()
    if daemon.collector.unowned:
        sim.violate("L2 quiet", f"unowned: {daemon.collector.sweeps}")


def _ledger_is_the_bill(sim: Sim) -> None:
    """Row by row, where the cloud told the end; where it keeps no record, never less than its bill."""
    daemon = next(d for d in sim.daemons if d.alive)
    now_ms = sim.world_clock.now_ms()
    with daemon.store.read() as tx:
        segments = tx.segments()
    points = {s.offer.key: daemon.history.points(s.offer.key, 0, now_ms + 1) for s in segments}
    rule: Any = lambda cloud, market: daemon.clouds[cloud].billing_rule(market)  # noqa: E731
    paid = {bill.segment.node_token: bill for bill in ledger(segments, points, rule, now_ms)}
    for line in sim.world.bill():
        machine = sim.world.machine(line.machine)
        if machine.running_s is None or machine.holds_stock:
            continue
        token = machine.labels["token"]
        bill = paid.get(token)
        if bill is None and token not in sim.truth.nodes:
            sim.chaos.reached("a machine whose row was lost with a restored database")
            continue  # nobody knows whose it was
        if bill is None and machine.ended_by is not EndedBy.USER and token in sim.orphans:
            sim.chaos.reached("an orphan ended before it could be collected")
            continue  # nobody has seen its meter
        if bill is None:
            sim.violate("I6 ledger", f"{token} cost {line.cost_micro_usd} and is in no ledger")
        assert bill is not None
        if sim.clock_was_wrong:
            continue  # an end that no cloud tells, and a price that is newer than now, are dated by our clock
        end_ms = bill.segment.ended_at_ms or 0
        told = machine.stopping_s is not None and end_ms == machine.stopping_s * 1000
        if told and bill.paid_micro_usd != line.cost_micro_usd:
            sim.violate("I6 ledger", f"{token} cost {line.cost_micro_usd} ({line}); the ledger has {bill}")
        if not told:
            sim.chaos.reached("the end of a meter was inferred")
            if bill.paid_micro_usd < line.cost_micro_usd:
                sim.violate(
                    "I6 ledger", f"{token} cost {line.cost_micro_usd} ({line}); the ledger has less: {bill}"
                )


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
