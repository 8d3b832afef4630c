"""Two clocks that run while the daemon is silent.

The *run lease* stops the job: a copy that nobody can reach must not train for ever. The *dead-man switch*
ends the node: a machine that nobody can reach must not be billed for ever. The switch is a process of its own,
in its own session, so that it outlives an agent that hangs, crashes or is killed; it also kills the job of an
agent that is gone, since nobody would commit for it, hold its lease or read its notice. (PR_SET_PDEATHSIG would
be the kernel's way, but it fires when the *thread* that started the job ends, and it does not reach grandchildren.)

Both read CLOCK_BOOTTIME: it is the same in every process, no administrator sets it, and it counts the time that
a suspended machine has slept through, in which a lease runs out like any other.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from typing import Mapping, Optional

from broker.node import processes
from broker.node.config import Home, NodeConfig, find_home, load_config, write_atomically

RUN_MARK = "BROKER_RUN_ID"
_TICK_S = 0.5
_RETRY_SHUTDOWN_S = 10.0


def boot_s() -> float:
    """Seconds on the node's boot clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class RunLease:
    """How long the job may go on without an answer from the daemon. Not thread-safe: the beat loop owns it."""

    def __init__(self) -> None:
        self._heard_s = boot_s()
        self._lease_s: Optional[float] = None

    def renew(self, asked_at_s: float, lease_s: float) -> None:
        """A beat was answered. The lease counts from when the beat was *sent*, as the daemon's view is that old."""
        self._heard_s = asked_at_s
        self._lease_s = lease_s

    @property
    def left_s(self) -> float:
        """Seconds left; infinite before the first answer, when no job can run yet either."""
        if self._lease_s is None:
            return float("inf")
        return self._heard_s + self._lease_s - boot_s()

    @property
    def farewell_s(self) -> float:
        """The last stretch of the lease, in which the job is asked to save: the job is gone when the lease is."""
        return min(30.0, 0.1 * self._lease_s) if self._lease_s is not None else 0.0


def postpone_death(home: Home, after_s: float) -> None:
    """Tell the dead-man switch to act that many seconds from now."""
    write_atomically(home.deadline, f"{boot_s() + after_s:.3f}".encode())


def _deadline(home: Home, otherwise: float) -> float:
    try:
        return float(home.deadline.read_text())
    except (OSError, ValueError):
        return otherwise


def kill_marked(run_id: str, within_s: float = 10.0) -> bool:
    """SIGKILL every process of a job, again until none is left: one may have forked while we were looking.

    Returns:
        Whether all are gone; False when one does not die (state D on a wedged driver).
    """
    if not run_id:
        return True
    mark = f"{RUN_MARK}={run_id}".encode()
    give_up_s = boot_s() + within_s
    while True:
        left = processes.marked(mark)
        if not left:
            return True
        if boot_s() > give_up_s:
            return False
        for process in left:
            try:
                os.kill(process.pid, signal.SIGKILL)
            except OSError:
                continue
        time.sleep(0.05)


def _agent_is_gone(home: Home) -> bool:
    try:
        agent = processes.parse(home.agent.read_text())
    except OSError:
        return False
    return agent is not None and not agent.alive


def _kill_job(home: Home) -> None:
    try:
        run_id = home.run_id.read_text().strip()
    except OSError:
        return
    kill_marked(run_id, within_s=5.0)


def dead_man(home: Home, config: NodeConfig) -> int:
    """Watch until the node has to end; then end it, again and again until it is gone.

    The shutdown command is found by PATH: what ends a machine is the machine's business.
    """
    # Nothing that ends the agent politely may end this one: only the machine's end does.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    last_resort_s = boot_s() + config.first_dead_man_s
    orphan_killed = False
    while boot_s() < _deadline(home, last_resort_s):
        if not _agent_is_gone(home):
            orphan_killed = False
        elif not orphan_killed:
            _kill_job(home)
            orphan_killed = True
        time.sleep(_TICK_S)
    while True:
        print("dead-man: nobody has renewed this node; ending it", file=sys.stderr, flush=True)
        _kill_job(home)
        try:
            # No wait without a limit: a shutdown that hangs must not keep us from the next try.
            subprocess.Popen(shlex.split(config.shutdown), stdin=subprocess.DEVNULL).wait(_RETRY_SHUTDOWN_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"dead-man: {config.shutdown}: {error}", file=sys.stderr, flush=True)
        time.sleep(_RETRY_SHUTDOWN_S)


def main(environ: Mapping[str, str]) -> int:
    """``agent.pyz deadman``."""
    home = find_home(environ)
    return dead_man(home, load_config(home, environ))
