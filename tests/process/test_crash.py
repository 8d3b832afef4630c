"""The daemon is killed around every effect of place, move and finish, and started again each time; nothing shows."""

import contextlib
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.seaweed import SeaweedFS
from tests.process.conftest import FIRST, SCENARIO, SECOND
from tests.process.deployment import Deployment, count_to
from tests.process.lab_and_daemon import ROOT

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(420)]

STEPS = 5000
LIMIT_S = 360.0
# A restart takes seconds, which are minutes here; no deadline of the protocol is what this is about.
PATIENT = {
    "request_deadline": "240m",
    "boot_deadline": "240m",
    "probe_deadline": "240m",
    "ready_deadline": "240m",
    "drain_deadline": "240m",
    "run_lease": "240m",
}


class Mortal:
    """A deployment whose daemon dies again and again."""

    def __init__(self, deployment: Deployment, marks: Path) -> None:
        self.deployment = deployment
        self.marks = marks
        self._command = [sys.executable, str(ROOT / "tests" / "process" / "serve_and_die.py"), str(marks)]
        self._deadline = time.monotonic() + LIMIT_S
        self._daemon: subprocess.Popen[bytes] = deployment.start_daemon(self._command)
        self.starts = 1

    def until(self, what: str, holds: Callable[[], Any]) -> Any:
        """Wait, and start the daemon whenever it has killed itself."""
        while True:
            if self._daemon.poll() is not None:
                assert self._daemon.returncode == -signal.SIGKILL, self.deployment.tail("broker", 60)
                self._daemon = self.deployment.spawn_daemon(self._command)
                self.starts += 1
            try:
                if found := holds():
                    return found
            except httpx.HTTPError:
                pass  # it is dead, or not up yet
            assert time.monotonic() < self._deadline, f"{what}: never\n{self.deployment.report()}"
            time.sleep(0.1)

    def deaths(self) -> Counter[str]:
        """How often it died at what: ``CreateNode before``."""
        return Counter(" ".join(mark.name.split()[:2]) for mark in self.marks.iterdir())


@pytest.fixture
def mortal(tmp_path: Path, seaweed: SeaweedFS) -> Iterator[Mortal]:
    deployment = Deployment(tmp_path / "deployment", seaweed, scenario=SCENARIO, timing=PATIENT)
    (tmp_path / "marks").mkdir()
    try:
        deployment.start_lab()
        mortal = Mortal(deployment, tmp_path / "marks")
        deployment.login("ada", "engineer")
        yield mortal
    finally:
        deployment.close()


def test_killed_around_every_effect(mortal: Mortal, go_ahead: Path) -> None:
    deployment = mortal.deployment
    deployment.call("POST", "/pause", {"reason": "until the submission has been answered"})
    job = deployment.submit(
        "survivor",
        allow=["aws/us-east-1"],
        run=f"python3 count.py --steps {STEPS} --pace 0.1 --hurry-when {go_ahead}",
    )
    with contextlib.suppress(httpx.HTTPError):
        deployment.call("POST", "/resume")  # the answer may be lost with the first death
    mortal.until("it has committed", lambda: deployment.job(job)["commit"])
    deployment.lab.price(FIRST, factor=1.9)
    mortal.until("it has moved", lambda: len(trained(deployment, job)) == 2)
    go_ahead.touch()
    mortal.until("it has succeeded", lambda: deployment.job(job)["state"] == "succeeded")
    mortal.until(
        "its machines are gone", lambda: all(p["state"] == "gone" for p in deployment.placements(job))
    )

    times = {"CreateNode": 2, "FindNode": 1, "DeleteNode": 2, "Fence": 2}
    assert mortal.deaths() == {f"{e} {moment}": n for e, n in times.items() for moment in ("before", "after")}
    assert mortal.starts == 1 + 14

    first, second = deployment.placements(job)
    assert [(p["key"], p["purpose"]) for p in (first, second)] == [(FIRST, "place"), (SECOND, "move")]
    assert f"leaving at step {second['resumed_step']} " in deployment.log(job), "saved when asked to stop"
    assert deployment.counted(job) == count_to(STEPS)

    truth = deployment.lab.truth()
    created = [entry["data"]["machine"] for entry in truth["log"] if entry["what"] == "machine.created"]
    tokens = {m["id"]: m["token"] for m in deployment.machines()}
    assert len(created) == len({tokens[machine] for machine in created}) == 2, "one machine for each token"
    assert deployment.living() == []
    paid = deployment.get(f"/jobs/{job}")["paid_micro_usd"]
    assert abs(paid - truth["total_micro_usd"]) < 10_000, "the ledger is the bill, to a cent"
    assert paid > 0


def trained(deployment: Deployment, job: str) -> list[dict[str, Any]]:
    """Placements that the job has trained on."""
    return [p for p in deployment.placements(job) if p["training_at_ms"] is not None]
