"""`make sim`, `make sim-replay`, `make mutants`.

python -m tests.sim run --seeds 200 [--start 0] [--hours 1] [--mutant NAME] [--workers 2]
python -m tests.sim replay --seed 17 [--hours 1] [--mutant NAME] [--without a,b]
python -m tests.sim mutants [--seeds 40]
"""

import argparse
import multiprocessing
import subprocess
import sys
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from broker.core.yaml_text import did_you_mean
from tests.sim.faults import Kind
from tests.sim.mutants import MUTANTS
from tests.sim.pool import hunts, results
from tests.sim.reached import REQUIRED, missing
from tests.sim.run import Result, run_seed
from tests.sim.settings import Settings
from tests.sim.shrink import shrink

LINES_SHOWN = 60
TELL_EVERY_S = 30
# A run of at least so many seeds must have seen every kind and every rare state.
WHOLE_RUN = 200
EACH_KIND = 20


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="many seeds")
    run.add_argument("--seeds", type=int, default=WHOLE_RUN)
    run.add_argument("--start", type=int, default=0)
    run.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    replay = commands.add_parser("replay", help="one seed, line by line")
    replay.add_argument("--seed", type=int, nargs="?")
    replay.add_argument("--without", default="", help="kinds to leave out, with commas")
    for each in (run, replay):
        each.add_argument("--hours", type=float, default=1.0)
        each.add_argument("--mutant", type=_mutant, metavar="NAME")
    mutants = commands.add_parser("mutants", help="every mutant must be caught")
    mutants.add_argument("--seeds", type=int, default=60)
    mutants.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    mutants.add_argument("--only", type=_mutant, metavar="NAME")
    options = parser.parse_args()
    if options.command == "run":
        return _run(options)
    if options.command == "replay":
        if options.seed is None:
            parser.error("which seed? SEED=17 is needed: make sim-replay SEED=17 (or --seed 17)")
        return _replay(options)
    return _mutants(options)


def _mutant(name: str) -> str:
    """A mutant's name, or a word on what was meant."""
    if name in MUTANTS:
        return name
    hint = did_you_mean(name, MUTANTS) or f"they are {', '.join(sorted(MUTANTS))}"
    raise argparse.ArgumentTypeError(f"there is no mutant {name}; {hint}")


def _settings(options: argparse.Namespace, seed: int) -> Settings:
    return (
        MUTANTS[options.mutant].settings(seed, options.hours)
        if options.mutant
        else Settings(seed, options.hours)
    )


def _run(options: argparse.Namespace) -> int:
    seeds = range(options.start, options.start + options.seeds)
    counts: Counter[Kind] = Counter()
    reached: Counter[str] = Counter()
    began_s, simulated_s, done, failed = time.monotonic(), 0.0, 0, None
    told_s = began_s
    for result in results([(_settings(options, seed), options.mutant) for seed in seeds], options.workers):
        counts += result.counts
        reached += result.sometimes
        simulated_s += result.simulated_s
        done += 1
        now_s = time.monotonic()
        if sys.stderr.isatty() or done % 20 == 0 or now_s - told_s >= TELL_EVERY_S:
            told_s = now_s
            print(
                f"{done}/{len(seeds)} seeds, {simulated_s / 3600:.0f} simulated hours, {now_s - began_s:.0f} s",
                file=sys.stderr,
                flush=True,
            )
        if not result.ok:
            failed = result
            break
    took_s = time.monotonic() - began_s
    if failed is not None:
        _report(failed, options)
        return 1
    _tell(counts, reached, done, simulated_s, took_s)
    wrong = missing(counts, reached, EACH_KIND) if done >= WHOLE_RUN else []
    for line in wrong:
        print(f"NOT REACHED: {line}")
    return 1 if wrong else 0


def _tell(counts: Counter[Kind], reached: Counter[str], done: int, simulated_s: float, took_s: float) -> None:
    print("\nfaults that struck")
    for kind in Kind:
        print(f"  {counts[kind]:7} {kind}")
    print("\nsometimes: rare states, and how often they were reached (a run of 200 seeds must see each)")
    for name in sorted({*REQUIRED, *reached}):
        print(f"  {reached[name]:7} {name}")
    hours = simulated_s / 3600
    faults, crashes = sum(counts.values()), counts[Kind.CRASH] + counts[Kind.POWER] + counts[Kind.LONG_DOWN]
    print(
        f"\n{done} seeds, {hours:.0f} simulated hours, {faults} faults ({faults / hours:.0f} an hour), "
        f"{crashes} crashes ({crashes / hours:.1f} an hour), in {took_s:.0f} s: "
        f"{60 * done / took_s:.0f} seeds a minute, {simulated_s / took_s:.0f} times real time; no violation at {_commit()}"
    )


def _report(failed: Result, options: argparse.Namespace) -> None:
    print(
        f"\nFAILED: seed {failed.seed} at {_commit()}\n  {failed.text}\n\nmaking it smaller ...", flush=True
    )
    with MUTANTS[options.mutant].applied() if options.mutant else nullcontext():
        small = shrink(failed, lambda text: print(f"  {text}", flush=True))
    print(f"\n  {small.result.text}\n  faults needed: {', '.join(sorted(small.kinds)) or 'none'}\n")
    print(small.result.cause)
    print("\n".join(small.result.lines[-LINES_SHOWN:]))
    without = ",".join(sorted(small.result.settings.without))
    more = f" MUTANT={options.mutant}" if options.mutant else ""
    print(
        f"\nmake sim-replay SEED={failed.seed} HOURS={small.result.settings.hours:.3f}{more} WITHOUT={without}"
    )


def _replay(options: argparse.Namespace) -> int:
    without = frozenset(Kind(name) for name in options.without.split(",") if name)
    with MUTANTS[options.mutant].applied() if options.mutant else nullcontext():
        result = run_seed(replace(_settings(options, options.seed), without=without), echo=True)
    print(f"\nseed {options.seed} at {_commit()}, history {result.sha256}")
    print(result.cause or "no violation")
    print(_ending(result))
    return 0 if result.ok else 1


def _ending(result: Result) -> str:
    """What the last lines mean: jobs still train at the end of a seed that is well, too."""
    if not any(line.split()[1:] == ["calm"] for line in result.lines):
        return "calm was not run: the seed stopped among the faults"
    if result.ok:
        return "calm was run and all came to rest; jobs may train on, the seed stops at `the end`"
    return "calm had begun, and not everything came to rest"


def _mutants(options: argparse.Namespace) -> int:
    began_s = time.monotonic()
    tried = [name for name in MUTANTS if options.only in (None, name)]
    survivors = []
    for found in hunts(tried, options.seeds, options.workers):
        if found.caught is None:
            survivors.append(found.name)
            print(f"{found.name:22} SURVIVED {found.tried} seeds, {found.took_s:.0f} s", flush=True)
        else:
            seed, text = found.caught.seed, found.caught.text[:110]
            print(f"{found.name:22} seed {seed:4}, {found.took_s:5.1f} s: {text}", flush=True)
    print(
        f"{len(survivors)} of {len(tried)} mutants survived, {time.monotonic() - began_s:.0f} s"
        + (f": {', '.join(survivors)}" if survivors else "")
    )
    return 1 if survivors else 0


def _commit() -> str:
    said = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return f"commit {said.stdout.strip() or 'unknown'}"


if __name__ == "__main__":
    sys.exit(main())
