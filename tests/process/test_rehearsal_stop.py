"""Ctrl-C in the middle of a rehearsal: it ends with 130, and nothing of it is left on the machine."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.control import LabClient
from tests.process.lab_and_daemon import ROOT

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "rehearsal"
    with (tmp_path / "said").open("wb") as said:
        rehearsal = subprocess.Popen(
            [sys.executable, "-m", "lab.demo", "--dir", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            cwd=ROOT,
            start_new_session=True,
        )
    try:
        wait_until_it_trains(rehearsal, folder / "run", tmp_path / "said")
        run = f"LAB_RUN={LabClient.open(folder / 'run' / 'lab').info['run']}"
        marks = (run.encode(), str(folder).encode())
        before = processes_of(marks)
        roots = {root for root in map(node_root, before) if root is not None}
        assert {"lab", "broker", "train.py", "weed"} <= {word for pid in before for word in kinds(pid)}
        assert all(root.exists() for root in roots)
        assert len(roots) == 1, "the job's node"
        os.kill(rehearsal.pid, signal.SIGINT)
        assert rehearsal.wait(60) == 130
    finally:
        with contextlib.suppress(ProcessLookupError):
            rehearsal.terminate()
        rehearsal.wait(60)
    left = processes_of(marks)
    assert not left, [command(pid) for pid in left]
    assert not any(root.exists() for root in roots)
    assert "nothing is left running" in (tmp_path / "said").read_text()


def wait_until_it_trains(rehearsal: "subprocess.Popen[bytes]", run: Path, said: Path) -> None:
    deadline = time.monotonic() + 200
    while True:
        assert rehearsal.poll() is None, said.read_text()
        assert time.monotonic() < deadline, said.read_text()
        with contextlib.suppress(sqlite3.OperationalError):
            rows = sqlite3.connect(f"file:{run}/state/state.db?mode=ro", uri=True)
            with contextlib.closing(rows):
                if rows.execute("SELECT 1 FROM event WHERE kind = 'job.training'").fetchone():
                    return
        time.sleep(0.1)


def processes_of(marks: tuple[bytes, ...]) -> list[int]:
    """Every living process that carries one of the marks in its environment or on its command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            alive = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
            text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            if alive and any(mark in text for mark in marks):
                found.append(int(entry.name))
    return found


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def kinds(pid: int) -> list[str]:
    """The words of a command line, without folders."""
    return [Path(word).name for word in command(pid).split()]


def node_root(pid: int) -> Path | None:
    """The root of the lab node that a process belongs to."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    home = next((e for e in text.split(b"\0") if e.startswith(b"BROKER_NODE_HOME=")), None)
    return Path(home.partition(b"=")[2].decode()).parent if home else None
