"""Nodes as real processes: private, ended whole, and unable to reach the host."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.clock import SystemClock
from lab import processes, roots
from lab.catalog import Scenario
from lab.machines import CreateRequest, EndedBy, Machine, MachineState
from lab.nodes import NodeRunner
from lab.world import World

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("lab")]

AWS = "aws/use1-az6/g6.xlarge/spot"
GCP = "gcp/us-central1-a/g2-standard-4/spot"


class Lab:
    """A world at rate 20 with nodes; boots take a lab second."""

    def __init__(self, folder: Path, **scenario: object) -> None:
        document = {"boot_s": {"aws": 1, "gcp": 1}, "pending_s": 1, "stop_s": 10} | scenario
        self.world = World(SystemClock(20), Scenario.of(document))
        self.nodes = NodeRunner(self.world, folder)
        self._over = threading.Event()
        self._clock = threading.Thread(target=self._tick, daemon=True)
        self._clock.start()

    def _tick(self) -> None:
        while not self._over.wait(0.02):
            self.world.advance()

    def close(self) -> None:
        self.nodes.close()
        self._over.set()
        self._clock.join()

    def run(self, user_data: str, key: str = AWS) -> str:
        name = "bk-test-0" if key.startswith("gcp") else ""
        return self.world.create(CreateRequest(key, name=name, user_data=user_data)).id

    def until(self, what: Callable[[], object], timeout_s: float = 15.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not what():
            assert time.monotonic() < deadline, "it never happened"
            time.sleep(0.02)

    def until_says(self, machine: str, text: str) -> str:
        self.until(lambda: text in self.nodes.console(machine))
        return self.nodes.console(machine)

    def until_buried(self, machine: str) -> Machine:
        self.until(lambda: self.nodes.root(machine) is None)
        return self.world.machine(machine)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.close()
    assert not lab.nodes.parent.exists()


def test_a_node_lives_in_its_own_root_with_a_bare_environment(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_TEST_SECRET", "x")
    machine = lab.run(
        "env; pwd; id -u; ls -A ..; ls ../.. ; python3 -c 'import sys; print(sys.prefix)'; echo done\n"
    )
    said = lab.until_says(machine, "done")
    root = str(lab.nodes.root(machine))
    assert f"HOME={root}/home" in said
    assert f"BROKER_NODE_HOME={root}/broker" in said
    assert "AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:" in said
    assert "LAB_TEST_SECRET" not in said
    assert sys.prefix in said
    assert "Permission denied" in said or (os.geteuid() == 0 and lab.nodes.isolation == "private-root")
    if lab.nodes.isolation == "uid":
        assert "\n0\n" not in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give nodes their own uid")
def test_a_node_cannot_read_another(lab: Lab) -> None:
    if lab.nodes.isolation != "uid":
        pytest.skip("this interpreter cannot be run by another uid")
    first = lab.run("echo secret > kept; echo wrote")
    lab.until_says(first, "wrote")
    root = lab.nodes.root(first)
    second = lab.run(f"cat {root}/home/kept; ls {root}; ls {root.parent if root else ''}; echo tried")
    said = lab.until_says(second, "tried")
    assert "secret" not in said
    assert said.count("Permission denied") == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs the shield")
def test_a_node_that_must_run_as_root_has_no_host_to_shut_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roots, "_usable", lambda uid, parent: False)
    lab = Lab(tmp_path)
    if lab.nodes.isolation != "shielded-root":
        lab.close()
        pytest.skip("no mount namespaces here")
    machine = lab.run("echo services: $(ls /run | wc -l); grep CapBnd /proc/self/status; echo up; sleep 1000")
    said = lab.until_says(machine, "up")
    capabilities = int(said.split("CapBnd:")[1].split()[0], 16)
    assert "services: 0" in said
    assert not capabilities & 1 << 22  # CAP_SYS_BOOT
    lab.close()
    assert processes.marked(lab.nodes.mark(machine)) == []


def test_shutdown_in_user_data_ends_the_node_and_only_the_node(lab: Lab) -> None:
    neighbour = lab.run("echo up; sleep 1000")
    lab.until_says(neighbour, "up")
    machine = lab.run("shutdown -c; systemctl restart thing || echo no services; shutdown -h now; sleep 1000")
    lab.until(lambda: lab.world.machine(machine).state is MachineState.TERMINATED)
    assert lab.world.machine(machine).ended_by is EndedBy.NODE
    assert "no services" in lab.nodes.console(machine)
    assert lab.world.machine(neighbour).state is MachineState.RUNNING


def test_the_end_takes_every_process_and_the_root(lab: Lab) -> None:
    script = """
    setsid sleep 1001 & (setsid sh -c 'trap "" TERM; sleep 1002; sleep 1003' &) ; nohup sleep 1004 &
    mkdir locked; touch locked/file; chmod 0 locked
    echo up; wait
    """
    machine = lab.run(script)
    lab.until_says(machine, "up")
    lab.until(lambda: len(processes.marked(lab.nodes.mark(machine))) >= 4)
    root = lab.nodes.root(machine)
    assert root is not None
    assert root.exists()
    lab.world.terminate(machine)
    lab.until_buried(machine)
    assert processes.marked(lab.nodes.mark(machine)) == []
    assert not root.exists()


def test_labs_of_one_seed_leave_each_others_nodes_alone(lab: Lab, tmp_path: Path) -> None:
    other = Lab(tmp_path / "other")
    machine, twin = (each.run("echo up; sleep 1000") for each in (lab, other))
    assert machine == twin
    for each in (lab, other):
        each.until_says(machine, "up")
    other.close()
    assert processes.marked(other.nodes.mark(twin)) == []
    assert processes.marked(lab.nodes.mark(machine)) != []


def test_a_polite_end_comes_before_the_hard_one(lab: Lab) -> None:
    machine = lab.run("trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    lab.until_says(machine, "up")
    lab.world.terminate(machine)
    lab.until_buried(machine)
    assert "saved" in lab.nodes.console(machine)


def test_a_node_deleted_while_it_boots_never_runs(tmp_path: Path) -> None:
    lab = Lab(tmp_path, boot_s={"aws": 20})
    machine = lab.run("echo up")
    lab.until(lambda: lab.world.machine(machine).state is MachineState.RUNNING)
    lab.world.terminate(machine)
    lab.until(lambda: lab.world.machine(machine).state is MachineState.TERMINATED)
    time.sleep(1.2)  # past the second of real time that the boot would have taken
    assert lab.nodes.console(machine) == ""
    lab.close()


_ASK_AWS = """
url=$AWS_EC2_METADATA_SERVICE_ENDPOINT/latest
python3 - "$url" <<'P'
import json, sys, time, urllib.error, urllib.request
from datetime import datetime, timezone
url = sys.argv[1]
def ask(path, method="GET", **headers):
    return urllib.request.urlopen(urllib.request.Request(url + path, method=method, headers=headers), timeout=5).read().decode()
