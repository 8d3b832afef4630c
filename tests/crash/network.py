"""A network of one's own, and cables that can be cut: as root, with `ip`.

A lab's servers listen on 127.0.0.1 and each of its nodes has a uid, so a cut is a routing rule for that uid. It would do
harm in the machine's own network; so everything runs in a namespace that has nothing but a loopback.
"""

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator

_CLONE_NEWNET = 0x4000_0000
_MOVE_LOCAL = (("add", "pref", "1", "lookup", "local"), ("del", "pref", "0"))


def unusable() -> str:
    """Why there can be no such network here; empty when there can."""
    if os.geteuid() != 0:
        return "needs root: a network namespace, and nodes with uids of their own"
    if shutil.which("ip", path=_PATH) is None or shutil.which("unshare") is None:
        return "needs ip (Debian: iproute2) and unshare"
    rules = " && ".join(f"ip rule {' '.join(words)}" for words in (*_MOVE_LOCAL, ("add", *_rule(1, 1))))
    tried = subprocess.run(
        ["unshare", "--net", "sh", "-c", f"ip link set lo up && {rules}"],
        capture_output=True,
        text=True,
        env={"PATH": _PATH},
        check=False,
    )
    return f"no rule for a uid's packets: {tried.stderr.strip()}" if tried.returncode else ""


@contextlib.contextmanager
def own_network() -> Iterator[None]:
    """This thread, and whatever it starts meanwhile, with nothing but a loopback."""
    with open("/proc/thread-self/ns/net") as before:
        _system_call("unshare", _CLONE_NEWNET)
        try:
            _ip("link", "set", "lo", "up")
            for words in _MOVE_LOCAL:  # rules of ours must come before the one that finds 127.0.0.1
                _ip("rule", *words)
            yield
        finally:
            _system_call("setns", before.fileno(), _CLONE_NEWNET)


@contextlib.contextmanager
def cut(uid: int, *ports: int) -> Iterator[None]:
    """What a uid sends to these ports is lost, on new connections and on those it has."""
    for port in ports:
        _ip("rule", "add", *_rule(uid, port))
    try:
        yield
    finally:
        for port in ports:
            _ip("rule", "del", *_rule(uid, port))


_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def _rule(uid: int, port: int) -> tuple[str, ...]:
    return ("pref", "0", "uidrange", f"{uid}-{uid}", "ipproto", "tcp", "dport", str(port), "blackhole")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, env={"PATH": _PATH}, capture_output=True)


def _system_call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
