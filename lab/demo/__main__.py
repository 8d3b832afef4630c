"""``python -m lab.demo [--seed N]``: play the main job on the lab, judge it, and say what it cost."""

import argparse
import signal
import sys
import time
from pathlib import Path

from rich.console import Console

from lab.demo import checker
from lab.demo.director import Director
from lab.demo.play import play
from lab.demo.reference import reference_run
from lab.demo.screen import Screen, last_screen
from lab.demo.stage import ROOT, DemoFailed, Stage
from lab.demo.timeline import draw

SCRIPT = ROOT / "docs" / "examples" / "train.py"
ARGUMENTS = ["--steps", "380", "--save-every", "20"]


def main() -> int:
    """Play one rehearsal; 0 when everything that it must show held."""
    options = argparse.ArgumentParser(description="Rehearse the main job on clouds of your own.")
    options.add_argument(
        "--seed", type=int, default=0, help="varies prices, stock and moments; 0 is the README's"
    )
    options.add_argument(
        "--dir", type=Path, default=ROOT / "build" / "demo", help="where everything is written"
    )
    chosen = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # A shell that starts us in the background lets us ignore Ctrl-C; our children must be ended all the same.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    console = Console(width=None if sys.stdout.isatty() else 140)
    chosen.dir.mkdir(parents=True, exist_ok=True)
    try:
        return rehearse(console, chosen.seed, chosen.dir.resolve())
    except DemoFailed as error:
        console.print(f"\nthe rehearsal failed: {error}", style="bold red", highlight=False, markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("\nstopped; nothing is left running")
        return 130


def rehearse(console: Console, seed: int, folder: Path) -> int:
    """Reference run, play, judgement."""
    console.print("training the job once without interruptions, for the comparison …", highlight=False)
    reference = reference_run(SCRIPT, ARGUMENTS, folder / "reference")
    console.print(f"reference weights {reference.sha256[:16]}… after {reference.step} steps", highlight=False)
    plot = play(seed)
    began = time.monotonic()
    stage = Stage(folder / "run", plot)
    with stage.running():
        with Screen(console, f"rehearsal, seed {seed}") as screen:
            story = Director(stage, plot, screen.show).run()
        wall_s = time.monotonic() - began
        found = checker.report(stage, story, SCRIPT, reference, wall_s)
    (folder / "timeline.svg").write_text(draw(found))
    last_screen(console, found)
    file = checker.write(found, folder)
    console.print(f"report: {file.relative_to(ROOT) if file.is_relative_to(ROOT) else file}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
