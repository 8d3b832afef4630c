"""The machine of a local node: a process of its own that keeps the node, and outlives the daemon.

    python keeper.py FOLDER TOKEN GRACE_S

Runs ``FOLDER/TOKEN/user-data`` once and then stays, as a machine stays up when its first script has ended, until
SIGTERM (we end it) or SIGUSR1 (the node's own `shutdown`). Then every process of the node gets SIGTERM, a grace,
SIGKILL; its directory goes; the status says when and by whom.

It holds ``TOKEN.lock`` for as long as it lives, which is how others know that it does: the lock goes with the
process however that ends, so neither a stale pid file nor a pid that was given out again can lie. Prints ``ok`` when
it has the lock, or ``taken`` when another keeper has it. Standard library only; Linux.
"""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

MARK = "BROKER_LOCAL_NODE"
BY_US = "us"
BY_NODE = "node"

_KILL_LIMIT_S = 30.0
_LOCK_TRIES = 50
# What a node may know of the daemon's environment. The rest holds the keys of the clouds.
_PASSED_ON = re.compile(
    r"PATH|LANG|LC_.*|TZ|SHELL|USER|LOGNAME|LD_LIBRARY_PATH|(CUDA|NVIDIA|HIP|ROCR)_.*|.*_proxy"
)

_SIGNALS = {signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD}
_SHUTDOWN = "#!/bin/sh\n# Ends this node, and nothing else of the host.\nkill -USR1 {pid}\nsleep 600\n"
_SYSTEMCTL = '#!/bin/sh\ncase " $* " in\n*" poweroff "*|*" halt "*|*" reboot "*) kill -USR1 {pid}; sleep 600;;\nesac\nexit 1\n'


def marked(root: Path) -> list[int]:
    """Pids of the living processes that belong to a node, by the mark in their environment.

    The environment is inherited, so this finds what has left the node's session, too.
    """
    mark, found = f"{MARK}={root}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                alive = (entry / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
                if alive and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except (OSError, IndexError):
                continue  # it ended while we looked, or it is another user's
    return found


def end_processes(root: Path, grace_s: float) -> None:
    """SIGTERM to every process of a node, SIGKILL to what is left after the grace."""
    _signal(marked(root), signal.SIGTERM)
    until = time.monotonic() + grace_s
    while marked(root) and time.monotonic() < until:
        time.sleep(0.05)
    # A process may fork while we look: look again until there is nothing. One that the kernel will not let go
    # (a hung disk, a hung GPU) must not keep us for ever.
    until = time.monotonic() + _KILL_LIMIT_S
    while (left := marked(root)) and time.monotonic() < until:
        _signal(left, signal.SIGKILL)
        time.sleep(0.02)


def write_json(path: Path, document: dict[str, object]) -> None:
    """Whole or not at all."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(document))
    fresh.replace(path)


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _detach() -> None:
    """Leave the daemon: a session of our own, and a parent that is not the daemon."""
    if os.fork():
        os._exit(0)
    os.setsid()


def _locked(lock: int) -> bool:
    """Whether the lock is ours now. Somebody who only looks holds it for a moment: that is no reason to give up."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return True
    return False


def _start(root: Path) -> None:
    """The node's user-data, with our signals as they should be and its own `shutdown` in the path."""
    (root / "bin").mkdir(exist_ok=True)
    for name in ("shutdown", "poweroff", "halt", "reboot"):
        _script(root / "bin" / name, _SHUTDOWN.format(pid=os.getpid()))
    _script(root / "bin" / "systemctl", _SYSTEMCTL.format(pid=os.getpid()))
    (root / "tmp").mkdir(exist_ok=True)
    environment = {
        **{name: value for name, value in os.environ.items() if _PASSED_ON.fullmatch(name)},
        MARK: str(root),
        "PATH": f"{root / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}",
        "HOME": str(root),
        "TMPDIR": str(root / "tmp"),
    }
    with (root / "console.log").open("ab") as console:
        subprocess.Popen(
            [str(root / "user-data")],
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, set()),
        )


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o700)


def main(folder: Path, token: str, grace_s: float) -> int:
    """Keep one node until it ends."""
    began, root, status = time.monotonic(), folder / token, folder / f"{token}.status"
    _detach()
    lock = os.open(folder / f"{token}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _locked(lock):
        print("taken", flush=True)
        return 0
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    # Before the first process: whoever sees the lock held must find a pid to signal.
    write_json(status, {"pid": os.getpid()})
    print("ok", flush=True)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    try:
        _start(root)
    except OSError as error:
        (root / "console.log").write_text(f"user-data could not be started: {error}\n")
    while (arrived := signal.sigwait(_SIGNALS)) == signal.SIGCHLD:
        while True:  # reap, or a child that has ended would look alive
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break
    by = BY_NODE if arrived == signal.SIGUSR1 else BY_US
    ended: dict[str, object] = {"pid": os.getpid(), "ended_after_s": time.monotonic() - began, "ended_by": by}
    write_json(status, ended)
    end_processes(root, grace_s)
    shutil.rmtree(root, ignore_errors=True)
    return 0


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
