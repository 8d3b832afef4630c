"""Starts and signals the job's processes. One shell text at a time, in a session of its own, output in one file."""

import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional

from broker.node import processes
from broker.node.config import PRIVATE_PREFIX
from broker.node.lease import RUN_MARK, boot_s, kill_marked

# After the processes that saved have ended, what the script may still do (its own clean-up) before it is killed.
_WRAP_UP_S = 5.0
_POLL_S = 0.1


def job_environment(
    base: Mapping[str, str], order_env: Mapping[str, str], own: Mapping[str, str]
) -> Dict[str, str]:
    """The job's variables: the machine's without the agent's, then the order's, then ours, then SkyPilot's names."""
    env = {name: value for name, value in base.items() if not name.startswith(PRIVATE_PREFIX)}
    env.update(order_env)
    env.update(own)
    aliases = {
        "SKYPILOT_NODE_RANK": "BROKER_NODE_RANK",
        "SKYPILOT_NODE_IPS": "BROKER_NODE_IPS",
        "SKYPILOT_NUM_NODES": "BROKER_NODES",
        "SKYPILOT_NUM_GPUS_PER_NODE": "BROKER_GPUS_PER_NODE",
        "SKYPILOT_TASK_ID": "BROKER_JOB_ID",
    }
    for alias, name in aliases.items():
        if name in env:
            env[alias] = env[name]
    return env


class Shell:
    """One ``bash -euo pipefail -c`` and everything below it.

    Args:
        text: Shell text from the job file.
        cwd: Where it starts.
        env: Complete environment.
        log: Output is appended here.
        run_id: Mark in the environment, by which every descendant is found again.
        ended: Called once from a thread of ours when the shell has ended.
    """

    def __init__(
        self, text: str, cwd: Path, env: Mapping[str, str], log: Path, run_id: str, ended: Callable[[], None]
    ) -> None:
        self._run_id = run_id
        self._ended = ended
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", text],
                cwd=cwd,
                env={**env, RUN_MARK: run_id},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.exit_code: Optional[int] = None
        self._over = threading.Event()
        threading.Thread(target=self._wait, name="job-wait", daemon=True).start()

    def _wait(self) -> None:
        code = self._process.wait()
        self.exit_code = code if code >= 0 else 128 - code
        self._over.set()
        self._ended()

    @property
    def running(self) -> bool:
        """The shell has not ended."""
        return not self._over.is_set()

    def handles_term(self) -> bool:
        """Whether SIGTERM would reach somebody who catches it."""
        return self.running and bool(processes.term_handlers(self.pid))

    def ask_to_end(self) -> bool:
        """SIGTERM to those who catch it, and to nobody else: an unhandled signal would kill the job unsaved."""
        asked: List[processes.ProcessId] = []
        for pid in processes.term_handlers(self.pid) if self.running else []:
            process = processes.identify(pid)
            try:
                os.kill(pid, signal.SIGTERM)
            except OSError:
                continue
            if process is not None:
                asked.append(process)
        self._asked = asked
        return bool(asked)

    def wait_for_end(self, deadline_s: Callable[[], float]) -> bool:
        """Wait until the shell has ended, or its savers have and it does not wrap up, or the deadline.

        Args:
            deadline_s: On the boot clock; asked again and again, since it may come nearer.

        Returns:
            Whether everything that was asked ended by itself.
        """
        savers_gone_s: Optional[float] = None
        while self.running and boot_s() < deadline_s():
            if savers_gone_s is None and not any(process.alive for process in self._asked):
                savers_gone_s = boot_s()
            if savers_gone_s is not None and boot_s() > savers_gone_s + _WRAP_UP_S:
                return True
            self._over.wait(_POLL_S)
        return not self.running or not any(process.alive for process in self._asked)

    _asked: List[processes.ProcessId] = []  # noqa: RUF012  replaced, never changed in place

    def kill(self) -> bool:
        """SIGKILL all of it; False when something does not die."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except OSError:
            pass  # already gone; strays are next
        gone = kill_marked(self._run_id)
        self._over.wait(5.0)
        return gone and not self.running
