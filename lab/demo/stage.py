"""The processes of a rehearsal: the lab, the daemon, and the commands a person types. All end with this one."""

import contextlib
import ctypes
import fcntl
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from broker.core.time import to_iso
from lab.broker_config import broker_environment, broker_toml, free_port
from lab.control import LabClient
from lab.demo.play import Play

RATE = 20
COLUMNS = 120
ROOT = Path(__file__).resolve().parents[2]
_PR_SET_PDEATHSIG = 1


class DemoFailed(Exception):
    """The rehearsal did not go as it must; the text says what is wrong."""


def die_with_parent() -> None:
    """In a child: SIGTERM when the rehearsal dies, however it dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass(frozen=True)
class Command:
    """A command that a person typed, and what it answered."""

    line: str
    output: str


class Stage:
    """One folder, one lab, one daemon.

    Attributes:
        folder: Everything the rehearsal writes.
        env: Environment of the person's shell: a login of their own.
    """

    def __init__(self, folder: Path, play: Play) -> None:
        self.folder = folder
        self.play = play
        # The anchor is on whole seconds in the past, so that both clocks agree from the first moment.
        self.anchor = to_iso(int(time.time()) * 1000)
        self.env = {
            **os.environ,
            "XDG_CONFIG_HOME": str(folder / "home"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "NO_COLOR": "1",
            "COLUMNS": str(COLUMNS),
        }
        for name in ("BROKER_URL", "BROKER_TOKEN", "BROKER_CA", "BROKER_CONFIG"):
            self.env.pop(name, None)
        self.children: list[tuple[str, subprocess.Popen[bytes]]] = []

    @contextlib.contextmanager
    def running(self) -> Iterator["Stage"]:
        """Start the lab, then the daemon; end both, last first, whatever happens."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        try:
            self._start_lab()
            self.start_daemon()
            yield self
        finally:
            for _, child in reversed(self.children):
                _end(child)

    def _start_lab(self) -> None:
        scenario = self.folder / "scenario.json"
        prices = {key: f"{usd:.6f}" for key, usd in self.play.prices_usd_h.items()}
        scenario.write_text(
            json.dumps(
                {
                    "prices": prices,
                    "stock": self.play.stock,
                    "boot_s": {"aws": 20, "gcp": 20},
                    "pending_s": 1,
                    "seed": self.play.seed + 1,
                }
            )
        )
        folder = self.folder / "lab"
        self._spawn(
            "lab",
            [sys.executable, "-m", "lab", "--dir", str(folder), "--rate", str(RATE), "--anchor", self.anchor,
             "--scenario", str(scenario), "--die-with-parent"],
            dict(os.environ),
        )  # fmt: skip
        self._until("the lab is up", lambda: (folder / "lab.json").exists(), 40)
        self.lab = LabClient.open(folder)

    def start_daemon(self) -> subprocess.Popen[bytes]:
        """`broker serve` against the lab: the same program, other endpoints and credentials."""
        self.config = self.folder / "broker.toml"
        if not self.config.exists():
            self.config.write_text(broker_toml(self.lab.info, self.folder / "state", free_port()))
        child = self._spawn(
            "broker", [str(Path(sys.executable).parent / "broker"), "serve", "--config", str(self.config)],
            {**self.env, **broker_environment(self.lab.info)},
        )  # fmt: skip
        state = self.folder / "state"
        self._until("the daemon is up", lambda: (state / "daemon.json").exists() and self._ready(state), 40)
        return child

    def _ready(self, state: Path) -> bool:
        where = json.loads((state / "daemon.json").read_text())
        token = (state / "operator.token").read_text().strip()
        self.api = httpx.Client(
            base_url=f"{where['url']}/api/v1", headers={"Authorization": f"Bearer {token}"}, verify=where["ca"],
            timeout=10, trust_env=False,
        )  # fmt: skip
        with contextlib.suppress(httpx.HTTPError):
            return self.api.get(f"{where['url']}/readyz").status_code == 200 and len(self.prices()) > 3
        return False

    def get(self, path: str, **query: Any) -> Any:
        """One read of the daemon's API."""
        answer = self.api.get(path, params=query)
        answer.raise_for_status()
        return answer.json()

    def prices(self) -> list[dict[str, Any]]:
        """Quotes for one H100."""
        return list(self.get("/prices", gpu="H100", count=1)["items"])

    def type(self, *words: str) -> Command:
        """Run a command as a person would.

        Raises:
            DemoFailed: it ended with an error.
        """
        code, output = _on_a_terminal(["broker", *words], self.env)
        if code:
            raise DemoFailed(f"broker {' '.join(words)} ended with {code}:\n{output}")
        return Command("broker " + " ".join(words), output.strip())

    def _spawn(self, name: str, command: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=ROOT,
                # Ctrl-C in the terminal is ours to handle: children end in order, not all at once.
                start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip
        self.children.append((name, child))
        return child

    def _until(self, what: str, holds: Callable[[], bool], limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while not holds():
            for name, child in self.children:
                if child.poll() is not None:
                    raise DemoFailed(f"waiting until {what}: {name} has ended\n{self.tail(name)}")
            if time.monotonic() > deadline:
                raise DemoFailed(f"not true after {limit_s:.0f} s: {what}\n{self.tail('broker')}")
            time.sleep(0.05)

    def tail(self, name: str) -> str:
        """The last lines of a log."""
        file = self.folder / f"{name}.log"
        return "\n".join(file.read_text(errors="replace").splitlines()[-15:]) if file.exists() else ""


def _on_a_terminal(command: list[str], env: dict[str, str]) -> tuple[int, str]:
    """Run a command as if typed: on a terminal it prints tables, elsewhere tab-separated values."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=env, cwd=ROOT
    )
    os.close(theirs)
    seen = bytearray()
    try:
        while piece := os.read(ours, 65536):
            seen += piece
    except OSError:
        pass  # the other end is closed: that is how a terminal says end of file
    finally:
        os.close(ours)
    return child.wait(60), seen.decode(errors="replace").replace("\r\n", "\n")


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(15)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(5)
