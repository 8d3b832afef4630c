"""Programs of others: each in a virtual environment of its own below ``build/``, spoken to line by line.

The client scripts in ``bench/clients`` run there and import nothing of the broker, so that neither side's libraries
weigh on the other's.
"""

import fcntl
import json
import os
import subprocess
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.measure import Skipped, say

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "bench"
CLIENTS = Path(__file__).parent / "clients"

GPUHUNT = "gpuhunt==0.1.34"
SKYPILOT = "skypilot==0.14.1"
DUCKDB = "duckdb==2.0.1"
_INSTALL_TIMEOUT_S = 600


def installed(pin: str) -> Path:
    """The interpreter of the environment that has a package; made on first use.

    Raises:
        Skipped: pip cannot install it.
    """
    folder = BUILD / pin.replace("==", "-")
    python, ready = folder / "bin" / "python", folder / "ready"
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests may want the same one at the same time
        if not ready.exists():
            say(f"installing {pin} below {folder.relative_to(ROOT)}")
            venv.create(folder, with_pip=True, clear=True)
            command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", pin]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S)
            if done.returncode:
                raise Skipped(f"pip cannot install {pin} here: {done.stderr.strip().splitlines()[-1]}")
            ready.touch()
    return python


class Outside:
    """A running client script.

    Args:
        pin: The package it needs.
        script: Name of a file in ``bench/clients``.
        env: Added to its environment.

    Raises:
        Skipped: pip cannot install it.
    """

    def __init__(self, pin: str, script: str, env: Mapping[str, str] | None = None) -> None:
        self.name = pin.replace("==", " ")
        python = installed(pin)
        self._log_path = BUILD / f"{script}.log"
        self._log = self._log_path.open("wb")
        self._process = subprocess.Popen(
            [python, CLIENTS / script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=os.environ | (env or {}),
        )

    def ask(self, action: str, **arguments: Any) -> Any:
        """Have it do something.

        Raises:
            RuntimeError: it failed; its own words are in the log.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": action, "with": arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": "it ended"}
        if "error" in answer:
            raise RuntimeError(f"{self.name}, {action}: {answer['error']}; see {self._log_path}")
        return answer["answer"]

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    def __enter__(self) -> "Outside":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
