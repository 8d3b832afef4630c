"""One shell session on a terminal, command by command, as a reader of a page has it."""

import fcntl
import os
import pty
import re
import secrets
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.docs.pages import Command

_COLUMNS = 160
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class ShellError(AssertionError):
    """A command failed, hung, or printed something else than the page says."""


class Shell:
    """A context manager. What the shell has started ends with it."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.folder = folder
        self.env = {**env, "TERM": "xterm-256color", "NO_COLOR": "1", "COLUMNS": str(_COLUMNS)}

    def __enter__(self) -> Self:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, _COLUMNS, 0, 0))
        # Commands come on a descriptor of their own: what a command reads from its stdin must not be the next one.
        script, self._script = os.pipe()
        self._terminal = ours
        self._bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile", f"/dev/fd/{script}"],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            pass_fds=[script],
            start_new_session=True,
        )
        os.close(script)
        os.close(theirs)
        self._send("set -m")  # a reader's shell is interactive, and names its jobs %1, %2
        return self

    def __exit__(self, *_: object) -> None:
        # With `set -m` each job is a process group of its own; all are in the shell's session.
        for number, patience_s in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
            for pid in _session(self._bash.pid):
                os.kill(pid, number)
            deadline = time.monotonic() + patience_s
            while _session(self._bash.pid) and time.monotonic() < deadline:
                self._bash.poll()
                time.sleep(0.05)
        self._bash.wait(5)
        os.close(self._script)
        os.close(self._terminal)

    def run(self, command: Command, timeout_s: float = 60.0, code: int = 0) -> str:
        """Run a command; returns what it and the jobs in the background have printed.

        Raises:
            ShellError: it ended with another code, was not over in time, or its output lacks a line of the page.
        """
        printed = self._answer(command.line, timeout_s, code)
        if missing := first_missing(command.prints, printed):
            raise ShellError(f"$ {command.line}\nprinted\n{printed}\nwithout the line\n{missing}")
        return printed

    def _answer(self, line: str, timeout_s: float, code: int) -> str:
        mark = secrets.token_hex(8)
        self._send(f"{line}\nprintf '%s %s\\n' {mark} $?")
        seen, deadline = "", time.monotonic() + timeout_s
        ended = re.compile(rf"^{mark} (\d+)\r?$", re.M)
        while not (end := ended.search(seen)):
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise ShellError(f"$ {line}\nis not over after {timeout_s:g} s; it printed\n{seen}")
            try:
                seen += os.read(self._terminal, 65536).decode(errors="replace")
            except OSError as error:
                raise ShellError(f"$ {line}\nended the shell; it printed\n{seen}") from error
        printed = _ESCAPES.sub("", seen[: end.start()].replace("\r\n", "\n"))
        if int(end[1]) != code:
            raise ShellError(f"$ {line}\nended with {end[1]}; it printed\n{printed}")
        return printed

    def _send(self, text: str) -> None:
        os.write(self._script, f"{text}\n".encode())


def first_missing(expected: tuple[str, ...], printed: str) -> str | None:
    """The first expected line that does not come, in order. ``…`` stands for anything; blanks count as one."""
    lines = (" ".join(line.split()) for line in printed.splitlines())
    for wanted in expected:
        parts = re.split(r"\s*…\s*", " ".join(wanted.split()))
        if not any(parts):
            continue  # a line of dots alone: any lines, or none
        pattern = re.compile(".*".join(map(re.escape, parts)))
        if not any(pattern.fullmatch(line) for line in lines):
            return wanted
    return None


def _session(leader: int) -> list[int]:
    """Pids of the living processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            except (OSError, ValueError):
                continue
            if int(session) == leader and state not in "ZX":
                found.append(int(entry.name))
    return found
