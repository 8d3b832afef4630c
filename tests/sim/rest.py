"""After the faults: everything must come to rest, and then there is nothing left to do (L1, L2)."""

from broker.core.model import JobState, NodeState, PlacementState
from tests.sim.daemon import CLOUDS
from tests.sim.settings import HOUR_S
from tests.sim.sim import Sim

CALM_S = 2.5 * HOUR_S
# Jobs times places that are each cheaper than the one before.
MOVES_IN_CALM = 12
# Whole polls after which a price is believed, however odd it seems.
CONFIRMED_BY = 2


async def come_to_rest(sim: Sim) -> None:
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
        why = unsettled(sim)
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


def unsettled(sim: Sim) -> str | None:
    """Why the world is not at rest yet, or None."""
    truth = sim.truth
    if not any(d.alive and sim.loop.now_s - d.started_s > 90 for d in sim.daemons):
        return "no daemon has been up for a while"
    wanted: set[str] = set()
    for job in truth.jobs.values():
        if job.state.final:
            continue
        active = [
            p for p in truth.placements.values() if p.job_id == job.id and p.state == PlacementState.ACTIVE
        ]
        if job.state != JobState.RUNNING or len(active) != 1:
            return f"{job.id} is {job.state}: {job.reason}"
        nodes = [n for n in truth.nodes.values() if n.placement_id == active[0].id]
        for node in nodes:
            if node.state != NodeState.RUNNING:
                return f"{node.token} is {node.state}"
            copy = sim.training_on(node.token)
            if copy is None or copy.generation != truth.head(job.id).generation:
                return f"{job.id} should train on {node.token}"
            wanted.add(node.token)
    open_placements = [p.id for p in truth.placements.values() if p.state not in ("gone", "active")]
    if open_placements:
        return f"{open_placements} are not gone"
    billed = [m for m in sim.world.machines() if m.holds_stock]
    extra = [m.labels["token"] for m in billed if m.labels["token"] not in wanted]
    if extra:
        return f"{extra} are billed and do no work"
    open_nodes = {n.token for n in truth.nodes.values() if n.state != NodeState.GONE}
    if open_nodes != wanted:
        return f"rows are open without use: {open_nodes - wanted}"
    if truth.report_only_since_s is not None:
        return "report-only"
    return _prices_missing(sim)


def _prices_missing(sim: Sim) -> str | None:
    """A price that seemed odd is believed when a second poll confirms it; then the ledger can be the bill."""
    for cloud in CLOUDS:
        since_calm = [began for began, _ in sim.whole_polls[cloud].values() if began > sim.calm_since_s]
        if len(since_calm) < CONFIRMED_BY:
            return f"{cloud} has been polled {len(since_calm)} times since the calm"
    return None
