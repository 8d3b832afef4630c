"""Where the CLI's login lies: URL, token and CA in the user's configuration folder, for its owner alone.

``$BROKER_URL``, ``$BROKER_TOKEN`` and ``$BROKER_CA`` (a file) outrank it, for scripts.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from broker.core.errors import AuthError

NO_LOGIN = "not logged in: run `broker login URL`, or set BROKER_URL and BROKER_TOKEN"


@dataclass(frozen=True)
class Login:
    """How to reach a daemon.

    Attributes:
        url: Its public URL.
        token: Ours.
        ca: CA to trust (PEM file), or None for the system's.
    """

    url: str
    token: str
    ca: Path | None = None


def login_file() -> Path:
    """``$XDG_CONFIG_HOME/broker/login.json``."""
    import platformdirs

    return platformdirs.user_config_path("broker") / "login.json"


def save_login(url: str, token: str, ca_pem: str) -> Path:
    """Keep a login; the CA is copied, so that it works after the daemon's folder has moved."""
    file = login_file()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    document = {"url": url, "token": token}
    if ca_pem:
        ca = file.with_name("ca.pem")
        _write(ca, ca_pem)
        document["ca"] = str(ca)
    _write(file, json.dumps(document, indent=2) + "\n")
    return file


def load_login() -> Login:
    """The login to use now.

    Raises:
        AuthError: there is none.
    """
    file = login_file()
    saved = json.loads(file.read_text()) if file.exists() else {}
    url = os.environ.get("BROKER_URL") or saved.get("url")
    token = os.environ.get("BROKER_TOKEN") or saved.get("token")
    ca = os.environ.get("BROKER_CA") or saved.get("ca")
    if not url or not token:
        raise AuthError(NO_LOGIN)
    return Login(url.rstrip("/"), token, Path(ca) if ca else None)


def _write(file: Path, text: str) -> None:
    partial = file.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
    partial.replace(file)
