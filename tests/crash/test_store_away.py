"""The checkpoint store hangs while the daemon is restarted: agents are heard all the same, and train on."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from lab.seaweed import SeaweedFS
from tests.crash.judge import judge_lines, judge_money
from tests.process.deployment import Deployment, count_to

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(240)]

STEPS = 3000
# Minutes of a node are seconds here: without an answer for half a minute a job would stop itself.
TIMING = {"unreachable_after": "20m", "run_lease": "30m", "dead_man": "90m"}


@pytest.fixture
def own_store(tmp_path: Path) -> Iterator[SeaweedFS]:
    with SeaweedFS(tmp_path / "store") as store:
        yield store


def test_agents_are_served_while_a_start_waits_for_the_store(
    deploy: Callable[..., Deployment], own_store: SeaweedFS, go_ahead: Path
) -> None:
    deployment = deploy(timing=TIMING, store=own_store)
    job = deployment.submit(
        "patient", run=f"python3 count.py --steps {STEPS} --pace 0.1 --hurry-when {go_ahead}"
    )
    deployment.wait_for_commit(job)
    assert own_store.pid is not None
    os.kill(own_store.pid, signal.SIGSTOP)
    try:
        deployment.kill_daemon()
        deployment.spawn_daemon()
        deployment.wait_for("the daemon answers", lambda: answers(deployment))
        before = deployment.step(job)
        deployment.wait_for("beats are taken", lambda: deployment.step(job) > before + 150)
        assert "start.waiting" in deployment.tail("broker", 400)
    finally:
        os.kill(own_store.pid, signal.SIGCONT)
    go_ahead.touch()
    deployment.finish(job)
    assert [p["purpose"] for p in deployment.placements(job)] == ["place"]
    assert deployment.counted(job) == count_to(STEPS)
    assert [*judge_lines(deployment, [job]), *judge_money(deployment, [job])] == []


def answers(deployment: Deployment) -> bool:
    """Its API does, whether it is ready or not."""
    try:
        deployment.ready()
        return bool(deployment.get("/jobs")["items"])
    except (AttributeError, httpx.HTTPError):
        return False
