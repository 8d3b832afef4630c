"""One deployment for all tests that leave it as they found it; the others start their own."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.seaweed import SeaweedFS
from tests.process.deployment import Deployment
from tests.process.lab_and_daemon import WITHOUT_TORCH

FIRST = "aws/use1-az6/p5.4xlarge/spot"
SECOND = "aws/use1-az2/p5.4xlarge/spot"
GCP = "gcp/us-central1-a/a3-highgpu-1g/spot"

# Where the probe hangs or finds wrong arithmetic, and where it has torch at all.
SCENARIO = {
    "prices": {
        FIRST: "3.00",
        SECOND: "3.20",
        "aws/use1-az1/p5.4xlarge/spot": "3.40",
        "gcp/*/a3-highgpu-1g/spot": "3.60",
        "aws/*/p5.48xlarge/on_demand": "30.00",
    },
    "images": {
        "*": WITHOUT_TORCH,
        "aws/*/p4d.24xlarge/*": {},
        "aws/*/p5.48xlarge/on_demand": {"env": {"BROKER_PROBE_WRONG_IN": "exact"}},
        "gcp/us-central1-a/g2-standard-4/*": {"env": {"BROKER_PROBE_WRONG_IN": "exact"}},
        "gcp/us-central1-a/a2-highgpu-1g/*": {"env": {"BROKER_PROBE_HANG_IN": "exact"}},
    },
}


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, seaweed: SeaweedFS) -> Iterator[Deployment]:
    """A lab and a daemon that run for the whole session."""
    deployment = Deployment(tmp_path_factory.mktemp("shared") / "deployment", seaweed, scenario=SCENARIO)
    try:
        deployment.start_lab()
        deployment.start_daemon()
        deployment.login("ada", "engineer")
        deployment.login("alan", "operator")
        yield deployment
    finally:
        deployment.close()


@pytest.fixture
def deployment(shared: Deployment) -> Iterator[Deployment]:
    """The same, calm before and after."""
    yield shared
    shared.calm()


@pytest.fixture
def fresh(tmp_path: Path, seaweed: SeaweedFS) -> Iterator[Deployment]:
    """A deployment of one's own, nothing started yet."""
    deployment = Deployment(tmp_path / "deployment", seaweed, scenario=SCENARIO)
    try:
        yield deployment
    finally:
        deployment.close()


@pytest.fixture
def go_ahead() -> Iterator[Path]:
    """A file that nodes can see (`count.py --hurry-when`): once it is there, a job need not take its time any more."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "go-ahead"
