"""A lab over HTTPS and a daemon beside it, as real processes; and the configuration of both."""

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from broker.core.time import to_iso
from lab.control import LabClient
from lab.demo.stage import die_with_parent
from lab.seaweed import SeaweedFS

ROOT = Path(__file__).resolve().parents[2]
BROKER = (str(Path(sys.executable).parent / "broker"),)
# Machines whose image has no torch are probed in a moment, with the verdict that any machine without a GPU gets.
WITHOUT_TORCH = {"python": os.path.realpath(getattr(sys, "_base_executable", sys.executable))}
RATE = 60
# Real seconds that anything may take: many times what it does take where nothing else runs.
LIMIT_S = 90.0

_POLICY = """\
policy: default
mode: act
objective: cheapest
candidates: {max_quote_age: 10m}
place: {order: [spot, on_demand]}
migrate: {min_saving: 20%, min_saving_usd: 0, max_payback: 10h, hold: 20s, cooldown: 1m}
verify: {profile: quick, on_inconclusive: accept}
limits: {migrations_per_job_per_day: 100, concurrent_migrations: 100, max_usd_per_hour: 10000}
"""
# Minutes here are seconds there, and a busy machine needs many: no deadline strikes unless a test wants one to.
_TIMING = {
    "beat": "12s",
    "reconcile_interval": "12s",
    "unreachable_after": "3m",
    "empty_pool_for": "1h",
    "run_lease": "2h",
    "request_deadline": "30m",
    "boot_deadline": "30m",
    "probe_deadline": "30m",
    "drain_deadline": "30m",
    "collect_interval": "5m",
    "collect_grace": "5m",
    "boot_estimate": "60s",
    "probe_estimate": "80s",
    "restore_estimate": "40s",
}


