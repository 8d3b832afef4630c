"""What the daemon leaves in its state folder for the CLI on the same machine.

daemon.json      {url, ca, pid} of the daemon that runs; removed when it ends
operator.token   a token with the role operator, made at the first start, for its owner's eyes only
"""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from broker.core.ports import Ids
from broker.serve.auth import new_token, token_sha256
from broker.store.access import DEFAULT_PROJECT, Role
from broker.store.state import StateStore

DAEMON_FILE = "daemon.json"
TOKEN_FILE = "operator.token"
_FIRST_TOKEN = "first-operator"


@dataclass(frozen=True)
class LocalDaemon:
    """A daemon of this machine.

    Attributes:
        url: Where it listens.
        ca: CA to trust (PEM file), or None for the system's.
        pid: Its process.
    """

    url: str
    ca: str | None
    pid: int


def announce(state_dir: Path, url: str, ca: Path | None) -> None:
    """Say where we listen."""
    document = {"url": url, "ca": str(ca) if ca else None, "pid": os.getpid()}
    _write(state_dir / DAEMON_FILE, json.dumps(document) + "\n")


def withdraw(state_dir: Path) -> None:
    """We listen no more."""
    (state_dir / DAEMON_FILE).unlink(missing_ok=True)


def find_daemon(state_dir: Path) -> LocalDaemon | None:
    """The daemon that announced itself and whose process lives; a file left by a crash counts for nothing."""
    try:
        document = json.loads((state_dir / DAEMON_FILE).read_text())
        daemon = LocalDaemon(document["url"], document["ca"], int(document["pid"]))
        os.kill(daemon.pid, 0)
    except PermissionError:
        return daemon  # alive, and somebody else's
    except (OSError, ValueError, KeyError):
        return None
    return daemon


def ensure_operator_token(state_dir: Path, store: StateStore, ids: Ids) -> Path:
    """The token file of the first operator; made once. Revoked or deleted, it is not made again.

    The row is written first: a crash in between leaves a token that nobody knows, and `broker token create` works
    without a daemon.
    """
    file = state_dir / TOKEN_FILE
    with store.read() as tx:
        known = any(token.name == _FIRST_TOKEN for token in tx.tokens())
    if not known:
        secret = new_token(ids)
        with store.write() as tx:
            tx.add_token(_FIRST_TOKEN, Role.OPERATOR, DEFAULT_PROJECT, token_sha256(secret), "broker")
        _write(file, secret + "\n")
    return file


def read_operator_token(state_dir: Path) -> str | None:
    """The first operator's token, where we may read it."""
    with suppress(OSError):
        return (state_dir / TOKEN_FILE).read_text().strip() or None
    return None


def _write(file: Path, text: str) -> None:
    partial = file.with_name(f".{file.name}.partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
    partial.replace(file)
