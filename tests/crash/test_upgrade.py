"""A release with another agent takes over while a job moves: what is under way goes on."""

import os
import shutil
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.heads import HeadWatch
from tests.crash.insides import agents
from tests.crash.judge import judge_lines, judge_money
from tests.process.conftest import FIRST, SECOND
from tests.process.deployment import Deployment, count_to
from tests.process.lab_and_daemon import ROOT

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(240)]

STEPS = 3000
NEXT = "9.9.9"


def next_release(folder: Path) -> tuple[list[str], dict[str, str]]:
    """A copy of this one in another place, with another version and another agent: command and environment."""
    for part in ("broker", "providers"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    version = folder / "broker" / "__init__.py"
    version.write_text(version.read_text().replace('__version__ = "', f'__version__ = "{NEXT}+'))
    with (folder / "broker" / "node" / "agent.py").open("a") as agent:
        agent.write(f"\n# release {NEXT}\n")
    # No site, so that no .pth file brings this source tree back; nor the folder that we are started in.
    command = [sys.executable, "-S", "-P", "-m", "broker"]
    return command, {"PYTHONPATH": os.pathsep.join([str(folder), sysconfig.get_path("purelib")])}


def test_a_node_that_boots_across_an_upgrade_lands(
    tmp_path: Path, deploy: Callable[..., Deployment], go_ahead: Path
) -> None:
    command, env = next_release(tmp_path / "next")
    deployment = deploy(scenario={"boot_s": {"aws": 180, "gcp": 180}})  # three seconds
    heads = HeadWatch(deployment.store).start()
    job = deployment.submit(
        "mover",
        allow=["aws/us-east-1"],
        run=f"python3 count.py --steps {STEPS} --pace 0.1 --save-every 10 --hurry-when {go_ahead}",
    )
    heads.watch(job)
    deployment.wait_for_commit(job)
    before = served_agent(deployment)
    deployment.lab.price(FIRST, factor=1.9)

    def booting() -> list[str]:
        return [
            m["id"] for m in deployment.machines(job) if m["state"] == "running" and m["offer_key"] == SECOND
        ]

    (machine,) = deployment.wait_for("the new node boots", booting)
    deployment.kill_daemon()
    assert agents(deployment.lab.info["run"], machine) == [], "it has not fetched its agent yet"
    deployment.start_daemon(command, **env)
    assert deployment.get("/openapi.json")["info"]["version"].startswith(NEXT)
    assert served_agent(deployment) != before

    deployment.wait_for("it has moved", lambda: deployment.placements(job)[-1]["resumed_step"])
    # One more, all by the new release.
    deployment.lab.price(SECOND, factor=3)
    deployment.wait_for("it has moved again", lambda: len(trained(deployment, job)) == 3)
    go_ahead.touch()
    deployment.finish(job)
    heads.stop()
    assert len(deployment.placements(job)) == 3, "no node was rented in vain"
    assert [p["purpose"] for p in trained(deployment, job)] == ["place", "move", "move"]
    assert deployment.counted(job) == count_to(STEPS)
    assert [*heads.wrong, *judge_lines(deployment, [job]), *judge_money(deployment, [job])] == []


def served_agent(deployment: Deployment) -> str:
    """Hash of the agent that new nodes get."""
    answer = deployment.api.get(deployment.api.base_url.copy_with(path="/agent/v1/agent.pyz"))
    return str(answer.headers["X-Agent-SHA256"])


def trained(deployment: Deployment, job: str) -> list[dict[str, object]]:
    return [p for p in deployment.placements(job) if p["training_at_ms"] is not None]