class LabAndDaemon:
    """One folder, one lab, one daemon.

    Args:
        folder: Everything is written below it.
        scenario: Of the lab; machines have no torch unless it gives them an image.
        timing: More or other keys of ``[timing]``.
        regions: By cloud.
        state: The daemon's state folder; one below `folder` when not given.

    Attributes:
        lab_module: What `python -m` runs as the lab.
    """

    lab_module = "lab"

    def __init__(
        self,
        folder: Path,
        store: SeaweedFS,
        *,
        scenario: Mapping[str, Any] | None = None,
        timing: Mapping[str, str] | None = None,
        regions: Mapping[str, Sequence[str]] | None = None,
        rate: int = RATE,
        state: Path | None = None,
    ) -> None:
        self.folder = folder
        self.state = state or folder / "state"
        self.rate = rate
        self._store = store
        self._anchor = to_iso(int(time.time()) * 1000)
        self._scenario = {
            "boot_s": {"aws": 20, "gcp": 20},
            "images": {"*": WITHOUT_TORCH},
            **(scenario or {}),
        }
        self._timing = {**_TIMING, **(timing or {})}
        self._regions = dict(regions or {"aws": ["us-east-1"], "gcp": ["us-central1"]})
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self.config = folder / "broker.toml"
        self.policies = folder / "policies"

    # -- processes --------------------------------------------------------------------------------------------------

    def start_lab(self) -> None:
        """The clouds."""
        self.policies.mkdir(parents=True)
        (self.policies / "default.yaml").write_text(_POLICY)
        scenario = self.folder / "scenario.json"
        scenario.write_text(json.dumps(self._scenario))
        where = self.folder / "lab"
        command = [sys.executable, "-m", self.lab_module, "--dir", str(where), "--rate", str(self.rate)]
        command += ["--anchor", self._anchor, "--scenario", str(scenario), "--no-s3", "--die-with-parent"]
        self._spawn("lab", command, dict(os.environ))
        self.wait_for("the lab is up", (where / "lab.json").exists)
        self.lab = LabClient.open(where)
        self._pools = dict(self.lab.state()["pools"])
        self.config.write_text(self._toml())

    def start_daemon(
        self, command: Sequence[str] = BROKER, without: Sequence[str] = (), **more: str
    ) -> subprocess.Popen[bytes]:
        """`broker serve` against the lab; returns when it does its work.

        Args:
            without: Variables of the lab that it shall not have.
            more: Variables that it shall have as well.
        """
        child = self.spawn_daemon(command, without, **more)
        self.wait_for("the daemon is up", self.ready)
        return child

    def spawn_daemon(
        self, command: Sequence[str] = BROKER, without: Sequence[str] = (), **more: str
    ) -> subprocess.Popen[bytes]:
        """The same without waiting."""
        env = {name: value for name, value in self.daemon_env().items() if name not in without} | more
        return self._spawn("broker", [*command, "serve", "--config", str(self.config)], env)

    def daemon_env(self) -> dict[str, str]:
        """The daemon's environment: credentials for the lab's clouds and the object store."""
        own = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "GOOGLE_", "BROKER_"))
        }
        keys = {"STORE_KEY": self._store.access_key, "STORE_SECRET": self._store.secret_key}
        return {**own, **self.lab.info["env"], **keys, "HOME": str(self.folder)}

    def kill_daemon(self) -> None:
        """SIGKILL: it gets no chance to write a word."""
        self._children["broker"].kill()
        self._children.pop("broker").wait(10)

    def stop_daemon(self) -> int:
        """SIGTERM; its exit code."""
        child = self._children.pop("broker")
        child.terminate()
        return child.wait(20)

    def close(self) -> None:
        """End everything, the daemon first."""
        for name in ("broker", "lab"):
            child = self._children.pop(name, None)
            if child is None:
                continue
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(5)

    def child(self, name: str) -> subprocess.Popen[bytes]:
        """``broker`` or ``lab``, while we run it."""
        return self._children[name]

    def ready(self) -> bool:
        """The daemon answers, and has the prices of some cloud."""
        try:
            where = json.loads((self.state / "daemon.json").read_text())
            token = (self.state / "operator.token").read_text().strip()
            self.api = httpx.Client(
                base_url=f"{where['url']}/api/v1",
                headers={"Authorization": f"Bearer {token}"},
                verify=ssl.create_default_context(cafile=where["ca"]),
                timeout=20,
                trust_env=False,
            )
            up = self.api.get(f"{where['url']}/readyz").status_code == 200
            return up and len(self.get("/prices")["items"]) > 3
        except (OSError, ValueError, httpx.HTTPError):
            return False

    def _spawn(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(env),
                cwd=ROOT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self._children[name] = child
        return child

    # -- what it says -----------------------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """One call of the API, as the operator."""
        answer = self.api.request(method, path, json=body, params=query)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def get(self, path: str, **query: Any) -> Any:
        """One read of the API."""
        return self.call("GET", path, **query)

    # -- waiting ----------------------------------------------------------------------------------------------------

    def wait_for(self, what: str, holds: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
        """Wait until something is true; returns what made it so.

        Raises:
            AssertionError: not in time, or a process has ended; the text says how things stand.
        """
        deadline = time.monotonic() + limit_s
        while True:
            if found := holds():
                return found
            for name, child in self._children.items():
                if child.poll() is not None:
                    raise AssertionError(
                        f"{name} ended with {child.returncode} before {what}\n{self.report()}"
                    )
            if time.monotonic() > deadline:
                raise AssertionError(f"not true after {limit_s:.0f} s: {what}\n{self.report()}")
            time.sleep(0.05)

    def report(self) -> str:
        """How things stand, for whoever reads a failure."""
        return "\n".join(f"-- {name}\n{self.tail(name)}" for name in ("broker", "lab"))

    def tail(self, name: str, lines: int = 25) -> str:
        """The last lines of a process's output."""
        file = self.folder / f"{name}.log"
        return "\n".join(file.read_text(errors="replace").splitlines()[-lines:]) if file.exists() else ""

    # -- configuration ----------------------------------------------------------------------------------------------

    @property
    def _prefix(self) -> str:
        """Deployments share one object store, each under a prefix of its own."""
        return re.sub(r"[^a-z0-9]+", "-", str(self.folder).lower()).strip("-")

    def _toml(self) -> str:
        info = self.lab.info
        ends = info["endpoints"]
        timing = "\n".join(f'{key} = "{value}"' for key, value in self._timing.items())
        return f"""\
[server]
listen = "127.0.0.1:{free_port()}"

[state]
dir = "{self.state}"

[clock]
rate = {self.rate}
anchor = "{self._anchor}"

[store]
kind = "s3"
endpoint = "{self._store.endpoint}"
bucket = "{self._store.bucket}"
prefix = "{self._prefix}"
access_key_env = "STORE_KEY"
secret_key_env = "STORE_SECRET"

[clouds.aws]
regions = {json.dumps(self._regions["aws"])}
endpoint_ec2 = "{ends["aws_ec2"]}"
endpoint_pricing = "{ends["aws_pricing"]}"
endpoint_sts = "{ends["aws_sts"]}"
image_id = "ami-0123456789abcdef0"
poll_interval = "2m"

[clouds.gcp]
project = "{info["gcp"]["project"]}"
regions = {json.dumps(self._regions["gcp"])}
image = "projects/ml-images/global/images/family/common-gpu"
endpoint_compute = "{ends["gcp_compute"]}"
endpoint_billing = "{ends["gcp_billing"]}"
poll_interval = "2m"

[policies]
dir = "{self.policies}"

[limits]
max_usd_per_hour = 1000
recoveries_per_hour = 1000

[timing]
{timing}
"""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end(child: subprocess.Popen[Any], within_s: float = 20.0) -> int:
    """SIGTERM, then its exit code; killed with its session when it does not listen."""
    child.terminate()
    try:
        return child.wait(within_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        return child.wait(5)
