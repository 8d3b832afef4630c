"""A deployment with jobs, in which things die; whoever dies and is expected back is started again."""

import contextlib
import math
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from lab.seaweed import SeaweedFS
from tests.crash.heads import HeadWatch
from tests.crash.insides import agents
from tests.crash.schedule import Kill, Victim
from tests.process.deployment import Deployment, key_of
from tests.process.lab_and_daemon import ROOT

SCRIPT = ROOT / "docs" / "examples" / "train.py"
TRAIN = ["--steps", "100", "--save-every", "10"]
STEPS = 9000
# Real seconds. What must happen in the end happens within these, or something hangs.
DEATH_LIMIT_S, END_LIMIT_S = 120.0, 240.0
_STIR_S = 6.0

POOLS = {
    "H100": [f"aws/{zone}/p5.4xlarge/spot" for zone in ("use1-az6", "use1-az2", "use1-az1")]
    + ["gcp/us-central1-a/a3-highgpu-1g/spot"],
    "L4": [f"aws/{zone}/g6.xlarge/spot" for zone in ("use1-az6", "use1-az2", "use1-az1")]
    + ["gcp/us-central1-a/g2-standard-4/spot"],
}
PRICES = ["2.00", "3.00", "4.50", "6.00"]
SCENARIO = {
    "boot_s": {"aws": 30, "gcp": 30},
    "prices": {key: usd for keys in POOLS.values() for key, usd in zip(keys, PRICES, strict=True)},
}
# A second is a minute here. A daemon may be away for longer than it takes to start on a busy machine without a job's
# lease running out; whoever is killed for good is given up after as long.
TIMING = {
    "beat": "24s",
    "unreachable_after": "3m",
    "run_lease": "20m",
    "dead_man": "10m",
    "request_deadline": "30m",
    "boot_deadline": "30m",
    "probe_deadline": "30m",
    "ready_deadline": "30m",
    "drain_deadline": "20m",
    "collect_interval": "2m",
    "collect_grace": "5m",
}


class Broken(Exception):
    """Something never came, or ended that nobody has killed; the text says how things stand."""


