"""``python -m lab --dir DIR --rate 20 --anchor 2026-11-30T10:00:00Z --scenario FILE``: clouds you can own.

Ready when ``DIR/lab.json`` exists; it holds end points, keys, and the environment that a broker needs. Ends on
SIGTERM, SIGINT or ``POST /shutdown``, with every node.
"""

import argparse
import ctypes
import json
import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from broker.clock import SystemClock
from broker.core.time import from_iso
from lab.catalog import Scenario
from lab.nodes import RUN_MARK
from lab.running import Lab

_PR_SET_PDEATHSIG = 1


def main(make: Callable[..., Lab] = Lab) -> int:
    """Run a lab until it is told to end. `make`: the lab's class."""
    given = parser().parse_args()
    if given.die_with_parent and not _die_with_parent():
        return 1
    folder: Path = given.dir.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lab.json").unlink(missing_ok=True)
    logging.basicConfig(
        filename=folder / "lab.log",
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    scenario = Scenario.of(json.loads(given.scenario.read_text()) if given.scenario else None)
    clock = SystemClock(given.rate, from_iso(given.anchor) if given.anchor else None)
    run_id = os.environ[RUN_MARK] = secrets.token_hex(8)
    lab = make(folder, clock, scenario, ended.set, with_s3=not given.no_s3, run_id=run_id)
    try:
        lab.start()
        while not ended.wait(3600):
            pass
    finally:
        lab.stop()
    return 0


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m lab", description="Simulated clouds with real processes."
    )
    parser.add_argument("--dir", type=Path, required=True, help="folder for everything the lab writes")
    parser.add_argument("--rate", type=float, default=1.0, help="lab seconds per real second")
    parser.add_argument(
        "--anchor", help="real time (RFC 3339) at which the lab's clock agrees with the machine's"
    )
    parser.add_argument(
        "--scenario",
        type=Path,
        help="JSON file: prices, stock, boot_s, pending_s, stop_s, seed, images, filler",
    )
    parser.add_argument("--no-s3", action="store_true", help="start no object store")
    parser.add_argument(
        "--die-with-parent", action="store_true", help="end when the process that started it ends"
    )
    return parser


def _die_with_parent() -> bool:
    """Ask the kernel for SIGTERM at the parent's end; False when it has ended already."""
    parent = os.getppid()
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
        return False
    return os.getppid() == parent


if __name__ == "__main__":
    sys.exit(main())
