"""Sweeps up after a lab that was killed: ``python -m lab.warden RUN_ID PARENT``.

The lab holds the other end of standard input. However the lab dies, that end closes; then every process that carries
its mark is killed and the parent of its roots deleted. After an orderly end there is nothing left to do.
"""

import os
import signal
import sys
from pathlib import Path

from lab import processes
from lab.roots import remove_tree


def main() -> None:
    """Wait for the end of the lab, then sweep."""
    run_id, parent = sys.argv[1], Path(sys.argv[2])
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # what ends the lab must not end the one who sweeps after it
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    processes.end(f"LAB_RUN={run_id}")
    if parent.exists():
        parent.chmod(0o700)
        remove_tree(parent)


if __name__ == "__main__":
    main()
