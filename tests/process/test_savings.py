"""What an observing policy would have saved, asked beside a daemon that runs."""

import json
from collections.abc import Iterator

import pytest

from tests.process.conftest import GCP
from tests.process.deployment import Deployment

pytestmark = [pytest.mark.process, pytest.mark.timeout(240), pytest.mark.xdist_group("deployment")]


@pytest.fixture
def observed(deployment: Deployment) -> Iterator[Deployment]:
    """With a policy that never moves a job, and one beside it that would."""
    text = (deployment.policies / "default.yaml").read_text()
    stays = text.replace("policy: default", "policy: stays\nmatch: {labels: {watched: really}}")
    eager = text.replace("policy: default", "policy: eager\nmatch: {labels: {watched: really}}")
    files = {
        deployment.policies / "stays.yaml": "\n".join(
            "migrate: never" if line.startswith("migrate:") else line for line in stays.splitlines()
        ),
        deployment.policies / "eager.yaml": eager.replace("mode: act", "mode: observe"),
    }
    for file, content in files.items():
        file.write_text(content)
    assert len(deployment.call("POST", "/policies/reload")["policies"]) == 3
    yield deployment
    for file in files:
        file.unlink()
    deployment.call("POST", "/policies/reload")


def test_a_move_that_was_only_wished_for_is_accounted_while_everything_runs(observed: Deployment) -> None:
    deployment = observed
    job = deployment.submit(
        "watched",
        labels={"watched": "really"},
        run="python3 count.py --steps 100000 --pace 0.05 --save-every 20",
    )
    deployment.wait_for_commit(job)
    (before,) = deployment.placements(job)
    first = before["key"]
    deployment.lab.price(first, factor=1.9)
    deployment.lab.price(GCP, usd="1.50")

    def wished() -> bool:
        answers = deployment.get(f"/jobs/{job}/decisions", limit=100, kind="move")["items"]
        return any(answer["policy"] == "eager" and not answer["acted"] for answer in answers)

    deployment.wait_for("the observing policy would move it", wished)
    asked = ("savings", "--config", str(deployment.config), "--since", "2020-01-01T00:00:00Z")

    def moved() -> dict | None:
        told = deployment.broker(*asked, "--json", person="alan")
        assert told.code == 0, told.err
        (item,) = json.loads(told.out)["items"]
        return item if item["paper"]["moves"] else None

    item = deployment.wait_for("the job on paper has moved", moved)
    assert [p["key"] for p in deployment.placements(job)] == [first], "the real one has not"
    assert (item["job_id"], item["policy"], item["wish"]["target_key"]) == (job, "eager", GCP)
    assert (item["real"]["at"], item["paper"]["at"]) == (first, GCP)
    assert item["real"]["moves"] == 0
    assert item["real"]["paid_micro_usd"] > 0
    seen = deployment.broker(*asked, person="alan")
    assert seen.out.split("\t")[:3] == [job, "watched", "eager"]
    assert "assumed: a landing takes" in seen.err
