"""Private roots: the folder that a lab node lives in, its programs, and the uid that it runs under."""

import os
import secrets
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

UIDS_EACH = 100  # a lab's nodes take turns in a hundred uids that no other lab has
_FIRST_UID, _HUNDREDS = 20_000, 400

# Ends this node, and nothing else: bash's own sockets, since a lab machine may lack curl.
_END = """#!/bin/bash
{guard}exec 3<>/dev/tcp/127.0.0.1/{port} || exit 1
printf 'POST /lab/end HTTP/1.0\\r\\nContent-Length: 0\\r\\n\\r\\n' >&3
cat <&3 >/dev/null
"""
_SHUTDOWN_GUARD = 'case " $* " in *" -c "*) exit 0;; esac\n'
_SYSTEMCTL_GUARD = (
    'case " $* " in *" poweroff "*|*" halt "*|*" reboot "*) ;; '
    '*) echo "this node has no services" >&2; exit 1;; esac\n'
)

# For nodes that have to run as root: without /run there is no systemd and no bus to ask for the host's shutdown, and
# without CAP_SYS_BOOT no system call for it.
_SHIELD = (
    "unshare",
    "--mount",
    "--",
    "/bin/sh",
    "-c",
    'mount -t tmpfs lab /run && exec setpriv --bounding-set=-sys_boot,-sys_module "$@"',
    "node",
)


@dataclass(frozen=True)
class Root:
    """One node's folder.

    Attributes:
        uid: That owns it and runs in it; None is the lab's own user.
    """

    path: Path
    uid: int | None

    @property
    def home(self) -> Path:
        """``HOME``, and where user-data starts."""
        return self.path / "home"

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """Everything that a process on the node sees of the outside."""
        return {
            "HOME": str(self.home),
            "TMPDIR": str(self.path / "tmp"),
            "BROKER_NODE_HOME": str(self.path / "broker"),
            "PATH": f"{self.path / 'bin'}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            "USER": "node",
            "LOGNAME": "node",
        } | dict(more)

    def furnish(self, user_data: str, port: int, python: str | None = None) -> Path:
        """Folders, programs and the script. Returns the script's path.

        Args:
            port: Of the node's metadata server, which also ends it.
            python: What ``python3`` starts; None is our own interpreter.
        """
        for name in ("home", "tmp", "broker", "bin"):
            self._own(self.path / name, directory=True)
        end = {
            "poweroff": "",
            "halt": "",
            "reboot": "",
            "shutdown": _SHUTDOWN_GUARD,
            "systemctl": _SYSTEMCTL_GUARD,
        }
        for name, guard in end.items():
            self._program(name, _END.format(guard=guard, port=port))
        for name in ("python3", "python"):
            self._program(name, f'#!/bin/sh\nexec {shlex.quote(python or sys.executable)} "$@"\n')
        script = self.path / "user-data"
        script.write_text(user_data if user_data.startswith("#!") else f"#!/bin/bash\n{user_data}")
        self._own(script, directory=False)
        return script

    def _program(self, name: str, text: str) -> None:
        path = self.path / "bin" / name
        path.write_text(text)
        self._own(path, directory=False)

    def _own(self, path: Path, directory: bool) -> None:
        if directory:
            path.mkdir(mode=0o700)
        else:
            path.chmod(0o700)
        if self.uid is not None:
            os.chown(path, self.uid, self.uid)

    def remove(self) -> None:
        """Delete everything, also what its owner has locked against himself."""
        remove_tree(self.path)


class Roots:
    """The parent of all roots: one can go through it, and nobody can list it, so that nodes cannot find each other.

    Attributes:
        isolation: ``uid`` (each node under its own), ``shielded-root`` (all as root, in mount namespaces without the
            host's services) or ``private-root`` (all under the lab's user).
        shield: What a node's command is prefixed with.
    """

    def __init__(self) -> None:
        # Not in the lab's own folder: another uid has to reach it, and a home directory lets none through.
        self.parent = Path(tempfile.mkdtemp(prefix="lab-nodes-"))
        self._claim, self._first_uid = _claim_uids()
        self.parent.chmod(0o711)
        self.isolation = "private-root"
        self.shield: tuple[str, ...] = ()
        if os.geteuid() == 0 and _usable(self._first_uid, self.parent):
            self.isolation = "uid"
        elif os.geteuid() == 0 and _works((*_SHIELD, "/bin/sh", "-c", "test ! -e /run/systemd")):
            self.isolation, self.shield = "shielded-root", _SHIELD
        self.parent.chmod(0o311)

    def make(self, number: int) -> Root:
        """The root of the lab's n-th node."""
        path = self.parent / secrets.token_hex(8)
        path.mkdir(mode=0o700)
        if self.isolation != "uid":
            return Root(path, None)
        uid = self._first_uid + number % UIDS_EACH
        os.chown(path, uid, uid)
        return Root(path, uid)

    def remove(self) -> None:
        """Delete the parent with whatever is left in it."""
        self.parent.chmod(0o700)
        remove_tree(self.parent)
        self._claim.close()


def _claim_uids() -> tuple[socket.socket, int]:
    """The first of a hundred uids, ours until the socket is closed. The end of a node kills all that runs under its uid."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    for hundred in range(_HUNDREDS):
        try:
            # A name of the kernel's own, without a file: it is free again however we end.
            claim.bind(f"\0broker-lab-uids-{hundred}")
        except OSError:
            continue
        return claim, _FIRST_UID + hundred * UIDS_EACH
    raise RuntimeError(f"{_HUNDREDS} labs run on this machine")


def _usable(uid: int, parent: Path) -> bool:
    """Whether that uid can run our interpreter with its packages (some machines keep it in a home of mode 0700), and
    reach the roots."""
    code = "import importlib.util, os, sys; os.stat(sys.argv[1]); sys.exit(importlib.util.find_spec('torch') is None)"
    return _works((sys.executable, "-c", code, f"{parent}/."), uid)


def _works(command: tuple[str, ...], uid: int | None = None) -> bool:
    extra: list[int] | None = None if uid is None else []
    try:
        done = subprocess.run(
            command,
            user=uid,
            group=uid,
            extra_groups=extra,
            cwd="/",
            env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
            capture_output=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def remove_tree(path: Path) -> None:
    """Delete a tree; folders that its owner has locked are unlocked first."""
    for folder, names, _ in os.walk(path):
        for name in names:
            inner = Path(folder, name)
            if not inner.is_symlink() and not os.access(inner, os.R_OK | os.W_OK | os.X_OK):
                inner.chmod(stat.S_IRWXU)
    shutil.rmtree(path, ignore_errors=True)
