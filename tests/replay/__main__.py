"""Replays of real price histories through the market and the decisions, as tables.

python -m tests.replay ../shared/data/prices [--only azure,aws]
"""

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

import structlog

from tests.replay.measuring import HISTORIES, folder_of_histories, lines, measure
from tests.replay.running import believe_everything


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.replay", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("folder", type=Path, nargs="?", help="with anycloud-catalog/ and aws/ in it")
    parser.add_argument("--only", default="", help="some of them, with commas")
    options = parser.parse_args()
    folder = options.folder or folder_of_histories()
    if folder is None or not folder.is_dir():
        parser.error(
            "where are the price histories? Name the folder that has anycloud-catalog/ and aws/ in it"
        )
    # Ten thousand doubts are no news here.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    failed = False
    for history in HISTORIES:
        if options.only and history.name not in options.only.split(","):
            continue
        if not (folder / history.needs).exists():
            print(f"{history.name}: there is no {folder / history.needs}\n")
            continue
        recording = history.read(folder)
        began_s = time.process_time()
        with tempfile.TemporaryDirectory() as databases:
            figures = measure(recording, history.wanted, Path(databases))
        took_s = time.process_time() - began_s
        with tempfile.TemporaryDirectory() as databases:
            doubtless = measure(recording, history.wanted, Path(databases), believe_everything)
        rows = [
            *lines(figures),
            (
                "moves, if every reading were believed",
                f"{len(doubtless.outcome.moves)}, {len(doubtless.on_false)} from them",
            ),
            ("CPU seconds", f"{took_s:.0f}"),
        ]
        print(f"| {history.name} | |\n|---|---|")
        print("\n".join(f"| {name} | {value} |" for name, value in rows), end="\n\n", flush=True)
        failed |= bool(figures.late or figures.on_false)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
