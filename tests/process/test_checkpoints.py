"""What is handed over is what the store holds, the whole of it, and nothing besides."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from broker.wire.commit import restore, write_commit
from broker.wire.head import Head, read_head
from broker.wire.manifest import load_manifest
from broker.wire.store_client import ObjectStore
from lab.demo.reference import digest, reference_run
from tests.process.deployment import Deployment, count_to
from tests.process.lab_and_daemon import ROOT

pytestmark = [pytest.mark.process, pytest.mark.timeout(240), pytest.mark.xdist_group("deployment")]

# Deaf: what is committed is decided by the test, not by a farewell.
DEAF = "python3 count.py --steps {steps} --pace 0.1 --save-every 10 --deaf --hurry-when {file}"


def take_away(deployment: Deployment, *jobs: str) -> None:
    """Pause the broker, and let the cloud take the jobs' machines at once; until `resume` nothing changes."""
    assert deployment.broker("pause", "--reason", "a test looks at the store", person="alan").code == 0
    for job in jobs:
        deployment.interrupt(job, notice_s=0)
    for job in jobs:
        deployment.wait_for_gone(job)


def resume(deployment: Deployment, *jobs: str) -> None:
    """Let jobs recover and finish."""
    assert deployment.broker("resume", person="alan").code == 0
    for job in jobs:
        deployment.finish(job)


def damage_newest_chunk(store: ObjectStore, prefix: str) -> Head:
    """Turn one bit of what only the newest commit has."""
    found = read_head(store, prefix)
    assert found is not None
    head = found[0]
    assert head.link is not None
    newest = max(load_manifest(store, prefix, head.link).chunks())  # keys carry the seq of their commit
    data, _ = store.get(f"{prefix}/{newest}") or (b"", "")
    store.put(f"{prefix}/{newest}", bytes([data[0] ^ 1]) + data[1:])
    return head


def test_a_damaged_chunk_costs_one_commit_and_an_emptied_store_waits_for_a_person(
    deployment: Deployment, go_ahead: Path
) -> None:
    """There is no other way from node to node than the store."""
    damaged = deployment.submit("damaged", run=DEAF.format(steps=2000, file=go_ahead))
    emptied = deployment.submit("emptied", run=DEAF.format(steps=1000, file=go_ahead))
    deployment.wait_for_commit(emptied)
    deployment.wait_for_commit(damaged, seq=2)
    take_away(deployment, damaged, emptied)
    assert deployment.job(emptied)["commit"]["step"] > 0
    head = damage_newest_chunk(*deployment.store(damaged))
    store, prefix = deployment.store(emptied)
    for key, _ in list(store.list(f"{prefix}/")):
        store.delete(key)
    go_ahead.touch()
    resume(deployment, damaged)

    second = deployment.placements(damaged)[1]
    assert second["resumed_seq"] == head.seq - 1
    (event,) = deployment.events(damaged, "checkpoint.fell_back")
    assert (event["data"]["to_seq"], event["placement_id"]) == (head.seq - 1, second["id"])
    assert head.link is not None
    assert head.link.manifest in event["data"]["skipped"][0]
    assert deployment.counted(damaged) == count_to(2000), "falling back costs time, and changes nothing else"

    # It is not started from nothing without a word: a person has to say whether its work is to be done again.
    deployment.wait_for("it says so", lambda: "HEAD: it is gone" in deployment.job(emptied)["reason"])
    assert deployment.job(emptied)["state"] == "recovering"
    assert deployment.log(emptied).count("starting at step 0\n") == 1
    assert deployment.broker("cancel", emptied).code == 0
    deployment.wait_for_gone(emptied)


def test_a_node_cannot_read_another(deployment: Deployment) -> None:
    if deployment.lab.info["isolation"] != "uid":
        pytest.skip(f"nodes share a user here: isolation {deployment.lab.info['isolation']}")
    rich = deployment.submit("rich", run='echo "root $PWD"; python3 count.py --steps 5000')
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
    assert Path(theirs).exists()
    assert deployment.broker("cancel", rich).code == 0
    deployment.wait_for_gone(rich)
    assert not Path(theirs).exists(), "a root ends with its node"


@pytest.mark.slow
def test_one_altered_number_changes_the_final_weights(deployment: Deployment, tmp_path: Path) -> None:
    """The comparison of final weights can fail: so where it holds, it says something."""
    script = ROOT / "docs" / "examples" / "train.py"
    steps = ["--steps", "120", "--save-every", "10"]
    reference = reference_run(script, steps, tmp_path / "reference")
    wish = {
        "gpus": "A100:8",
        "allow": ["aws"],
        "source": str(script.parent),
        "env": {"STEP_SECONDS": "0.1", "OMP_NUM_THREADS": "1"},
        "run": f"python3 train.py {' '.join(steps)}",
    }
    jobs = [deployment.submit(name, **wish) for name in ("honest", "altered")]
    for job in jobs:
        deployment.wait_for_commit(job)
    take_away(deployment, *jobs)
    alter(deployment, jobs[1], tmp_path / "altered")
    resume(deployment, *jobs)
    honest, altered = (digest(script, deployment.restored(job)) for job in jobs)
    assert (honest.step, altered.step) == (120, 120)
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
