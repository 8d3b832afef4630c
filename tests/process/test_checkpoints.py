"""What is handed over is what the store holds, the whole of it, and nothing besides."""

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.wire.commit import restore, write_commit
from broker.wire.head import read_head
from broker.wire.manifest import load_manifest
from lab.demo.reference import digest, reference_run
from tests.process.deployment import ROOT, Deployment

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("deployment")]

# Deaf and slow: what is committed is decided by the test, not by a farewell.
DEAF = "python3 count.py --steps 60 --pace 0.1 --save-every 10 --deaf"


@dataclass
class Taken:
    """A job whose machine was taken away without notice, while nothing new may be rented."""

    deployment: Deployment
    job: str
    step: int

    def go_on(self) -> dict[str, object]:
        """Let it recover and finish."""
        assert self.deployment.broker("resume", person="alan").code == 0
        return self.deployment.finish(self.job)


def take_away(deployment: Deployment, job: str, commits: int) -> Taken:
    """Wait for that many commits, then pause the broker and let the cloud take the machine at once."""
    deployment.wait_for_commit(job, commits)
    assert deployment.broker("pause", "--reason", "a test looks at the store", person="alan").code == 0
    deployment.interrupt(job, notice_s=0)
    deployment.wait_for_gone(job)
    return Taken(deployment, job, deployment.job(job)["commit"]["step"])


def test_a_damaged_chunk_costs_one_commit_and_is_told(deployment: Deployment) -> None:
    job = deployment.submit("damaged", run=DEAF)
    taken = take_away(deployment, job, commits=2)
    store, prefix = deployment.store(job)
    found = read_head(store, prefix)
    assert found is not None
    head = found[0]
    assert head.link is not None
    chunks = load_manifest(store, prefix, head.link).chunks()
    newest = max(chunks)  # keys carry the seq of the commit that wrote them
    data, _ = store.get(f"{prefix}/{newest}") or (b"", "")
    store.put(f"{prefix}/{newest}", bytes([data[0] ^ 1]) + data[1:])
    taken.go_on()
    second = deployment.placements(job)[1]
    assert second["resumed_seq"] == head.seq - 1
    (event,) = deployment.events(job, "checkpoint.fell_back")
    assert (event["data"]["to_seq"], event["placement_id"]) == (head.seq - 1, second["id"])
    assert head.link.manifest in event["data"]["skipped"][0]
    assert deployment.counted(job) == counted(60), (
        "falling back changes when it is done, not what comes of it"
    )


def test_a_store_without_the_job_means_a_fresh_start(deployment: Deployment) -> None:
    """There is no other way from node to node than the store."""
    job = deployment.submit("emptied", run=DEAF)
    taken = take_away(deployment, job, commits=1)
    assert taken.step > 0
    store, prefix = deployment.store(job)
    for key, _ in list(store.list(f"{prefix}/")):
        store.delete(key)
    taken.go_on()
    assert deployment.placements(job)[1]["resumed_step"] is None
    assert deployment.log(job).count("starting at step 0\n") == 2


def test_a_node_cannot_read_another(deployment: Deployment) -> None:
    if deployment.lab.info["isolation"] != "uid":
        pytest.skip(f"nodes share a user here: isolation {deployment.lab.info['isolation']}")
    rich = deployment.submit("rich", run='echo "root $PWD"; python3 count.py --steps 250')
    deployment.wait_for_commit(rich)
    theirs = next(line for line in deployment.log(rich).splitlines() if line.startswith("root ")).split()[1]
    assert list(Path(theirs, "checkpoints").glob("step-*.pt")), "there is something to find"
    thief = deployment.submit("thief", run=f"python3 look_around.py {theirs}")
    deployment.finish(thief)
    said = json.loads(deployment.log(thief).splitlines()[-1])
    assert said == {
        "others": "PermissionError",
        "their work": "PermissionError",
        "their memory": "PermissionError",
    }
    deployment.finish(rich)
    assert not Path(theirs).exists(), "a root ends with its node"


@pytest.mark.slow
def test_one_altered_number_changes_the_final_weights(deployment: Deployment, tmp_path: Path) -> None:
    """The comparison of final weights can fail: so where it holds, it says something."""
    script = ROOT / "docs" / "examples" / "train.py"
    steps = ["--steps", "100", "--save-every", "10"]
    reference = reference_run(script, steps, tmp_path / "reference")
    wish = {
        "gpus": "A100:8",
        "allow": ["aws"],
        "source": str(script.parent),
        "env": {"STEP_SECONDS": "0.15", "OMP_NUM_THREADS": "1"},
        "run": f"python3 train.py {' '.join(steps)}",
    }
    jobs = [deployment.submit(name, **wish) for name in ("honest", "altered")]
    for job in jobs:
        deployment.wait_for_commit(job, limit_s=60)
    taken = [take_away(deployment, job, commits=1) for job in jobs]
    alter(deployment, jobs[1], tmp_path / "altered")
    for one in taken:
        one.go_on()
    honest, altered = (digest(script, deployment.restored(job)) for job in jobs)
    assert (honest.step, altered.step) == (100, 100)
    assert honest.sha256 == reference.sha256
    assert altered.sha256 != reference.sha256


def alter(deployment: Deployment, job: str, folder: Path) -> None:
    """Change one weight in the newest checkpoint and commit it again, with every checksum right."""
    store, prefix = deployment.store(job)
    found = restore(store, prefix, folder)
    assert found.head is not None
    newest = max(folder.rglob("step-*.pt"))
    change = (
        "import sys, torch\n"
        "state = torch.load(sys.argv[1], weights_only=True)\n"
        "state['model']['head.bias'][0] += 1e-3\n"
        "torch.save(state, sys.argv[1])\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", change, str(newest)], check=True, timeout=60)
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("step-*.pt")]
    write_commit(store, prefix, found.head.generation, "by-hand", folder, names)


def counted(steps: int) -> dict[str, object]:
    """What `count.py` leaves behind when nothing has ever come between."""
    chain = ""
    for step in range(1, steps + 1):
        chain = hashlib.sha256(f"{chain}{step}".encode()).hexdigest()
    return {"step": steps, "chain": chain}