def code(path, **headers):
    try: ask(path, **headers)
    except urllib.error.HTTPError as error: return error.code
print("without token", code("/meta-data/instance-id"), flush=True)
key = "X-aws-ec2-metadata-token"
token = {key: ask("/api/token", "PUT", **{key + "-ttl-seconds": "60"})}
print("zone", ask("/meta-data/placement/availability-zone-id", **token), flush=True)
print("before", code("/meta-data/spot/instance-action", **token), flush=True)
while code("/meta-data/spot/instance-action", **token): time.sleep(0.05)
notice = json.loads(ask("/meta-data/spot/instance-action", **token))
ends = datetime.fromisoformat(notice["time"].replace("Z", "+00:00"))
print("notice", notice["action"], round((ends - datetime.now(timezone.utc)).total_seconds()), flush=True)
P
"""


def test_ec2_metadata_speaks_real_time(lab: Lab) -> None:
    machine = lab.run(_ASK_AWS)
    lab.until_says(machine, "before")
    lab.world.interrupt(machine, 120)  # six real seconds at rate 20
    said = lab.until_says(machine, "notice")
    assert "without token 401" in said
    assert "zone use1-az6" in said
    assert "before 404" in said
    assert "notice terminate 6" in said or "notice terminate 5" in said


_ASK_GCP = """
python3 - "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/" <<'P'
import sys, time, urllib.error, urllib.request
def ask(path, flavor="Google"):
    headers = {"Metadata-Flavor": flavor} if flavor else {}
    return urllib.request.urlopen(urllib.request.Request(sys.argv[1] + path, headers=headers), timeout=20).read().decode()
try: ask("name", None)
except urllib.error.HTTPError as error: print("without flavor", error.code)
print("name", ask("name"), "preempted", ask("preempted"), flush=True)
print("timed out", ask("preempted?wait_for_change=true&timeout_sec=0.1"), flush=True)
began = time.monotonic()
print("then", ask("preempted?wait_for_change=true"), flush=True)
P
"""


def test_gce_metadata_waits_for_the_preemption(lab: Lab) -> None:
    machine = lab.run(_ASK_GCP, GCP)
    lab.until_says(machine, "timed out FALSE")
    assert "then" not in lab.nodes.console(machine)
    lab.world.interrupt(machine)
    said = lab.until_says(machine, "then TRUE")
    assert "without flavor 403" in said
    assert "name bk-test-0 preempted FALSE" in said
    lab.until_buried(machine)
    assert lab.world.machine(machine).ended_by is EndedBy.CLOUD


def test_a_machine_that_never_boots_is_billed_and_silent(lab: Lab) -> None:
    machine = lab.world.create(CreateRequest(AWS, user_data="echo up", never_boots=True)).id
    time.sleep(0.5)
    assert lab.world.machine(machine).state is MachineState.RUNNING
    assert lab.nodes.console(machine) == ""
    assert lab.world.bill()[0].cost_micro_usd > 0


def test_a_pool_has_the_image_that_its_scenario_gives_it(tmp_path: Path) -> None:
    images = {"aws/*": {"env": {"FROM": "image"}}, AWS: {"python": "/bin/echo", "env": {"FROM": "pool"}}}
    lab = Lab(tmp_path, images=images)
    try:
        assert "started here from pool" in lab.until_says(
            lab.run('python3 "started here" from $FROM\necho done\n'), "done"
        )
        assert "none: done" in lab.until_says(lab.run('echo "none:$FROM done"\n', GCP), "done")
    finally:
        lab.close()
