"""Counts, and hashes what it counted: a job of the smallest kind. Its end depends on every step, and on nothing else.

    python3 count.py --steps 40 --pace 0.05 --save-every 20 [--deaf] [--hurry-when FILE]

A checkpoint is a zip like those of `torch.save`. Saved more than once a second they may be gone before the agent has
looked at them twice. `--deaf` leaves SIGTERM alone, as most trainers do. With `--hurry-when` it takes its time until that
file is there.
"""

import argparse
import hashlib
import json
import os
import signal
import time
import zipfile
from pathlib import Path

asked = False


def ask_to_stop(*_: object) -> None:
    """SIGTERM: finish the step, save, leave."""
    global asked
    asked = True


def save(folder: Path, step: int, chain: str) -> None:
    """Write beside, then rename."""
    beside = folder / f".step-{step:06d}.tmp"
    with zipfile.ZipFile(beside, "w") as archive:
        archive.writestr("state.json", json.dumps({"step": step, "chain": chain}))
    os.replace(beside, folder / f"step-{step:06d}.pt")
    for old in sorted(folder.glob("step-*.pt"))[:-3]:
        old.unlink()


def main() -> None:
    """Count from the checkpoint, or from nothing."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--pace", type=float, default=0.05)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--deaf", action="store_true")
    parser.add_argument("--hurry-when", type=Path)
    options = parser.parse_args()
    if not options.deaf:
        signal.signal(signal.SIGTERM, ask_to_stop)
    folder = Path(os.environ["BROKER_CHECKPOINT_DIR"])
    folder.mkdir(parents=True, exist_ok=True)
    step, chain = 0, ""
    if resume := os.environ["BROKER_RESUME_FROM"]:
        state = json.loads(zipfile.ZipFile(resume).read("state.json"))
        step, chain = state["step"], state["chain"]
    print(f"starting at step {step}", flush=True)
    while step < options.steps and not asked:
        if options.hurry_when is None or not options.hurry_when.exists():
            time.sleep(options.pace)
        step += 1
        chain = hashlib.sha256(f"{chain}{step}".encode()).hexdigest()
        with open(os.environ["BROKER_METRICS"], "a") as lines:
            lines.write(json.dumps({"step": step, "total_steps": options.steps, "loss": 1 / step}) + "\n")
        if step % options.save_every == 0 or step == options.steps or asked:
            save(folder, step, chain)
    print(f"leaving at step {step} with {chain[:16]}", flush=True)
    if step < options.steps:
        raise SystemExit(143)


if __name__ == "__main__":
    main()
