"""``python -m lab`` as a process: ready, used through its files alone, and gone without a trace, however it ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
import pytest

from broker.clock import SystemClock
from broker.core.money import micro_usd
from lab import processes
from lab.control import LabClient
from lab.nodes import MARK
from providers.registry import open_source

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("lab")]

START_S = 60.0  # on a busy machine
START = [sys.executable, "-m", "lab", "--rate", "20", "--no-s3"]


def until(what: Callable[[], object], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    scenario = tmp_path / "scenario.json"
    scenario.write_text('{"boot_s": {"aws": 1}, "prices": {"aws/*/g6.xlarge/spot": "0.36"}}')
    process = subprocess.Popen([*START, "--dir", str(tmp_path), "--scenario", str(scenario)])
    try:
        until((tmp_path / "lab.json").exists, START_S)
        yield process
    finally:
        process.kill()
        process.wait()


def run_node(client: LabClient, script: str) -> str:
    make: Any = boto3.session.Session().client
    ec2 = make(
        "ec2",
        region_name="us-east-1",
        endpoint_url=client.info["endpoints"]["aws_ec2"],
        verify=client.info["ca_file"],
        aws_access_key_id=client.info["aws"]["access_key"],
        aws_secret_access_key=client.info["aws"]["secret_key"],
    )
    answer = ec2.run_instances(
        ImageId="ami-0123456789abcdef0",
        InstanceType="g6.xlarge",
        MinCount=1,
        MaxCount=1,
        UserData=script,
        InstanceMarketOptions={"MarketType": "spot"},
    )
    machine = str(answer["Instances"][0]["InstanceId"])
    until(lambda: "up" in client.console(machine))
    return machine


def roots(tmp_path: Path) -> list[str]:
    """Parents of roots that a lab has logged and that are still there."""
    words = (tmp_path / "lab.log").read_text().split()
    return [word for word in words if "lab-nodes-" in word and Path(word).parent.exists()]


def test_a_lab_is_used_through_its_files_and_leaves_nothing(
    lab: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    client = LabClient.open(tmp_path)
    assert (tmp_path / "lab.json").stat().st_mode & 0o077 == 0
    machine = run_node(client, "#!/bin/bash\necho up\nsleep 1000\n")
    assert client.truth()["lines"][0]["machine"] == machine
    assert roots(tmp_path)
    client.shutdown()
    assert lab.wait(timeout=20) == 0
    assert processes.marked(f"{MARK}={client.info['run']}/{machine}") == []
    assert roots(tmp_path) == []
    assert not (tmp_path / "lab.json").exists()


def test_a_price_of_coreweave_is_in_its_list_when_it_is_set(
    lab: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    client = LabClient.open(tmp_path)
    file = Path(client.info["coreweave"]["price_file"])
    offer = "coreweave/US-EAST-04A/gd-8xh100ib-i128/on_demand"
    assert [price for key, price in listed(file).items() if key == offer] == [49_240_000]
    client.price(offer, usd="39.99")
    pools = client.state()["pools"]
    assert listed(file)[offer] == pools[offer]["price_micro_usd_h"] == 39_990_000
    assert {key: pools[key]["price_micro_usd_h"] for key in listed(file) if key in pools} == {
        key: price for key, price in listed(file).items() if key in pools
    }
    before = file.stat().st_mtime_ns
    client.price("aws/use1-az6/p5.4xlarge/spot", usd="2.50")
    assert file.stat().st_mtime_ns == before, "a list that somebody has edited is left alone"


def listed(file: Path) -> dict[str, int]:
    """Prices as the daemon reads them, by offer."""
    source = open_source("coreweave", {"price_file": str(file)}, SystemClock(), "broker-lab1")
    return {quote.offer.key: micro_usd(quote.price_text) for quote in source.quotes()}


def test_a_killed_lab_is_swept_up_after(lab: "subprocess.Popen[bytes]", tmp_path: Path) -> None:
    client = LabClient.open(tmp_path)
    machine = run_node(client, "#!/bin/bash\nsetsid sleep 1000 & echo up\nsleep 1000\n")
    lab.kill()
    until(lambda: not processes.marked(f"{MARK}={client.info['run']}/{machine}"))
    until(lambda: not roots(tmp_path))


def test_a_lab_dies_with_its_parent(tmp_path: Path) -> None:
    command = [*START, "--die-with-parent", "--dir", str(tmp_path)]
    code = "import subprocess, sys; subprocess.Popen(sys.argv[1:]); sys.stdin.read()"
    parent = subprocess.Popen(
        [sys.executable, "-c", code, *command], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        until((tmp_path / "lab.json").exists, START_S)
        pid = int(LabClient.open(tmp_path).info["pid"])
        parent.kill()
        parent.wait()
        until(lambda: not _runs(pid))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)  # a lab that has outlived its parent is in its group
        parent.wait()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
