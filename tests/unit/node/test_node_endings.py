"""How a node comes to its end: notices of real metadata services, the dead-man switch, user-data."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from broker.node.bundle import user_data
from broker.node.lease import boot_s, kill_marked
from tests.unit.node.small import SmallDaemon, SmallNode, eventually
from tests.unit.node.test_node_agent import TRAINER, processes_with

pytestmark = pytest.mark.process


class Metadata:
    """The paths of AWS's and Google's metadata services that matter here, as documented."""

    def __init__(self) -> None:
        self.noticed = threading.Event()
        self.calls: list[tuple[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _reply(self) -> None:
                outer.calls.append((self.command, self.path))
                status, body = outer.answer(self.command, self.path, dict(self.headers))
                self.send_response(status)
                self.send_header("ETag", "changed" if outer.noticed.is_set() else "first")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = _reply

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()

    def answer(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
        given = {name.lower(): value for name, value in headers.items()}
        if path == "/latest/api/token":
            fine = method == "PUT" and "x-aws-ec2-metadata-token-ttl-seconds" in given
            return (200, b"token-1") if fine else (405, b"")
        if path == "/latest/meta-data/spot/instance-action":
            if given.get("x-aws-ec2-metadata-token") != "token-1":
                return 401, b""
            end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 120))
            return (
                (200, json.dumps({"action": "terminate", "time": end}).encode())
                if self.noticed.is_set()
                else (404, b"")
            )
        if path.startswith("/computeMetadata/v1/instance/preempted"):
            if given.get("metadata-flavor") != "Google":
                return 403, b""
            if "wait_for_change=true" in path and "last_etag=first" in path:
                self.noticed.wait(20)
            return 200, b"TRUE" if self.noticed.is_set() else b"FALSE"
        return 404, b""

    def close(self) -> None:
        self.noticed.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    found = Metadata()
    yield found
    found.close()


@pytest.mark.parametrize(
    ("cloud", "variable", "url", "source"),
    [
        ("aws", "AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://{}", "aws:instance-action"),
        ("gcp", "GCE_METADATA_HOST", "{}", "gcp:preempted"),
    ],
)
def test_a_notice_is_told_and_the_job_is_saved(
    daemon: SmallDaemon, node: SmallNode, metadata: Metadata, cloud: str, variable: str, url: str, source: str
) -> None:
    daemon.fence(1)
    node.config(cloud=cloud, notice_s=9.0, notice_poll_s=0.2)
    daemon.directive = daemon.run_order(TRAINER, checkpoint_dir="ckpt")
    node.start(**{variable: url.format(metadata.address)})
    daemon.until(lambda beat: beat["job"]["handles_term"] is True)
    metadata.noticed.set()
    noticed = daemon.until(lambda beat: beat["notice"] is not None, 3.0)
    assert noticed["notice"] == {"source": source, "seconds_left": 9.0, "action": "terminate"}
    stopped = daemon.until_job("stopped", 9.0)
    assert stopped["job"]["saved"]
    eventually(lambda: b"saved" in daemon.log)
    assert stopped["commit"]["step"] == int(daemon.log.decode().rsplit("saved ", 1)[1].split()[0])
    # The order to run, repeated, or given anew by a daemon that has not heard yet, starts nothing here.
    daemon.directive = daemon.run_order(TRAINER, generation=2, checkpoint_dir="ckpt")
    daemon.until(lambda beat: beat["job"]["generation"] == 2 and beat["job"]["state"] == "stopped")


def test_a_job_that_cannot_be_asked_trains_on_until_shortly_before_the_end(
    daemon: SmallDaemon, node: SmallNode, metadata: Metadata
) -> None:
    daemon.fence(1)
    node.config(cloud="aws", notice_s=5.0, notice_poll_s=0.2)
    script = "for i in 1 2 3 4 5 6 7 8 9; do mkdir -p c/step-$i; echo x > c/step-$i/w.bin; sleep 1; done"
    daemon.directive = daemon.run_order(script, checkpoint_dir="c")
    node.start(AWS_EC2_METADATA_SERVICE_ENDPOINT=f"http://{metadata.address}")
    daemon.until(lambda beat: beat["job"]["handles_term"] is False)
    metadata.noticed.set()
    daemon.until(lambda beat: beat["notice"] is not None)
    began = boot_s()
    stopped = daemon.until_job("stopped", 10.0)
    assert 3.0 < boot_s() - began < 7.5
    assert stopped["job"]["exit_code"] == 137


SAVES_AND_SAYS = """
trap 'mkdir -p c/step-7; echo x > c/step-7/w.bin; exit {code}' TERM
mkdir -p c/step-3; echo x > c/step-3/w.bin; touch {up}
while true; do sleep 0.05; done
"""


@pytest.mark.parametrize(
    "script",
    [
        "touch {up}; sleep 60; true",
        SAVES_AND_SAYS.replace("{code}", "143"),
        SAVES_AND_SAYS.replace("{code}", "0"),
        SAVES_AND_SAYS.replace("{code}", "1"),
    ],
    ids=["dies of it", "saves and says 143", "saves and says 0", "saves and says 1"],
)
def test_a_job_that_the_machines_shutdown_ends_before_us_is_stopped_and_not_failed(
    daemon: SmallDaemon, node: SmallNode, tmp_path: Path, script: str
) -> None:
    """Every process is signalled; whose turn comes first is chance. Its exit code is no word about its work."""
    daemon.fence(1)
    node.config(notice_s=9.0)
    up = tmp_path / "up"
    daemon.directive = daemon.run_order(script.replace("{up}", str(up)), checkpoint_dir="c")
    agent = node.start()
    eventually(up.exists)
    daemon.until(lambda beat: beat["job"]["handles_term"] is ("trap" in script), 9.0)
    for pid in job_pids(up):
        os.kill(pid, signal.SIGTERM)
    time.sleep(0.4)
    agent.terminate()
    stopped = daemon.until(lambda beat: beat["job"]["state"] in ("exited", "stopped", "failed"), 9.0)
    assert stopped["job"]["state"] == "stopped"
    assert stopped["notice"]["source"] == "shutdown"


def job_pids(up: Path) -> list[int]:
    """Shells that run the job's command line: it names the file."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if words[0].endswith(b"sh") and any(str(up).encode() in word for word in words):
                    found.append(int(entry.name))
    return found


