"""A whole deployment for a test: a lab over HTTPS, a daemon, people with their own logins. Real processes throughout."""

import contextlib
import hashlib
import json
import os
import re
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from broker.core.time import to_iso
from broker.wire.commit import restore
from broker.wire.messages import StoreAccess
from broker.wire.store_client import ObjectStore, open_store
from lab.control import LabClient
from lab.demo.stage import die_with_parent
from lab.seaweed import SeaweedFS

ROOT = Path(__file__).resolve().parents[2]
JOBS = Path(__file__).parent / "jobs"
BROKER = (str(Path(sys.executable).parent / "broker"),)
# Machines whose image has no torch are probed in a moment, with the verdict that any machine without a GPU gets.
WITHOUT_TORCH = {"python": os.path.realpath(getattr(sys, "_base_executable", sys.executable))}
RATE = 60
# Real seconds that anything may take: many times what it does take where nothing else runs.
LIMIT_S = 90.0
FINAL = ("succeeded", "failed", "cancelled")

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


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str


class Deployment:
    """One folder, one lab, one daemon.

    Args:
        folder: Everything is written below it.
        scenario: Of the lab; machines have no torch unless it gives them an image.
        timing: More or other keys of ``[timing]``.
        regions: By cloud.
        state: The daemon's state folder; one below `folder` when not given.
    """

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
        command = [sys.executable, "-m", "lab", "--dir", str(where), "--rate", str(self.rate)]
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

    # -- what people do ---------------------------------------------------------------------------------------------

    def broker(self, *words: str, person: str = "ada", cwd: Path | None = None) -> Answer:
        """A command, typed by a person who has a login of their own."""
        home = self.folder / "people" / person
        env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("BROKER_")},
            "XDG_CONFIG_HOME": str(home),
            "NO_COLOR": "1",
            "COLUMNS": "160",
        }
        done = subprocess.run(
            [*BROKER, *words],
            env=env,
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def login(self, person: str, role: str) -> None:
        """Give a person a token of that role."""
        made = self.call("POST", "/tokens", {"role": role, "name": person})
        done = self.broker("login", "--config", str(self.config), "--token", made["token"], person=person)
        assert done.code == 0, done.err

    def job_file(
        self, name: str, text: str = "", *, run: str = "", gpus: str = "H100:1", **more: Any
    ) -> Path:
        """A job file in a folder of its own, with the scripts of `jobs` beside it.

        Args:
            text: The whole file; empty for one that counts.
            run: Command line; `count.py` with its own defaults when empty.
            more: Further keys of the file, as JSON is YAML; `allow` and `market` go into `resources`.
        """
        folder = self.folder / "jobs" / name
        folder.mkdir(parents=True, exist_ok=True)
        for script in JOBS.glob("*.py"):
            (folder / script.name).write_text(script.read_text())
        within = {key: more.pop(key) for key in ("allow", "market", "nodes") if key in more}
        document = {
            "name": name,
            "resources": {"gpus": gpus, "market": ["spot", "on_demand"]} | within,
            "source": ".",
            "run": run or "python3 count.py",
            "checkpoint": {"dir": "checkpoints", "every": "1m"},
        } | more
        file = folder / "job.yaml"
        file.write_text(text or json.dumps(document))
        return file

    def submit(self, name: str, **job: Any) -> str:
        """Submit a job of `job_file` as a person would; its id."""
        done = self.broker("submit", str(self.job_file(name, **job)))
        assert done.code == 0, done.err
        return done.out.strip()

    def interrupt(self, job_id: str, notice_s: int | None = None) -> str:
        """The cloud takes back the machine that a job runs on; returns its id. At 0 seconds nothing can be saved."""
        (machine,) = [m for m in self.machines(job_id) if m["state"] == "running"]
        self.lab.interrupt(machine["id"], notice_s)
        return str(machine["id"])

    def calm(self) -> None:
        """As it was at the start: no faults, no switches, no open jobs, no machines, the first prices and stock."""
        self.lab.clear()
        self.call("POST", "/resume")
        for job in self.get("/jobs")["items"]:
            if job["state"] != "cancelling":
                self.call("POST", f"/jobs/{job['id']}/cancel")
        for key, pool in self.lab.state()["pools"].items():
            if pool["price_micro_usd_h"] != self._pools[key]["price_micro_usd_h"]:
                self.lab.price(key, usd=f"{self._pools[key]['price_micro_usd_h'] / 1e6:.6f}")
            if pool["stock"] != self._pools[key]["stock"]:
                self.lab.stock(key, self._pools[key]["stock"])
        self.wait_for("every job is over", lambda: not self.get("/jobs")["items"])
        self.wait_for("no machine is left", lambda: not self.living())

    # -- what is true -----------------------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """One call of the API, as the operator."""
        answer = self.api.request(method, path, json=body, params=query)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def get(self, path: str, **query: Any) -> Any:
        """One read of the API."""
        return self.call("GET", path, **query)

    def job(self, job_id: str) -> dict[str, Any]:
        """The job's row."""
        return dict(self.get(f"/jobs/{job_id}")["job"])

    def placements(self, job_id: str) -> list[dict[str, Any]]:
        """Of a job, oldest first, each with its offer's `key`."""
        return [p | {"key": key_of(p["offer"])} for p in self.get(f"/jobs/{job_id}")["placements"]]

    def events(self, job_id: str, kind: str = "") -> list[dict[str, Any]]:
        """Of a job, of one kind or of all."""
        items = self.get(f"/jobs/{job_id}/events", limit=10_000)["items"]
        return [event for event in items if kind in ("", event["kind"])]

    def log(self, job_id: str) -> str:
        """What the job has printed, over all its placements."""
        return self.api.get(f"/jobs/{job_id}/logs").text

    def step(self, job_id: str) -> int:
        """Last step that the job has reported."""
        return int((self.job(job_id)["progress"] or {}).get("step") or 0)

    def machines(self, job_id: str | None = None) -> list[dict[str, Any]]:
        """All machines ever, as the lab knows them; or those that carry a job's label."""
        found = list(self.lab.state()["machines"])
        return [m for m in found if job_id is None or job_id in m["labels"].values()]

    def living(self) -> list[dict[str, Any]]:
        """Machines that are billed, or not yet gone."""
        return [m for m in self.machines() if m["state"] != "terminated"]

    def refusals(self, offer_key: str) -> int:
        """How often the lab has refused to make a machine of that pool."""
        return sum(
            entry["what"] == "create.refused" and entry["data"]["offer_key"] == offer_key
            for entry in self.lab.truth()["log"]
        )

    def polls(self, cloud: str) -> list[tuple[bool, str]]:
        """The poll rows of a cloud, oldest first: whether it went well, and the error."""
        with contextlib.closing(self.history()) as rows:
            found = rows.execute(
                "SELECT ok, error FROM poll WHERE cloud = ? AND kind = 'prices' ORDER BY started_at_ms",
                (cloud,),
            )
            return [(bool(ok), error or "") for ok, error in found]

    def history(self) -> sqlite3.Connection:
        """The daemon's price history, read beside it."""
        return sqlite3.connect(f"file:{self.state}/history.db?mode=ro", uri=True)

    # -- checkpoints ------------------------------------------------------------------------------------------------

    def store(self, job_id: str) -> tuple[ObjectStore, str]:
        """The object store, and the job's prefix in it."""
        access = StoreAccess(
            kind="s3",
            prefix=f"{self._prefix}/jobs/{job_id}",
            endpoint=self._store.endpoint,
            bucket=self._store.bucket,
            access_key=self._store.access_key,
            secret_key=self._store.secret_key,
        )
        return open_store(access), access.prefix

    def restored(self, job_id: str) -> Path:
        """The newest checkpoint file that HEAD names, read back from the store."""
        folder = self.folder / "restored" / job_id
        restore(*self.store(job_id), folder)
        return max(folder.rglob("step-*.pt"))

    def counted(self, job_id: str) -> dict[str, Any]:
        """The state inside the last checkpoint of a job that counts."""
        with zipfile.ZipFile(self.restored(job_id)) as archive:
            return dict(json.loads(archive.read("state.json")))

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

    def wait_for_job(self, job_id: str, *states: str, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """Wait for a state of a job. One that has ended otherwise ends the wait."""

        def there() -> dict[str, Any] | None:
            job = self.job(job_id)
            over = job["state"] in FINAL and job["state"] not in states
            assert not over, f"{job_id} is {job['state']}: {job['reason']}\n{self.report()}"
            return job if job["state"] in states else None

        return dict(self.wait_for(f"{job_id} is {' or '.join(states)}", there, limit_s))

    def finish(self, job_id: str, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """Wait until a job has succeeded and its machines are gone."""
        job = self.wait_for_job(job_id, "succeeded", limit_s=limit_s)
        self.wait_for_gone(job_id)
        return job

    def wait_for_gone(self, job_id: str, limit_s: float = LIMIT_S) -> None:
        """Wait until no machine of a job is left, by the daemon's rows and by the lab's truth."""

        def gone() -> bool:
            placed = all(p["state"] == "gone" for p in self.placements(job_id))
            return placed and all(m["state"] == "terminated" for m in self.machines(job_id))

        self.wait_for(f"no machine of {job_id} is left", gone, limit_s)

    def wait_for_step(self, job_id: str, step: int, limit_s: float = LIMIT_S) -> None:
        """Wait until a job has trained that far."""
        self.wait_for(f"{job_id} has reached step {step}", lambda: self.step(job_id) >= step, limit_s)

    def wait_for_commit(self, job_id: str, seq: int = 1, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """Wait for the n-th commit of a job."""

        def committed() -> dict[str, Any] | None:
            commit = self.job(job_id)["commit"]
            return commit if commit and commit["seq"] >= seq else None

        return dict(self.wait_for(f"{job_id} has committed {seq} times", committed, limit_s))

    def report(self) -> str:
        """How things stand, for whoever reads a failure."""
        lines: list[str] = []
        with contextlib.suppress(Exception):
            for job in self.get("/jobs", all=True)["items"]:
                lines.append(f"job {job['id']} {job['state']}: {job['reason']}")
                lines += [
                    f"  {p['id']} {p['purpose']} {p['key']} {p['state']}: {p['reason']}"
                    for p in self.placements(job["id"])
                ]
        with contextlib.suppress(Exception):
            lines += [f"machine {m['id']} {m['offer_key']} {m['state']}" for m in self.machines()]
        lines += [f"-- {name}\n{self.tail(name)}" for name in ("broker", "lab")]
        return "\n".join(lines)

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


def key_of(offer: Mapping[str, Any]) -> str:
    """The key of an offer document."""
    return f"{offer['cloud']}/{offer['zone']}/{offer['instance_type']}/{offer['market']}"


def count_to(steps: int) -> dict[str, Any]:
    """What `count.py` leaves behind when nothing has ever come between."""
    chain = ""
    for step in range(1, steps + 1):
        chain = hashlib.sha256(f"{chain}{step}".encode()).hexdigest()
    return {"step": steps, "chain": chain}


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
