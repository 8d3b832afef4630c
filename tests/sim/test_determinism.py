"""The same seed and commit give the same history, byte for byte, in any process."""

import os
import subprocess
import sys
from pathlib import Path

from tests.sim.run import run_seed
from tests.sim.settings import Settings

ROOT = Path(__file__).parents[2]
HOURS = 0.15


def history(seed: int, hash_seed: str, allocator: str) -> bytes:
    command = [sys.executable, "-m", "tests.sim", "replay", "--seed", str(seed), "--hours", str(HOURS)]
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONMALLOC": allocator}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=True, timeout=100).stdout


def test_two_processes_with_different_hashes_and_addresses_tell_the_same_history():
    first, second = history(2, "1", "pymalloc"), history(2, "2", "malloc")
    assert first == second
    assert b"history" in first


def test_another_seed_is_another_history():
    assert run_seed(Settings(2, 0.05)).sha256 != run_seed(Settings(3, 0.05)).sha256
