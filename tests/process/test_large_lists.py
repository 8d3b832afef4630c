"""One daemon over five clouds with price lists as long as real ones, all read at once."""

import re
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.broker_config import cloud_sections
from lab.seaweed import SeaweedFS
from providers.lambda_cloud.regions import REGIONS
from tests.contract.aws.many_series import prices_micro_usd_h
from tests.process.deployment import Deployment
from tests.process.large_lab import CALLS, FILLER

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]

CLOUDS = ("aws", "gcp", "azure", "lambda", "coreweave")
# Half of a machine with 1 GiB, the smallest that one would put a daemon on. Four vendors' SDKs are most of it; a list that
# is held whole, or a past that is not read piece by piece, is what would break it.
MEMORY_MIB = 512
# What the command line waits for an answer: a later one is none.
ANSWER_S = 30.0


@dataclass(frozen=True)
class Limit:
    """A bucket that a call takes from: so many at once, and so many a second come back."""

    burst: float
    per_s: float


# As published: EC2's and the price list's API request throttling, Cloud Billing's quota, Resource Manager's and
# Resource Graph's throttling, Lambda's API document. Azure's retail prices and a CKS cluster publish none.
LIMITS = {
    ("aws", "DescribeSpotPriceHistory"): Limit(100, 20),
    ("aws", "DescribeInstanceTypes"): Limit(100, 20),
    ("aws", "DescribeInstanceTypeOfferings"): Limit(100, 20),
    ("aws", "GetProducts"): Limit(10, 5),
    ("gcp", "skus"): Limit(300, 5),
    ("azure", "skus"): Limit(250, 25),
    ("azure", "resources"): Limit(15, 3),
    ("lambda", "instance-types"): Limit(1, 1),
}


class LargeDeployment(Deployment):
    """With a lab that keeps a list of its calls."""

    lab_module = "tests.process.large_lab"

    def calls(self) -> list[tuple[float, str, str, int]]:
        """Second, cloud, call, status; in the order in which they came."""
        lines = (self.folder / "lab" / CALLS).read_text().splitlines()
        rows = (line.split() for line in lines)
        return sorted((float(at_s), cloud, call, int(status)) for at_s, cloud, call, status in rows)


@pytest.fixture
def large(tmp_path: Path, seaweed: SeaweedFS) -> Iterator[LargeDeployment]:
    deployment = LargeDeployment(tmp_path / "deployment", seaweed, rate=1, scenario={"filler": FILLER})
    try:
        yield deployment
    finally:
        deployment.close()


def test_all_clouds_at_once_arrive_whole_within_their_limits_and_in_bounded_memory(
    large: LargeDeployment,
) -> None:
    large.start_lab()
    text = large.config.read_text()
    sections = re.sub(r'poll_interval = "\w+"', 'poll_interval = "90s"', cloud_sections(large.lab.info))
    large.config.write_text(re.sub(r"\[clouds\.aws\].*(?=\[policies\])", sections + "\n", text, flags=re.S))
    child = large.start_daemon()

    slowest_s, answers = 0.0, 0
    while not twice(large):
        began_s = time.monotonic()
        for path in ("/jobs", "/prices"):
            large.get(path, limit=100)
        slowest_s, answers = max(slowest_s, time.monotonic() - began_s), answers + 1
        large.wait_for("it runs", lambda: child.poll() is None)
        time.sleep(0.2)
    assert answers > 50
    assert slowest_s < ANSWER_S

    assert polls(large, ok=False) == []
    for cloud in CLOUDS:
        assert shown(large, cloud) == expected(large, cloud), cloud

    assert exceeded(large.calls()) == []
    assert {status for _, cloud, _, status in large.calls() if cloud == "lambda"} == {200}

    peak_mib = int(re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{child.pid}/status").read_text())[0]) / 1024
    assert peak_mib < MEMORY_MIB


def polls(deployment: Deployment, ok: bool) -> list[tuple[str, str, str]]:
    """Cloud, kind and error of the polls that went well, or did not."""
    try:
        rows = deployment.history()
        return list(rows.execute("SELECT cloud, kind, coalesce(error, '') FROM poll WHERE ok = ?", (ok,)))
    except sqlite3.OperationalError:  # the database is still being made
        return []


def twice(deployment: Deployment) -> bool:
    """Whether every cloud's prices were read twice, and its hints and its past beside them; or something has failed."""
    read = [(cloud, kind) for cloud, kind, _ in polls(deployment, ok=True)]
    whole = all(
        read.count((cloud, "prices")) > 1 and {(cloud, "availability"), (cloud, "history")} <= set(read)
        for cloud in CLOUDS
    )
    return whole or bool(polls(deployment, ok=False))


def shown(deployment: Deployment, cloud: str) -> dict[str, int]:
    items = deployment.get("/prices", cloud=cloud, limit=10_000)["items"]
    return {item["key"]: item["price_micro_usd_h"] for item in items}


def expected(deployment: Deployment, cloud: str) -> dict[str, int]:
    """What the lab charges, by offer, where the daemon looks."""
    pools = deployment.lab.state()["pools"]
    truth = {key: pool["price_micro_usd_h"] for key, pool in pools.items() if key.startswith(f"{cloud}/")}
    if cloud == "aws":
        here = {
            key: price for key, price in truth.items() if key.startswith("aws/use1-") and "spot" not in key
        }
        return here | prices_micro_usd_h()
    if cloud == "gcp":
        return {
            key: price
            for key, price in truth.items()
            if "/us-central1-" in key and not key.endswith("/a3-highgpu-1g/on_demand")
        }
    if cloud == "lambda":
        by_type = {key.split("/", 2)[2]: price for key, price in truth.items()}
        return {f"lambda/{region}/{what}": price for region in REGIONS for what, price in by_type.items()}
    return truth


def exceeded(calls: list[tuple[float, str, str, int]]) -> list[str]:
    """Calls for which a bucket was empty."""
    found: list[str] = []
    left: dict[tuple[str, str], tuple[float, float]] = {}
    for at_s, cloud, call, _ in calls:
        limit = LIMITS.get((cloud, call))
        if limit is None:
            continue
        before_s, tokens = left.get((cloud, call), (at_s, limit.burst))
        tokens = min(limit.burst, tokens + (at_s - before_s) * limit.per_s) - 1
        # A thousandth: two clocks a second apart are read with a jitter.
        if tokens < -0.001:
            found.append(f"{cloud} {call} at {at_s:.3f} s")
            tokens = 0
        left[cloud, call] = (at_s, tokens)
    return found


def test_a_call_too_many_is_found() -> None:
    second = [(100.0 + at_s, "lambda", "instance-types", 200) for at_s in (0, 1.0, 1.9, 3.0)]
    assert exceeded(second) == ["lambda instance-types at 101.900 s"]
    burst = [(100.0, "aws", "GetProducts", 200)] * 11
    assert exceeded(burst[1:]) == []
    assert exceeded(burst) == ["aws GetProducts at 100.000 s"]
