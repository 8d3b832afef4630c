"""The uninterrupted run of the job, and digests of weights. torch is imported in children only."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# Reads train.py's own digest, so that both sides hash the same way.
_DIGEST = """
import runpy, sys, torch
train = runpy.run_path(sys.argv[1])
model = train["Model"]()
state = torch.load(sys.argv[2], weights_only=True)
model.load_state_dict(state["model"])
print(state["step"], train["digest"](model))
"""


@dataclass(frozen=True)
class Weights:
    """A checkpoint's step and the SHA-256 of its weights."""

    step: int
    sha256: str


def digest(script: Path, checkpoint: Path) -> Weights:
    """Weights of a checkpoint that `script` wrote."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _DIGEST, str(script), str(checkpoint)],
        check=True, capture_output=True, text=True, env=_one_thread(),
    )  # fmt: skip
    step, sha256 = done.stdout.split()
    return Weights(int(step), sha256)


def reference_run(script: Path, arguments: list[str], folder: Path) -> Weights:
    """Train from nothing to the end without an interruption, as fast as this machine can.

    Raises:
        RuntimeError: the script failed; the text holds its last lines.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), *arguments, "--checkpoints", str(folder / "checkpoints")],
        capture_output=True, text=True, env=_one_thread(), cwd=folder,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the reference run failed:\n{done.stderr[-2000:]}")
    weights = digest(script, max((folder / "checkpoints").glob("step-*.pt")))
    (folder / "weights.json").write_text(json.dumps({"step": weights.step, "sha256": weights.sha256}))
    return weights


def _one_thread() -> dict[str, str]:
    dropped = ("BROKER_CHECKPOINT_DIR", "BROKER_RESUME_FROM", "BROKER_METRICS", "STEP_SECONDS")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "OMP_NUM_THREADS": "1"}
