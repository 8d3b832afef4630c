"""Clients that others wrote, unchanged, against the lab's faces: what they accept is what the vendors' clouds say."""

import json
import os
import subprocess
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.process.deployment import Deployment
from tests.process.lab_and_daemon import ROOT

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(400)]

TOOLS = ROOT / "build" / "outside-clients"


@pytest.fixture(scope="session")
def aws_cli() -> Path:
    """The AWS CLI in a virtual environment of its own, since it pins another botocore."""
    aws = TOOLS / "bin" / "aws"
    if not aws.exists():
        venv.create(TOOLS, with_pip=True, clear=True)
        install = [TOOLS / "bin" / "python", "-m", "pip", "install", "--quiet", "awscli>=1.44,<2"]
        done = subprocess.run(install, capture_output=True, text=True, timeout=300)
        if done.returncode:
            pytest.skip(f"pip cannot install awscli here: {done.stderr.strip().splitlines()[-1]}")
    return aws


def test_the_aws_cli_rents_once_for_a_token(fresh: Deployment, aws_cli: Path) -> None:
    fresh.start_lab()
    info = fresh.lab.info

    def aws(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [aws_cli, "--endpoint-url", info["endpoints"]["aws_ec2"], "--region", "us-east-1"]
        env = {"PATH": os.environ["PATH"], "HOME": str(fresh.folder), **info["env"]}
        return subprocess.run(
            [*command, "--output", "json", "ec2", *words], env=env, capture_output=True, text=True, timeout=60
        )

    def run(instance_type: str) -> "subprocess.CompletedProcess[str]":
        return aws(
            *("run-instances", "--image-id", "ami-0123456789abcdef0", "--count", "1"),
            *("--instance-type", instance_type, "--client-token", "a-token-of-ours"),
            *("--placement", "AvailabilityZone=us-east-1a", "--instance-market-options", "MarketType=spot"),
            *("--tag-specifications", "ResourceType=instance,Tags=[{Key=team,Value=research}]"),
        )

    answers = [run("g6.xlarge"), run("g6.xlarge")]
    for answer in answers:
        assert answer.returncode == 0, answer.stderr
    first, second = (json.loads(answer.stdout)["Instances"][0]["InstanceId"] for answer in answers)
    assert first == second
    other = run("g5.xlarge")
    assert other.returncode != 0
    assert "IdempotentParameterMismatch" in other.stderr
    assert [m["id"] for m in fresh.machines()] == [first]

    listed = aws("describe-instances", "--filters", "Name=tag:team,Values=research")
    (instance,) = json.loads(listed.stdout)["Reservations"][0]["Instances"]
    assert instance["InstanceId"] == first
    assert instance["InstanceLifecycle"] == "spot"
    ended = aws("terminate-instances", "--instance-ids", first)
    assert ended.returncode == 0, ended.stderr
    fresh.wait_for("it is gone", lambda: not fresh.living())


def test_googles_own_client_lists_makes_and_deletes(fresh: Deployment) -> None:
    fresh.start_lab()
    compute = google_compute(fresh)
    where = {"project": fresh.lab.info["gcp"]["project"], "zone": "us-central1-a"}
    kinds = compute.machineTypes().list(**where).execute()["items"]
    assert "a3-highgpu-1g" in {kind["name"] for kind in kinds}
    body = {
        "name": "by-hand",
        "machineType": "zones/us-central1-a/machineTypes/g2-standard-4",
        "scheduling": {
            "provisioningModel": "SPOT",
            "onHostMaintenance": "TERMINATE",
            "instanceTerminationAction": "DELETE",
        },
        "disks": [
            {
                "boot": True,
                "autoDelete": True,
                "initializeParams": {"sourceImage": "projects/ml-images/global/images/family/common-gpu"},
            }
        ],
        "networkInterfaces": [{"network": "global/networks/default"}],
        "labels": {"team": "research"},
    }
    wish = {"body": body, "requestId": "6d0f7c5e-6f0a-4f0e-9a55-0d6f1a2b3c4d", **where}
    begun, again = (compute.instances().insert(**wish).execute() for _ in range(2))
    assert again["targetId"] == begun["targetId"]
    done = until_done(lambda: compute.zoneOperations().get(operation=begun["name"], **where).execute())
    assert "error" not in done
    instance = compute.instances().get(instance="by-hand", **where).execute()
    assert (instance["labels"], instance["scheduling"]["provisioningModel"]) == (
        {"team": "research"},
        "SPOT",
    )
    assert [m["id"] for m in fresh.machines()] == [instance["id"]]
    ending = compute.instances().delete(instance="by-hand", **where).execute()
    until_done(lambda: compute.zoneOperations().get(operation=ending["name"], **where).execute())
    assert compute.instances().list(**where).execute().get("items", []) == []
    fresh.wait_for("it is gone", lambda: not fresh.living())


def google_compute(deployment: Deployment) -> Any:
    """google-api-python-client over its packaged discovery document, signed in as the lab's service account."""
    import google_auth_httplib2
    import httplib2
    from google.oauth2 import service_account
    from googleapiclient.discovery import build

    info = deployment.lab.info
    account = service_account.Credentials.from_service_account_file(
        info["gcp"]["credentials"], scopes=["https://www.googleapis.com/auth/cloud-platform"]
    )
    http = google_auth_httplib2.AuthorizedHttp(
        account, http=httplib2.Http(ca_certs=info["ca_file"], timeout=30)
    )
    return build(
        "compute",
        "v1",
        http=http,
        static_discovery=True,
        client_options={"api_endpoint": f"{info['endpoints']['gcp_compute']}/compute/v1/"},
    )


def until_done(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    deadline = time.monotonic() + 20
    while (operation := ask())["status"] != "DONE":
        assert time.monotonic() < deadline, operation
        time.sleep(0.1)
    return operation
