"""`broker cancel` in every state of a job: the job ends as cancelled, and no machine is left."""

import pytest

from tests.process.conftest import FIRST
from tests.process.deployment import Deployment

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("deployment")]

LONG = "python3 count.py --steps 5000 --pace 0.05 --save-every 20"


def cancel(deployment: Deployment, job: str) -> None:
    done = deployment.broker("cancel", job)
    assert done.code == 0, done.err
    row = deployment.wait_for_job(job, "cancelled")
    assert row["reason"] == "cancelled"
    deployment.wait_for_gone(job)


def test_a_queued_job(deployment: Deployment) -> None:
    job = deployment.submit("queued", gpus="H200:8")
    deployment.wait_for("it has been told why it waits", lambda: "H200" in deployment.job(job)["reason"])
    cancel(deployment, job)
    assert deployment.placements(job) == []
    again = deployment.broker("cancel", job)
    assert again.code == 5
    assert "is cancelled already" in again.err


def test_a_landing_job(deployment: Deployment) -> None:
    job = deployment.submit("landing", run=LONG)
    deployment.wait_for("its machine is there", lambda: deployment.machines(job))
    cancel(deployment, job)
    (placement,) = deployment.placements(job)
    assert placement["training_at_ms"] is None
    assert deployment.log(job) == ""


def test_a_running_job_may_save_first(deployment: Deployment) -> None:
    job = deployment.submit("running", run=LONG)
    deployment.wait_for_step(job, 5)
    cancel(deployment, job)
    said = deployment.log(job)
    left = int(said.split("leaving at step ")[1].split()[0])
    assert deployment.counted(job)["step"] == left, "what it saved when asked to stop is in the store"


def test_a_moving_job(deployment: Deployment) -> None:
    job = deployment.submit("moving", run=LONG)
    deployment.wait_for_commit(job)
    deployment.lab.price(FIRST, factor=1.9)
    deployment.wait_for_job(job, "moving")
    deployment.wait_for("the new machine is there", lambda: len(deployment.machines(job)) == 2)
    cancel(deployment, job)
    old, new = deployment.placements(job)
    assert (old["key"], new["purpose"], new["generation"]) == (FIRST, "move", None)
