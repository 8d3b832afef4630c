"""Landings that go wrong: the money is not lost, the job lands elsewhere, and what trains is left alone."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.process.deployment import Deployment, key_of

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("deployment")]


def test_a_create_whose_reply_is_lost_makes_one_machine(deployment: Deployment) -> None:
    deployment.lab.fault("aws", "RunInstances", "reply_lost")
    deployment.lab.fault("gcp", "instances.insert", "reply_lost")
    jobs = {
        cloud: deployment.submit(f"lost-{cloud}", allow=[cloud], run="python3 count.py --steps 10")
        for cloud in ("aws", "gcp")
    }
    for cloud, job in jobs.items():
        deployment.finish(job)
        (machine,) = deployment.machines(job)
        (placement,) = deployment.placements(job)
        assert machine["cloud"] == cloud
        assert machine["offer_key"] == placement["key"]
    assert deployment.lab.state()["faults"] == [], "both replies were lost"


def test_an_empty_pool_is_left_for_the_next_and_not_asked_again(deployment: Deployment) -> None:
    cheapest, next_one = "aws/use1-az6/g6.xlarge/spot", "aws/use1-az2/g6.xlarge/spot"
    deployment.lab.stock(cheapest, 0)
    wish = {"gpus": "L4:1", "allow": ["aws/us-east-1"], "run": "python3 count.py --steps 10"}
    first = deployment.submit("finds-it-empty", **wish)
    deployment.finish(first)
    assert [p["key"] for p in deployment.placements(first)] == [cheapest, next_one]
    assert "out of capacity" in deployment.placements(first)[0]["reason"]
    second = deployment.submit("has-heard-of-it", **wish)
    deployment.finish(second)
    assert [p["key"] for p in deployment.placements(second)] == [next_one]
    assert deployment.refusals(cheapest) == 1
    (decision,) = [
        d for d in deployment.get(f"/jobs/{second}/decisions", limit=100)["items"] if d["kind"] == "place"
    ]
    refused = {key_of(a["offer"]): a["refused"] for a in decision["alternatives"]}
    assert "had no capacity a moment ago" in refused[cheapest]


@dataclass
class BadLandings:
    """Three jobs that land badly at the same time, since most of it is waiting."""

    deployment: Deployment
    never_boots: str
    hangs: str
    rejects: str


@pytest.fixture(scope="module")
def bad_landings(shared: Deployment) -> Iterator[BadLandings]:
    run = "python3 count.py --steps 10"
    shared.lab.fault("aws", "RunInstances", "never_boots")
    never_boots = shared.submit("never-boots", gpus="A10G:1", allow=["aws"], run=run)
    shared.wait_for("the machine that never boots is there", lambda: shared.machines(never_boots))
    hangs = shared.submit("probe-hangs", gpus="A100:1", allow=["gcp"], run=run)
    rejects = shared.submit(
        "probe-rejects", gpus="L4:1", allow=["gcp/us-central1/us-central1-a", "aws/us-east-1"], run=run
    )
    yield BadLandings(shared, never_boots, hangs, rejects)
    shared.calm()


def test_a_node_whose_arithmetic_is_wrong_is_given_back(bad_landings: BadLandings) -> None:
    deployment, job = bad_landings.deployment, bad_landings.rejects
    deployment.finish(job)
    bad, good = deployment.placements(job)
    assert bad["key"] == "gcp/us-central1-a/g2-standard-4/spot"
    assert (bad["verdict"], bad["generation"]) == ("reject", None), "it never had the right to commit"
    assert "torch.exact" in bad["reason"]
    assert good["key"].startswith("aws/")
    (report,) = deployment.get(f"/placements/{bad['id']}/probes")["items"]
    assert any("exact" in reason for reason in report["reasons"])


def test_a_node_whose_probe_hangs_is_given_back(bad_landings: BadLandings) -> None:
    deployment, job = bad_landings.deployment, bad_landings.hangs
    deployment.finish(job)
    bad, good = deployment.placements(job)
    assert (bad["key"], bad["verdict"]) == ("gcp/us-central1-a/a2-highgpu-1g/spot", "reject")
    assert "torch.exact" in bad["reason"], "the stage that hung is named"
    assert good["key"] == "gcp/us-central1-b/a2-highgpu-1g/spot"


def test_a_node_that_never_boots_is_given_back(bad_landings: BadLandings) -> None:
    deployment, job = bad_landings.deployment, bad_landings.never_boots
    deployment.finish(job)
    bad, good = deployment.placements(job)
    assert bad["reason"].startswith("still booting after")
    assert good["key"] != bad["key"], "the pool is not trusted again so soon"
    (silent, spoken) = deployment.machines(job)
    assert (silent["state"], silent["ended_by"]) == ("terminated", "user")
    assert spoken["state"] == "terminated"


def test_a_move_whose_probe_rejects_never_stops_what_trains(deployment: Deployment) -> None:
    here, there = "aws/use1-az6/p5.48xlarge/spot", "aws/use1-az6/p5.48xlarge/on_demand"
    long = "python3 count.py --steps 5000 --pace 0.05 --save-every 20"
    job = deployment.submit("stays", gpus="H100:8", allow=["aws/us-east-1"], run=long)
    deployment.wait_for_commit(job)
    deployment.lab.price(here, factor=1.9)
    deployment.wait_for("the move has been tried", lambda: len(deployment.placements(job)) == 2)
    deployment.wait_for("it has failed", lambda: deployment.placements(job)[1]["state"] == "gone")
    before = deployment.step(job)
    deployment.wait_for_step(job, before + 20)
    old, new = deployment.placements(job)
    assert (new["key"], new["purpose"], new["verdict"]) == (there, "move", "reject")
    assert (old["key"], old["state"], old["cut"]) == (here, "active", None)
    assert deployment.job(job)["state"] == "running"
    assert deployment.log(job).count("starting at step") == 1
    assert [e["data"]["generation"] for e in deployment.events(job, "checkpoint.fenced")] == [1]
