"""Runs a probe's children under time limits that hold even when a GPU driver hangs.

`subprocess.run(timeout=)` waits without a limit after its kill: a child in state D would hang the probe for ever.
So: a session of its own, output to files (a grandchild holding a pipe would keep a reader waiting), SIGKILL to
the group, a limited wait, and then the child is left behind and said to be ``unkillable``.
"""

import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

_POLL_S = 0.05
_KILL_WAIT_S = 2.0
_TAIL_BYTES = 2000


@dataclass
class Child:
    """One child and what became of it.

    Attributes:
        name: For people: ``nvml``, ``torch gpu 3``.
        events: File with one JSON line per event: ``{"stage", "event": "start"|"end", "facts"}``.
        limits_s: Seconds a stage may take; ``""`` is the limit for the time before the first one.
        outcome: ``exit``, ``timeout``, ``unkillable``; with `code` (negative: signal).
        stage: The stage that was running when it ended, or None between stages.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    folder: Path
    limits_s: Mapping[str, float]
    outcome: str = ""
    code: Optional[int] = None
    stage: Optional[str] = None
    waiting_in: str = ""
    wall_s: float = 0.0
    process: Optional["subprocess.Popen[bytes]"] = field(default=None, repr=False)

    @property
    def events(self) -> Path:
        """Where the child writes its stages."""
        return self.folder / "events.jsonl"

    def facts(self) -> Dict[str, Any]:
        """Everything worth keeping, as JSON values."""
        stages: Dict[str, Any] = {}
        for event in _read_events(self.events):
            if event.get("event") == "end":
                stages[str(event.get("stage"))] = event.get("facts", {})
        result: Dict[str, Any] = {
            "name": self.name,
            "outcome": self.outcome,
            "code": self.code,
            "stage": self.stage,
            "wall_s": round(self.wall_s, 2),
            "stages": stages,
        }
        if self.outcome != "exit" or self.code:
            result["output"] = _tail(self.folder / "output")
        if self.waiting_in:
            result["waiting_in"] = self.waiting_in
        return result


def supervise(children: Sequence[Child], timeout_s: float) -> None:
    """Run all children at once until each has ended or run out of time; fills in their outcomes.

    Args:
        timeout_s: For all of it. A child is stopped by this or by the limit of the stage it is in.
    """
    start_s = time.monotonic()
    for child in children:
        child.folder.mkdir(parents=True, exist_ok=True)
        # Popen without `with`: leaving the block would wait for a child that may never end.
        with open(child.folder / "output", "wb") as output:
            child.process = subprocess.Popen(
                list(child.argv),
                env=dict(child.env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    stage_since = {id(child): ("", start_s) for child in children}
    open_children = list(children)
    while open_children:
        now_s = time.monotonic()
        for child in list(open_children):
            assert child.process is not None
            child.code = child.process.poll()
            child.wall_s = now_s - start_s
            stage = _running_stage(child.events)
            seen, since_s = stage_since[id(child)]
            if (stage or "") != seen:
                stage_since[id(child)] = (stage or "", now_s)
                since_s = now_s
            child.stage = stage
            limit_s = child.limits_s.get(stage or "", timeout_s)
            if child.code is not None:
                child.outcome = "exit"
                _kill_group(child.process.pid)  # what it may have left behind
                open_children.remove(child)
            elif now_s - start_s >= timeout_s or now_s - since_s >= limit_s:
                _stop(child)
                open_children.remove(child)
        if open_children:
            time.sleep(_POLL_S)


def _stop(child: Child) -> None:
    assert child.process is not None
    child.outcome = "timeout"
    child.waiting_in = _waiting_in(child.process.pid)
    _kill_group(child.process.pid)
    try:
        child.code = child.process.wait(_KILL_WAIT_S)
    except subprocess.TimeoutExpired:
        child.outcome = "unkillable"


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass  # nobody left


def _waiting_in(pid: int) -> str:
    """State and kernel function of a process, for the verdict: ``D nvidia_ioctl``."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        where = Path(f"/proc/{pid}/wchan").read_text().strip("0\n")
    except (OSError, IndexError):
        return ""
    return f"{state} {where}".strip()


def _running_stage(events: Path) -> Optional[str]:
    running: Optional[str] = None
    for event in _read_events(events):
        running = str(event.get("stage")) if event.get("event") == "start" else None
    return running


def _read_events(events: Path) -> List[Dict[str, Any]]:
    try:
        lines = events.read_bytes().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # the line that was being written when the child died
        if isinstance(event, dict):
            found.append(event)
    return found


def _tail(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
