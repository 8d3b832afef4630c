"""Stages inside a probe's child: each writes a line when it starts and one with its facts when it ends, at once,
so that a child that hangs or dies still leaves what it found and where it was."""

import json
import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, Mapping

# A stage that this names hangs for ever. Only honoured on a CPU run: no real node's verdict hinges on it.
HANG_VARIABLE = "BROKER_PROBE_HANG_IN"
WRONG_VARIABLE = "BROKER_PROBE_WRONG_IN"


class Stages:
    """Runs stages and records them.

    Args:
        events: File to append to.
        faults: Environment that may ask for a hang; empty on a GPU.
    """

    def __init__(self, events: Path, faults: Mapping[str, str]) -> None:
        self._file = os.open(events, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._faults = faults

    def run(self, name: str, stage: Callable[[], Dict[str, Any]]) -> bool:
        """Run one stage; its error is a fact too. Returns whether it raised nothing."""
        self._write({"stage": name, "event": "start"})
        start_s = time.monotonic()
        if self._faults.get(HANG_VARIABLE) == name:
            while True:
                time.sleep(3600)
        try:
            facts, fine = stage(), True
        except Exception as error:  # noqa: BLE001  whatever torch or a driver raises is this stage's finding
            facts, fine = {"error": f"{type(error).__name__}: {error}"[:2000]}, False
        facts["wall_s"] = round(time.monotonic() - start_s, 3)
        self._write({"stage": name, "event": "end", "facts": facts})
        return fine

    def wrong(self, name: str) -> bool:
        """Whether this stage shall compute wrongly, to prove that it would be seen."""
        return self._faults.get(WRONG_VARIABLE) == name

    def _write(self, event: Dict[str, Any]) -> None:
        os.write(self._file, json.dumps(event).encode() + b"\n")
