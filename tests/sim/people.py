"""What people do: submit jobs, and look after the daemon once it is calm."""

import asyncio

from broker.core.errors import BrokerError
from broker.core.model import Job
from broker.core.spec import Checkpoint, GpuRequest, JobSpec, Resources
from broker.jobs.submit import submit
from broker.store.access import PAUSED, REPORT_ONLY
from tests.sim.copy import Plan
from tests.sim.parts import Crash
from tests.sim.sim import Sim


async def submit_jobs(sim: Sim) -> None:
    """Jobs of four kinds: one saves when it is asked, one does not, one is a gang, one is soon over."""
    random = sim.chaos.random("jobs")
    wishes = [("saves", 1, True), ("stubborn", 1, False), ("gang", 2, True), ("short", 1, True)]
    for name, nodes, handles_term in wishes:
        steps = random.randrange(600, 1500) if name == "short" else random.randrange(2000, 20000)
        while _submit(sim, name, nodes, Plan(steps, handles_term)) is None:
            await asyncio.sleep(20)
        await asyncio.sleep(random.uniform(5, 120))


def _submit(sim: Sim, name: str, nodes: int, plan: Plan) -> Job | None:
    """What a person does, through whichever daemon is up; None when it does not answer."""
    daemon = next((daemon for daemon in sim.daemons if daemon.alive), None)
    if daemon is None:
        return None
    spec = JobSpec(
        name, "python train.py", Resources(gpus=(GpuRequest("H100"),), nodes=nodes),
        checkpoint=Checkpoint("ck", every_s=120, keep_last=3),
    )  # fmt: skip
    try:
        with daemon.store.write() as tx:
            job = submit(
                tx, sim.ids, spec, project_id="default", created_by="ada",
                idempotency_key=f"key-of-{name}-{sim.seed:08d}", now_ms=sim.clock.now_ms(),
            )  # fmt: skip
            sim.plans[job.id] = plan
    except (Crash, BrokerError):
        return None
    sim.note("job.submitted", job=job.id, nodes=nodes, steps=plan.total_steps, handles_term=plan.handles_term)
    return job


async def operate(sim: Sim) -> None:
    """A person who looks every few minutes, in the calm only: lifts the pause, clears report-only."""
    while not sim.over:
        await asyncio.sleep(120)
        daemon = sim.newest_daemon()
        if daemon is None or not sim.chaos.calm:
            continue
        with daemon.store.write() as tx:
            tx.set_switch(PAUSED, False, by="olga", reason="looked")
            latched = tx.switch(REPORT_ONLY)
        if latched:
            await daemon.auditor.clear("olga", "looked")
            sim.cleared = True
