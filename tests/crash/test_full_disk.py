"""The disk under the daemon's state is full: that is said, nothing is damaged, and with room again it all goes on."""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.judge import judge_databases, judge_money
from tests.process.deployment import Deployment, count_to

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(240)]

STEPS = 3000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=0700", "broker-crash", str(disk)]
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    done = subprocess.run(mounting, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
    yield disk
    # Lazily: who still holds a file open must not keep it on this machine.
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Take the last byte."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while file.write(b"x" * size):
                    pass
    assert os.statvfs(disk).f_bavail == 0
    return ballast


def test_a_full_disk_is_told_and_outlived(
    small_disk: Path, deploy: Callable[..., Deployment], go_ahead: Path
) -> None:
    deployment = deploy(state=small_disk / "state")
    run = f"python3 count.py --steps {STEPS} --pace 0.1 --save-every 10 --hurry-when {go_ahead}"
    job = deployment.submit("before", run=run)
    deployment.wait_for_commit(job)

    ballast = fill(small_disk)
    refused = deployment.broker("submit", str(deployment.job_file("meanwhile", run=run)))
    assert refused.code == 1, refused
    assert "no room left" in refused.err
    assert "Traceback" not in refused.err
    step = deployment.step(job)
    deployment.wait_for(
        "the daemon has said so, too", lambda: "no room left" in deployment.tail("broker", 200)
    )
    assert deployment.child("broker").poll() is None, "it is alive, and waits for room"

    deployment.kill_daemon()
    starved = deployment.spawn_daemon()
    code = starved.wait(60)
    assert code == 1
    assert "no room left" in deployment.tail("broker", 3)
    ballast.unlink()
    deployment.start_daemon()
    deployment.wait_for_step(job, step + 1)
    later = deployment.submit("after", run=run)
    go_ahead.touch()
    for each in (job, later):
        deployment.finish(each)
        assert deployment.counted(each) == count_to(STEPS)
    names = [item["name"] for item in deployment.get("/jobs", all=True)["items"]]
    assert sorted(names) == ["after", "before"], "what was refused has not happened"
    assert list(judge_money(deployment, [job, later])) == []
    assert deployment.stop_daemon() == 0
    assert list(judge_databases(small_disk / "state")) == []
