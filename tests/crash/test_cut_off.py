"""A node whose network is cut: for a moment, which nobody minds, and for good."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lab.seaweed import SeaweedFS
from tests.crash import network
from tests.crash.heads import HeadWatch
from tests.crash.insides import agents, ended_within, jobs
from tests.crash.judge import judge_lines, judge_money
from tests.process.deployment import Deployment, count_to

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(240)]

STEPS = 3000
LEASE_S, DEAD_MAN_S = 10, 5  # of a node
TIMING = {"unreachable_after": "1m", "run_lease": f"{LEASE_S}m", "dead_man": f"{DEAD_MAN_S}m"}


@pytest.fixture
def own_store(tmp_path: Path) -> Iterator[SeaweedFS]:
    """An object store in a network of our own, in which the rest of the test runs, too."""
    if why := network.unusable():
        pytest.skip(why)
    with network.own_network(), SeaweedFS(tmp_path / "store") as store:
        yield store


def test_a_copy_that_is_cut_off_stops_within_its_lease_and_its_node_ends_itself(
    own_store: SeaweedFS, deploy: Callable[..., Deployment], go_ahead: Path
) -> None:
    deployment = deploy(own_store, timing=TIMING)
    if deployment.lab.info["isolation"] != "uid":
        pytest.skip(f"nodes share a user here: isolation {deployment.lab.info['isolation']}")
    heads = HeadWatch(deployment.store).start()
    job = deployment.submit(
        "hermit", run=f"python3 count.py --steps {STEPS} --pace 0.1 --save-every 10 --hurry-when {go_ahead}"
    )
    heads.watch(job)
    deployment.wait_for_commit(job)
    (machine,) = deployment.machines(job)
    run = deployment.lab.info["run"]
    (agent,) = agents(run, machine["id"])
    (training,) = jobs(run, machine["id"], "count.py")
    cables = agent.uid, deployment.api.base_url.port or 0, urlsplit(own_store.endpoint).port or 0

    with network.cut(*cables):
        deployment.wait_for("it is missed", lambda: "silent" in node_reason(deployment, job))
        seq = deployment.job(job)["commit"]["seq"]
    deployment.wait_for_commit(job, seq=seq + 1)
    assert len(deployment.placements(job)) == 1, "a short cut changes nothing"

    # The cloud does not take our word either: the node is on its own.
    deployment.lab.fault("aws", "TerminateInstances", "down", count=None)
    with network.cut(*cables):
        began = time.monotonic()
        assert ended_within(training, LEASE_S + 5), "a copy that nobody can reach stops"
        assert time.monotonic() - began > 0.5 * LEASE_S, "and not before its lease is nearly over"
        deployment.wait_for("its machine has ended", lambda: ended_by(deployment, machine["id"]))
    assert ended_by(deployment, machine["id"]) == "node"
    deployment.lab.clear()
    deployment.wait_for("another copy trains", lambda: deployment.placements(job)[-1]["resumed_step"])
    go_ahead.touch()
    deployment.finish(job)
    heads.stop()
    first, second = deployment.placements(job)
    assert (first["lost"], second["purpose"]) == (True, "recover")
    assert deployment.counted(job) == count_to(STEPS)
    assert [*heads.wrong, *judge_lines(deployment, [job]), *judge_money(deployment, [job])] == []


def node_reason(deployment: Deployment, job: str) -> str:
    nodes = [node for node in deployment.get("/nodes")["items"] if node["job_id"] == job]
    return str(nodes[0]["reason"]) if nodes else ""


def ended_by(deployment: Deployment, machine_id: str) -> str | None:
    (machine,) = [m for m in deployment.machines() if m["id"] == machine_id]
    return machine["ended_by"] if machine["state"] == "terminated" else None
