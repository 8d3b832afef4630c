"""When nobody can tell what things cost: jobs that train stay, and a job that was cut off does not wait."""

from collections.abc import Iterator

import pytest

from tests.process.conftest import FIRST
from tests.process.deployment import Deployment

pytestmark = [pytest.mark.process, pytest.mark.timeout(240), pytest.mark.xdist_group("deployment")]


@pytest.fixture
def impatient(deployment: Deployment) -> Iterator[Deployment]:
    """With a policy for which a price is too old after four minutes, which are four seconds here."""
    file = deployment.policies / "impatient.yaml"
    text = (deployment.policies / "default.yaml").read_text()
    file.write_text(
        text.replace("policy: default", "policy: impatient\nmatch: {labels: {patience: none}}").replace(
            "10m", "4m", 1
        )
    )
    assert len(deployment.call("POST", "/policies/reload")["policies"]) == 2
    yield deployment
    file.unlink()
    deployment.call("POST", "/policies/reload")


def test_a_job_that_is_cut_off_recovers_on_the_last_good_price_and_says_so(impatient: Deployment) -> None:
    deployment = impatient
    job = deployment.submit(
        "blind",
        policy="impatient",
        allow=["aws/us-east-1"],
        run="python3 count.py --steps 5000",
    )
    deployment.wait_for_commit(job)
    (old,) = deployment.placements(job)
    for operation in ("DescribeSpotPriceHistory", "GetProducts", "DescribeInstanceTypeOfferings"):
        deployment.lab.fault("aws", operation, "down", count=None)
    deployment.lab.price(FIRST, factor=1.9)

    def blind() -> bool:
        ages = [item["age_s"] for item in deployment.get("/prices", cloud="aws")["items"]]
        return min(ages) > 240

    deployment.wait_for("every price is too old", blind)
    assert deployment.job(job)["active_placement_id"] == old["id"], "no move on old prices"
    ok, error = deployment.polls("aws")[-1]
    assert (ok, error != "") == (False, True)
    deployment.interrupt(job, notice_s=120)
    deployment.wait_for("it trains elsewhere", lambda: deployment.placements(job)[-1]["resumed_step"])
    first, second = deployment.placements(job)
    assert (first["lost"], second["purpose"]) == (True, "recover")
    decision = next(
        d
        for d in deployment.get(f"/jobs/{job}/decisions", limit=100)["items"]
        if d["id"] == second["decision_id"]
    )
    assert decision["degraded_quotes"]
    assert "on a price that is not fresh" in decision["summary"]
    lines = {reason["line"]: reason for reason in decision["reasons"]}
    assert lines["recovery on a price that is not fresh"]["holds"]
