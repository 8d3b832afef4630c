"""Find and end every process of a node, by a mark in its environment: also those that left its session or its parent.

A process inherits its environment for good, whatever it does with sessions, groups and parents; ``/proc/PID/environ``
shows what it was started with. A node's own uid, where it has one, catches those that were started with an empty one.
"""

import os
import signal
import time
from pathlib import Path

ROUNDS = 50


def marked(mark: str, uid: int | None = None) -> list[int]:
    """Pids of living processes that carry ``NAME=value`` in their environment, or run under that uid."""
    wanted = mark.encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal() or int(entry) == os.getpid():
            continue
        try:
            ours = uid is not None and os.stat(f"/proc/{entry}").st_uid == uid
            if (ours or wanted in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")) and _alive(entry):
                found.append(int(entry))
        except OSError:  # it is gone, or it is somebody else's and none of ours
            continue
    return found


def _alive(pid: str) -> bool:
    # The state follows the command's name, which is in parentheses and may hold any of them.
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def tell(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to each that is still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def end(mark: str, uid: int | None = None, grace_s: float = 0.0) -> bool:
    """SIGTERM, `grace_s` of real time, then SIGKILL until none is left. Whether none was left.

    One round of SIGKILL is not enough: between the look and the kill a process may have forked.
    """
    deadline = time.monotonic() + grace_s
    if grace_s > 0:
        tell(marked(mark, uid), signal.SIGTERM)
        while time.monotonic() < deadline and marked(mark, uid):
            time.sleep(0.02)
    for _ in range(ROUNDS):
        pids = marked(mark, uid)
        if not pids:
            return True
        tell(pids, signal.SIGKILL)
        time.sleep(0.01)
    return not marked(mark, uid)
