"""Reading /proc: who is whose child, who handles which signal, who carries a mark in its environment."""

import os
import signal
from dataclasses import dataclass
from typing import Dict, List, Optional


@dataclass(frozen=True)
class ProcessId:
    """A process that cannot be mistaken for a later one with the same number.

    Attributes:
        pid: Number.
        started: Start time in clock ticks since boot, from ``/proc/PID/stat``.
    """

    pid: int
    started: int

    def __str__(self) -> str:
        return f"{self.pid} {self.started}"

    @property
    def alive(self) -> bool:
        """Still running, and not a zombie."""
        found = stat(self.pid)
        return found is not None and found.started == self.started and found.state not in "ZX"


@dataclass(frozen=True)
class Stat:
    """The part of ``/proc/PID/stat`` that we need."""

    state: str
    parent: int
    started: int


def stat(pid: int) -> Optional[Stat]:
    """State, parent and start time; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command name may hold spaces and brackets: everything after the last one is fixed.
            rest = file.read().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return Stat(state=rest[0].decode(), parent=int(rest[1]), started=int(rest[19]))


def identify(pid: int) -> Optional[ProcessId]:
    """The process with that number, or None."""
    found = stat(pid)
    return ProcessId(pid, found.started) if found else None


def parse(text: str) -> Optional[ProcessId]:
    """The reverse of ``str(ProcessId)``; None for anything else."""
    parts = text.split()
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        return None
    return ProcessId(int(parts[0]), int(parts[1]))


def handles(pid: int, number: int) -> bool:
    """Whether the process catches that signal: its bit in SigCgt. An ignored signal is not handled."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except (OSError, ValueError, IndexError):
        pass
    return False


def children() -> Dict[int, List[int]]:
    """Parent to children, for all processes."""
    tree: Dict[int, List[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            found = stat(int(name))
            if found is not None:
                tree.setdefault(found.parent, []).append(int(name))
    return tree


def term_handlers(root: int) -> List[int]:
    """The processes to send SIGTERM to: on each branch under `root`, the topmost one that catches it.

    A shell in front of the trainer catches nothing and would die of the signal, leaving the trainer an orphan;
    torchrun catches it and passes it on to its workers, so nothing below a handler is signalled.
    """
    tree, found, level = children(), [], [root]
    while level:
        below: List[int] = []
        for pid in level:
            if handles(pid, signal.SIGTERM):
                found.append(pid)
            else:
                below.extend(tree.get(pid, ()))
        level = below
    return found


def marked(mark: bytes) -> List[ProcessId]:
    """Every process whose start environment holds ``mark`` (``NAME=value``), whatever its session or parent.

    torchrun puts each worker into a session of its own, so neither the group nor the parent finds them all.
    """
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark not in file.read().split(b"\0"):
                    continue
        except OSError:
            continue
        process = identify(int(name))
        if process is not None and process.alive:
            found.append(process)
    return found