def test_the_dead_man_switch_ends_a_node_that_nobody_renews(daemon: SmallDaemon, node: SmallNode) -> None:
    daemon.directive.run_lease_s = daemon.directive.dead_man_s = 1.0
    node.config(first_dead_man_s=60.0)
    node.start("deadman")
    node.start()
    daemon.until(lambda beat: True)
    time.sleep(2.5)
    assert not node.down.exists(), "each beat renews it"
    daemon.silent = True
    eventually(node.down.exists, 6.0)
    assert node.down.read_text() == "-P now\n"


def test_the_dead_man_switch_ends_a_node_whose_agent_never_gets_through(node: SmallNode) -> None:
    node.config(first_dead_man_s=1.0)
    node.start("deadman")
    eventually(node.down.exists, 5.0)


def test_a_killed_agent_does_not_leave_its_job_behind(daemon: SmallDaemon, node: SmallNode) -> None:
    daemon.directive = daemon.run_order("setsid sleep 987 & sleep 987")
    node.start("deadman")
    agent = node.start()
    daemon.until_job("running")
    mark = (node.home / "job.run_id").read_text().encode()
    eventually(lambda: processes_with(mark) >= 2)
    agent.kill()
    agent.wait()
    eventually(lambda: processes_with(mark) == 0, 5.0)
    assert not node.down.exists()


def boot(node: SmallNode, daemon: SmallDaemon, **more: Any) -> "subprocess.Popen[bytes]":
    """Run user-data as a machine would."""
    sha256 = hashlib.sha256(daemon.agent).hexdigest()
    arguments = {"agent_sha256": sha256, "cloud": "lambda", "give_up_s": 30.0} | more
    script = user_data(public_url=daemon.url, token="bk-user-data-0", ca_pem=daemon.ca_pem, **arguments)
    mark = {"BROKER_RUN_ID": f"boot-{os.getpid()}"}
    process = subprocess.Popen(["bash", "-c", script], env=node.env | mark, start_new_session=True)
    node.processes.append(process)
    return process


@pytest.fixture
def booted() -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    yield boot
    kill_marked(f"boot-{os.getpid()}")


def test_user_data_boots_an_agent_and_its_switch(
    daemon: SmallDaemon, node: SmallNode, booted: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    assert booted(node, daemon).wait(20) == 0
    daemon.until(lambda beat: True)
    assert daemon.hellos[0]["token"] == "bk-user-data-0"
    assert (node.home / "config.json").stat().st_mode & 0o077 == 0
    mark = f"BROKER_RUN_ID=boot-{os.getpid()}".encode()
    assert processes_with(mark) == 2, "the agent and the dead-man switch"
    assert booted(node, daemon).wait(20) == 0
    time.sleep(0.5)
    assert processes_with(mark) == 2, "a second run of user-data starts no second agent"


def test_user_data_trusts_no_other_agent_and_gives_up(
    daemon: SmallDaemon, node: SmallNode, booted: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    booted(node, daemon, agent_sha256="0" * 64, give_up_s=2.0)
    eventually(node.down.exists, 8.0)
    assert node.down.read_text().startswith("-P now\n")
    assert not (node.home / "agent.pyz").exists()
    assert "agent.pyz has hash" in node.agent_log()
    assert not daemon.hellos


def test_the_agent_is_the_same_to_the_byte_and_runs_from_its_file(
    daemon: SmallDaemon, node: SmallNode
) -> None:
    code = "import hashlib, broker.node.bundle as b; print(hashlib.sha256(b.build_agent()).hexdigest())"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {hashlib.sha256(daemon.agent).hexdigest()}
    usage = subprocess.run(
        [sys.executable, str(node.pyz), "dance"], capture_output=True, text=True, env=node.env, check=False
    )
    assert usage.returncode == 2
    assert "usage" in usage.stderr
