"""Landings that go wrong: the money is not lost, the job lands elsewhere, and what trains is left alone.

Most of it is waiting, so they are begun at once and looked at one by one. Each has pools of its own.
"""

from collections.abc import Iterator

import pytest

from tests.process.conftest import GCP
from tests.process.deployment import Deployment, key_of

pytestmark = [pytest.mark.process, pytest.mark.timeout(240), pytest.mark.xdist_group("deployment")]

SHORT = "python3 count.py --steps 10"
LONG = "python3 count.py --steps 5000"
HERE, THERE = "aws/use1-az6/p5.48xlarge/spot", "aws/use1-az6/p5.48xlarge/on_demand"
EMPTY, NEXT = "aws/use1-az6/g6.xlarge/spot", "aws/use1-az2/g6.xlarge/spot"


@pytest.fixture(scope="module")
def landings(shared: Deployment) -> Iterator[dict[str, str]]:
    """Ids of the jobs by what happens to them."""
    jobs: dict[str, str] = {}

    def land(name: str, **job: str | list[str]) -> None:
        jobs[name] = shared.submit(name, **{"run": SHORT, **job})

    def faulty(name: str, cloud: str, operation: str, fault: str, **job: str | list[str]) -> None:
        """A fault meets whoever comes first, so nobody else may come before the machine is there."""
        shared.lab.fault(cloud, operation, fault)
        land(name, **job)
        shared.wait_for(f"the machine of {name} is there", lambda: shared.machines(jobs[name]))

    faulty("lost-on-aws", "aws", "RunInstances", "reply_lost", allow=["aws/us-east-1"])
    faulty("lost-on-gcp", "gcp", "instances.insert", "reply_lost", allow=["gcp"])
    shared.lab.stock(EMPTY, 0)
    land("finds-it-empty", gpus="L4:1", allow=["aws"])
    land("moves-in-vain", gpus="H100:8", allow=["aws"], run=LONG)
    land("probe-rejects", gpus="L4:1", allow=["gcp/us-central1/us-central1-a", "aws/us-east-1/use1-az1"])
    yield jobs
    shared.calm()


def test_a_create_whose_reply_is_lost_makes_one_machine(shared: Deployment, landings: dict[str, str]) -> None:
    for name, cloud in (("lost-on-aws", "aws"), ("lost-on-gcp", "gcp")):
        shared.finish(landings[name])
        (machine,) = shared.machines(landings[name])
        (placement,) = shared.placements(landings[name])
        assert machine["cloud"] == cloud
        assert machine["offer_key"] == placement["key"]
    assert shared.lab.state()["faults"] == [], "both replies were lost"


def test_an_empty_pool_is_left_for_the_next_and_not_asked_again(
    shared: Deployment, landings: dict[str, str]
) -> None:
    first = landings["finds-it-empty"]
    shared.finish(first)
    assert [p["key"] for p in shared.placements(first)] == [EMPTY, NEXT]
    assert "out of capacity" in shared.placements(first)[0]["reason"]
    second = shared.submit("has-heard-of-it", gpus="L4:1", allow=["aws"], run=SHORT)
    shared.finish(second)
    assert [p["key"] for p in shared.placements(second)] == [NEXT]
    assert shared.refusals(EMPTY) == 1
    decisions = shared.get(f"/jobs/{second}/decisions", limit=100)["items"]
    (placed,) = [decision for decision in decisions if decision["kind"] == "place"]
    refused = {key_of(a["offer"]): a["refused"] for a in placed["alternatives"]}
    assert "had no capacity a moment ago" in refused[EMPTY]


def test_a_move_whose_probe_rejects_never_stops_what_trains(
    shared: Deployment, landings: dict[str, str]
) -> None:
    job = landings["moves-in-vain"]
    shared.wait_for_commit(job)
    shared.lab.price(HERE, factor=1.9)
    shared.wait_for("the move has been tried", lambda: len(shared.placements(job)) == 2)
    shared.wait_for("it has failed", lambda: shared.placements(job)[1]["state"] == "gone")
    before = shared.step(job)
    shared.wait_for_step(job, before + 20)
    old, new = shared.placements(job)
    assert (new["key"], new["purpose"], new["verdict"]) == (THERE, "move", "reject")
    assert (old["key"], old["state"], old["cut"]) == (HERE, "active", None)
    assert shared.job(job)["state"] == "running"
    assert shared.log(job).count("starting at step") == 1
    assert [e["data"]["generation"] for e in shared.events(job, "checkpoint.fenced")] == [1]


def test_a_node_whose_arithmetic_is_wrong_is_given_back(shared: Deployment, landings: dict[str, str]) -> None:
    job = landings["probe-rejects"]
    shared.finish(job)
    bad, good = shared.placements(job)
    assert bad["key"] == "gcp/us-central1-a/g2-standard-4/spot"
    assert (bad["verdict"], bad["generation"]) == ("reject", None), "it never had the right to commit"
    assert "torch.exact" in bad["reason"]
    assert good["key"].startswith("aws/")
    (report,) = shared.get(f"/placements/{bad['id']}/probes")["items"]
    assert any("exact" in reason for reason in report["reasons"])


@pytest.fixture(scope="module")
def silent_landings(shared: Deployment) -> Iterator[dict[str, str]]:
    """Landings that only a deadline can end."""
    shared.lab.fault("aws", "RunInstances", "never_boots")
    jobs = {"never-boots": shared.submit("never-boots", gpus="A10G:1", allow=["aws"], run=SHORT)}
    shared.wait_for("the machine that never boots is there", lambda: shared.machines(jobs["never-boots"]))
    jobs["probe-hangs"] = shared.submit("probe-hangs", gpus="A100:1", allow=["gcp"], run=SHORT)
    yield jobs
    shared.calm()


@pytest.mark.slow
def test_a_node_whose_probe_hangs_is_given_back(shared: Deployment, silent_landings: dict[str, str]) -> None:
    job = silent_landings["probe-hangs"]
    shared.finish(job)
    bad, good = shared.placements(job)
    assert (bad["key"], bad["verdict"]) == (GCP.replace("a3", "a2"), "reject")
    assert "torch.exact" in bad["reason"], "the stage that hung is named"
    assert good["key"] == "gcp/us-central1-b/a2-highgpu-1g/spot"


@pytest.mark.slow
def test_a_node_that_never_boots_is_given_back(shared: Deployment, silent_landings: dict[str, str]) -> None:
    job = silent_landings["never-boots"]
    shared.finish(job)
    bad, good = shared.placements(job)
    assert bad["reason"].startswith("still booting after")
    assert good["key"] != bad["key"], "the pool is not trusted again so soon"
    silent, spoken = shared.machines(job)
    assert (silent["state"], silent["ended_by"]) == ("terminated", "user")
    assert spoken["state"] == "terminated"
