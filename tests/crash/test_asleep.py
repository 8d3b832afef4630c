"""An agent is stopped for longer than its lease, and goes on: another copy has its job, and HEAD is that one's."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.heads import HeadWatch
from tests.crash.insides import agents, ended_within, jobs, processes
from tests.crash.judge import judge_lines, judge_money
from tests.process.deployment import Deployment, count_to

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(240)]

STEPS = 3000
# Seconds of a node are a sixtieth of these.
TIMING = {"unreachable_after": "1m", "run_lease": "8m", "dead_man": "90m"}


def test_it_is_refused_by_head_and_stops_its_job(deploy: Callable[..., Deployment], go_ahead: Path) -> None:
    deployment = deploy(timing=TIMING)
    heads = HeadWatch(deployment.store).start()
    job = deployment.submit(
        "sleeper", run=f"python3 count.py --steps {STEPS} --pace 0.1 --save-every 10 --hurry-when {go_ahead}"
    )
    heads.watch(job)
    deployment.wait_for_commit(job)
    (machine,) = deployment.machines(job)
    run = deployment.lab.info["run"]
    (agent,) = agents(run, machine["id"])
    (training,) = jobs(run, machine["id"], "count.py")
    # The cloud does not end the machine either: all that is left is what the copy does by itself.
    deployment.lab.fault("aws", "TerminateInstances", "down", count=None)
    agent.tell(signal.SIGSTOP)
    deployment.wait_for("another copy trains", lambda: deployment.placements(job)[-1]["resumed_step"])
    deployment.wait_for_commit(job, seq=deployment.job(job)["commit"]["seq"] + 1)
    assert training.alive, "its job has trained on all the time"
    assert agent.home is not None
    log = agent.home / "agent.log"

    # Nor does the daemon tell it anything.
    daemon = deployment.child("broker")
    daemon.send_signal(signal.SIGSTOP)
    try:
        agent.tell(signal.SIGCONT)
        deadline = time.monotonic() + 6
        while "job.fenced" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        daemon.send_signal(signal.SIGCONT)
    said = log.read_text()
    assert "lease.ending" in said
    assert "job.fenced" in said
    assert ended_within(training, 10), "no copy trains on that may not commit"
    assert any("deadman" in process.words for process in processes(run, machine["id"])), (
        "by itself, not with its node"
    )

    deployment.lab.clear()
    go_ahead.touch()
    deployment.finish(job)
    heads.stop()
    first, second = deployment.placements(job)
    assert (first["lost"], second["purpose"]) == (True, "recover")
    assert deployment.counted(job) == count_to(STEPS)
    assert [*heads.wrong, *judge_lines(deployment, [job]), *judge_money(deployment, [job])] == []
