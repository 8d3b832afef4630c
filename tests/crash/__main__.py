"""``python -m tests.crash [--kills 50] [--seed N]``: kill, judge, and say what came of it; 1 when anything was wrong."""

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lab.demo.reference import Weights, reference_run
from lab.seaweed import SeaweedFS
from tests.crash import judge
from tests.crash.schedule import draw
from tests.crash.storm import SCRIPT, TRAIN, Broken, Storm
from tests.process.lab_and_daemon import ROOT


def main() -> int:
    """Ends by itself; everything it wrote stays in its folder."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kills", type=int, default=50)
    options.add_argument(
        "--seed", type=int, default=None, help="which deaths, and when; drawn when not given"
    )
    options.add_argument("--dir", type=Path, default=ROOT / "build" / "crash")
    chosen = options.parse_args()
    seed = time.time_ns() % 100_000 if chosen.seed is None else chosen.seed
    # However we are ended, nothing of ours may go on; a shell that starts us in the background ignores Ctrl-C for us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    shutil.rmtree(chosen.dir, ignore_errors=True)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    say(f"seed {seed}, {chosen.kills} kills")
    wrong = crash(chosen.dir.resolve(), seed, chosen.kills, say)
    for text in wrong:
        print(f"WRONG  {text}")
    if wrong:
        print(f"again: make crash KILLS={chosen.kills} SEED={seed}; what was written is in {chosen.dir}")
    else:
        say("every job came to its end as if nothing had happened")
    return 1 if wrong else 0


def crash(folder: Path, seed: int, kills: int, say: Callable[[str], None]) -> list[str]:
    """One storm; what was wrong."""
    reference = reference_run(SCRIPT, TRAIN, folder / "reference")
    with SeaweedFS(folder / "store") as store:
        storm = Storm(folder, store, seed, say)
        try:
            storm.begin()
            say(f"{len(storm.counting)} jobs count, one trains")
            for number, kill in enumerate(draw(seed, kills), 1):
                storm.suffer(kill)
                say(f"{number:3}/{kills}  {kill}")
            storm.calm()
            wrong = verdict(storm, reference)
        except Broken as error:
            return [*storm.heads.wrong, str(error)]
        finally:
            storm.close()
    wrong += judge.judge_databases(folder / "deployment" / "state")
    moves = sum(storm.heads.seen.values())
    say(f"daemon started {storm.starts} times; {moves} versions of HEAD seen; killed: {dict(storm.deaths)}")
    return wrong


def verdict(storm: Storm, reference: Weights) -> list[str]:
    """Everything that can be judged while the daemon and the store are up."""
    deployment, jobs = storm.deployment, [*storm.counting, *storm.training]
    wrong = list(storm.heads.wrong)
    lost = {job: state for job in jobs if (state := deployment.job(job)["state"]) != "succeeded"}
    wrong += [f"{job} is {state}: {deployment.job(job)['reason']}" for job, state in lost.items()]
    counting = {job: steps for job, steps in storm.counting.items() if job not in lost}
    wrong += judge.judge_counts(deployment, counting)
    wrong += judge.judge_weights(deployment, [j for j in storm.training if j not in lost], SCRIPT, reference)
    wrong += judge.judge_lines(deployment, jobs)
    wrong += judge.judge_money(deployment, jobs)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