class Storm:
    """Suffers kills.

    Attributes:
        counting: Jobs that count, with the steps they have to go.
        training: Jobs that train.
        deaths: What has died how often.
        starts: Of the daemon.
    """

    def __init__(self, folder: Path, store: SeaweedFS, seed: int, say: Callable[[str], None]) -> None:
        self.deployment = Deployment(folder / "deployment", store, scenario=SCENARIO, timing=TIMING)
        self.heads = HeadWatch(self.deployment.store)
        self.counting: dict[str, int] = {}
        self.training: list[str] = []
        self.deaths: Counter[str] = Counter()
        self.starts = 0
        self._store = store
        self._say = say
        self._dice = random.Random(seed + 1)
        self._armed = folder / "armed"
        # Nodes have uids of their own, which may not reach our folder.
        self._seen_by_all = tempfile.TemporaryDirectory()
        Path(self._seen_by_all.name).chmod(0o755)
        self._hurry = Path(self._seen_by_all.name) / "hurry"
        self._command = [sys.executable, "-m", "tests.crash.armed", str(self._armed)]
        self._daemon: subprocess.Popen[bytes] | None = None
        self._prices: dict[str, int] = {}
        self._daemon_at_s = self._store_at_s = self._stirred_at_s = 0.0

    def begin(self) -> None:
        """Everything up, three jobs counting and one training."""
        self._armed.mkdir(parents=True)
        self.deployment.start_lab()
        self._start_daemon()
        self._until("the daemon is up", self.deployment.ready)
        self.deployment.login("ada", "engineer")
        self.heads.start()
        run = f"python3 count.py --steps {STEPS} --pace 0.2 --save-every 10 --hurry-when {self._hurry}"
        for name, gpus, allow in (
            ("amber", "H100:1", ["aws"]),
            ("beryl", "H100:1", []),
            ("coral", "L4:1", []),
        ):
            job = self.deployment.submit(name, run=run, gpus=gpus, **({"allow": allow} if allow else {}))
            self.counting[job] = STEPS
            self.heads.watch(job)
        self._train()
        for job in self.counting:
            self._until(f"{job} has committed", lambda job=job: self.deployment.job(job)["commit"])

    def suffer(self, kill: Kill) -> None:
        """One death, when its time has come, and whoever is expected back is started again."""
        if not kill.in_its_start:
            self._until("the daemon is up", self.deployment.ready)
            self._train()
        self._stir()
        self._pass(kill.wait_s)
        match kill.victim:
            case Victim.DAEMON:
                self._kill_daemon(kill)
            case Victim.EFFECT:
                self._kill_at(kill)
            case Victim.AGENT:
                self._kill_agent(kill)
            case Victim.STORE:
                self._kill_store(kill)
        self.deaths[str(kill)] += 1

    def calm(self) -> None:
        """Nobody dies any more; every job has to end, and every machine."""
        self._hurry.touch()
        for moment in self._armed.iterdir():
            moment.unlink()
        deployment = self.deployment
        for job in [*self.counting, *self.training]:
            self._until(
                f"{job} is over",
                lambda job=job: deployment.job(job)["state"] in ("succeeded", "failed"),
                END_LIMIT_S,
            )
        self._until("no machine is left", lambda: not deployment.living(), END_LIMIT_S)
        jobs = [*self.counting, *self.training]
        self._until(
            "the rows know it",
            lambda: all(p["state"] == "gone" for job in jobs for p in deployment.placements(job)),
        )
        self.heads.stop()

    def close(self) -> None:
        """End everything."""
        self.heads.stop()
        self.deployment.close()
        self._seen_by_all.cleanup()

    # -- kills ------------------------------------------------------------------------------------------------------

    def _kill_daemon(self, kill: Kill) -> None:
        assert self._daemon is not None
        self._daemon.kill()
        self._daemon.wait(10)
        time.sleep(kill.down_s)
        self._start_daemon()

    def _kill_at(self, kill: Kill) -> None:
        """Arm the moment, and move jobs until it comes."""
        self._until("the daemon is up", self.deployment.ready)
        daemon = self._daemon
        assert daemon is not None
        (self._armed / kill.moment).touch()
        deadline = time.monotonic() + DEATH_LIMIT_S
        while daemon.poll() is None:
            if time.monotonic() > deadline:
                raise Broken(
                    f"{kill.moment} has not come in {DEATH_LIMIT_S:.0f} s\n{self.deployment.report()}"
                )
            self._stir()
            time.sleep(0.05)
        time.sleep(kill.down_s)
        self._revive()

    def _kill_agent(self, kill: Kill) -> None:
        """Of the agents that run, any; wait for one if there is none just now."""
        run = self.deployment.lab.info["run"]
        found = self._until("an agent runs", lambda: agents(run))
        agent = found[int(kill.pick * len(found))]
        agent.tell(signal.SIGKILL)
        if kill.together:
            with contextlib.suppress(ValueError):  # it is on its way out already
                self.deployment.lab.interrupt(agent.machine, 0)

    def _kill_store(self, kill: Kill) -> None:
        self._store.kill()
        self._store_at_s = math.inf
        if kill.together and self._daemon is not None:
            self._daemon.kill()
            self._daemon.wait(10)
        self._pass(kill.down_s)
        self._store.start()
        self._store_at_s = time.monotonic()

    # -- life -------------------------------------------------------------------------------------------------------

    def _train(self) -> None:
        """One job trains at any time: the next is submitted when the last is over."""
        if self.training and self.deployment.job(self.training[-1])["state"] != "succeeded":
            return
        job = self.deployment.submit(
            f"torch-{len(self.training) + 1}",
            gpus="L4:1",
            source=str(SCRIPT.parent),
            env={"STEP_SECONDS": "0.1", "OMP_NUM_THREADS": "1"},
            run=f"{sys.executable} -W ignore train.py {' '.join(TRAIN)}",
        )
        self.training.append(job)
        self.heads.watch(job)

    def _stir(self) -> None:
        """Every few seconds other places are the cheap ones.

        Never before the daemon has seen the prices of the last time: it asks clouds for what a place costs now and
        since when, so what has changed twice between two polls is not in its ledger.
        """
        if time.monotonic() < self._stirred_at_s + _STIR_S:
            return
        try:
            quotes = self.deployment.get("/prices")["items"]
        except httpx.HTTPError:
            return
        seen = {key_of(quote["offer"]): quote["price_micro_usd_h"] for quote in quotes}
        if any(abs(seen.get(key, 0) - price) > 0.01 * price for key, price in self._prices.items()):
            return
        self._stirred_at_s = time.monotonic()
        keys = POOLS[self._dice.choice(sorted(POOLS))]
        for key, usd in zip(keys, self._dice.sample(PRICES, len(PRICES)), strict=True):
            self._prices[key] = self.deployment.lab.price(key, usd=usd)

    def _start_daemon(self) -> None:
        self._daemon = self.deployment.spawn_daemon(self._command)
        self._daemon_at_s = time.monotonic()
        self.starts += 1

    def _revive(self) -> None:
        """Start the daemon again if it has died, as a service manager would."""
        if self._daemon is None or self._daemon.poll() is None:
            return
        code = self._daemon.returncode
        # One that starts while the store is away says so and ends.
        if code != -signal.SIGKILL and not (code == 1 and self._daemon_at_s < self._store_at_s):
            raise Broken(f"the daemon ended with {code}\n{self.deployment.tail('broker', 60)}")
        self._start_daemon()

    def _pass(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._revive()
            time.sleep(0.05)

    def _until(self, what: str, holds: Callable[[], Any], limit_s: float = DEATH_LIMIT_S) -> Any:
        deadline = time.monotonic() + limit_s
        while True:
            self._revive()
            with contextlib.suppress(httpx.HTTPError):  # it has just died, or is not up yet
                if found := holds():
                    return found
            if time.monotonic() > deadline:
                raise Broken(f"not in {limit_s:.0f} s: {what}\n{self.deployment.report()}")
            time.sleep(0.1)
