"""What runs inside a lab's nodes, seen from outside by the mark in every process's environment."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from broker.node.config import HOME_VARIABLE
from lab.nodes import MARK


@dataclass(frozen=True)
class Process:
    """One process of a node.

    Attributes:
        machine: The cloud's id of the node.
        home: What the agent calls its home; None for a job, which is not told.
        words: Its command line.
    """

    pid: int
    machine: str
    home: Path | None
    words: tuple[str, ...]

    @property
    def is_agent(self) -> bool:
        """The agent itself: neither its dead-man switch, nor a probe, nor a job."""
        return Path(self.words[-1]).name == "agent.pyz"

    @property
    def alive(self) -> bool:
        """Whether it runs, or could if it were let."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            return False
        return state not in (b"Z", b"X")

    @property
    def uid(self) -> int:
        """Whose it is."""
        return os.stat(f"/proc/{self.pid}").st_uid

    def tell(self, number: signal.Signals) -> bool:
        """Send a signal; whether there was somebody to take it."""
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def processes(run: str, machine: str = "") -> Iterator[Process]:
    """All processes of a lab's nodes, or of one.

    Args:
        run: The lab's ``run`` in ``lab.json``.
    """
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            marks = dict(
                pair.split("=", 1)
                for pair in (entry / "environ").read_bytes().decode(errors="replace").split("\0")
                if "=" in pair
            )
            words = (entry / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
        except OSError:
            continue  # it has ended meanwhile
        lab, _, where = marks.get(MARK, "").partition("/")
        if lab != run or machine not in ("", where) or not words[0]:
            continue
        home = marks.get(HOME_VARIABLE)
        process = Process(int(entry.name), where, Path(home) if home else None, tuple(words))
        if process.alive:
            yield process


def agents(run: str, machine: str = "") -> list[Process]:
    """The agents among them, by machine."""
    return sorted((p for p in processes(run, machine) if p.is_agent), key=lambda p: p.machine)


def jobs(run: str, machine: str, script: str) -> list[Process]:
    """Processes of a job on one node: those whose command line names its script."""
    return [p for p in processes(run, machine) if any(Path(word).name == script for word in p.words)]


def ended_within(process: Process, limit_s: float) -> bool:
    """Wait for the end of a process that is not our child."""
    deadline = time.monotonic() + limit_s
    while process.alive:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
