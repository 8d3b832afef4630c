"""Tries to read what other nodes on this machine have, and says what came of it."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path


def outcome(attempt: Callable[[], object]) -> str:
    """How an attempt ends."""
    try:
        return f"read {attempt()!r:.60}"
    except OSError as error:
        return type(error).__name__


def whose(process: Path) -> "int | None":
    """The uid of a process; None when it has ended."""
    try:
        return process.stat().st_uid
    except OSError:
        return None


def main() -> None:
    """``look_around.py THEIR_WORK``."""
    theirs = Path(sys.argv[1])
    root = Path(os.environ["HOME"]).parent
    others = [entry for entry in Path("/proc").glob("[0-9]*") if whose(entry) not in (None, 0, os.getuid())]
    assert others, "another node is running"
    found = {
        "others": outcome(lambda: os.listdir(root.parent)),
        "their work": outcome(lambda: os.listdir(theirs / "checkpoints")),
        "their memory": outcome(lambda: Path(others[0], "environ").read_bytes()),
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
