"""A whole deployment for a test: a lab, a daemon, people with their own logins and jobs. Real processes throughout."""

import contextlib
import hashlib
import json
import os
import sqlite3
import subprocess
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.wire.commit import restore
from broker.wire.messages import StoreAccess
from broker.wire.store_client import ObjectStore, open_store
from tests.process.lab_and_daemon import BROKER, LIMIT_S, LabAndDaemon

JOBS = Path(__file__).parent / "jobs"
FINAL = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str


class Deployment(LabAndDaemon):
    """What people do with a lab and a daemon, and what is true of it."""

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
        return "\n".join([*lines, super().report()])


def key_of(offer: Mapping[str, Any]) -> str:
    """The key of an offer document."""
    return f"{offer['cloud']}/{offer['zone']}/{offer['instance_type']}/{offer['market']}"


def count_to(steps: int) -> dict[str, Any]:
    """What `count.py` leaves behind when nothing has ever come between."""
    chain = ""
    for step in range(1, steps + 1):
        chain = hashlib.sha256(f"{chain}{step}".encode()).hexdigest()
    return {"step": steps, "chain": chain}
