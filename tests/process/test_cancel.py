"""`broker cancel` in every state of a job: the job ends as cancelled, and no machine is left."""

from collections.abc import Iterator

import pytest

from tests.process.deployment import Deployment

pytestmark = [pytest.mark.process, pytest.mark.timeout(240), pytest.mark.xdist_group("deployment")]

LONG = "python3 count.py --steps 5000"


@pytest.fixture(scope="module")
def will_move(shared: Deployment) -> Iterator[str]:
    """A job that has trained a while by the time its turn comes."""
    job = shared.submit("moving", gpus="A10G:1", allow=["aws/us-east-1"], run=LONG)
    shared.wait_for("its machine is there", lambda: shared.machines(job))
    yield job
    shared.calm()


def cancel(deployment: Deployment, job: str) -> None:
    done = deployment.broker("cancel", job)
    assert done.code == 0, done.err
    row = deployment.wait_for_job(job, "cancelled")
    assert row["reason"] == "cancelled"
    deployment.wait_for_gone(job)


@pytest.mark.usefixtures("will_move")
def test_a_queued_job(shared: Deployment) -> None:
    job = shared.submit("queued", gpus="H200:8")
    shared.wait_for("it has been told why it waits", lambda: "H200" in shared.job(job)["reason"])
    cancel(shared, job)
    assert shared.placements(job) == []
    again = shared.broker("cancel", job)
    assert again.code == 5
    assert "is cancelled already" in again.err


@pytest.mark.usefixtures("will_move")
def test_a_landing_job(shared: Deployment) -> None:
    shared.lab.fault("aws", "RunInstances", "never_boots")
    job = shared.submit("landing", allow=["aws"], run=LONG)
    shared.wait_for("its machine is there", lambda: shared.machines(job))
    cancel(shared, job)
    (placement,) = shared.placements(job)
    assert placement["training_at_ms"] is None
    assert shared.log(job) == ""


@pytest.mark.usefixtures("will_move")
def test_a_running_job_may_save_first(shared: Deployment) -> None:
    job = shared.submit("running", run=LONG)
    shared.wait_for_step(job, 5)
    cancel(shared, job)
    left = int(shared.log(job).split("leaving at step ")[1].split()[0])
    assert shared.counted(job)["step"] == left, "what it saved when asked to stop is in the store"


def test_a_moving_job(shared: Deployment, will_move: str) -> None:
    job = will_move
    shared.wait_for_commit(job)
    (old,) = shared.placements(job)
    shared.lab.fault("aws", "RunInstances", "never_boots")
    shared.lab.price(old["key"], factor=1.9)
    shared.wait_for_job(job, "moving")
    shared.wait_for("the new machine is there", lambda: len(shared.machines(job)) == 2)
    cancel(shared, job)
    old, new = shared.placements(job)
    assert (old["reason"], new["reason"]) == ("cancelled", "cancelled")
    assert (new["purpose"], new["generation"]) == ("move", None)
