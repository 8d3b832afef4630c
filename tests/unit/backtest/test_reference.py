"""Against the scorer of the benchmark and its reference values, which share no code with this: both lie outside the project.

The scorer runs as a process of its own. It needs numba, and its folder: `BENCHMARK`, or where it lies beside ours.
"""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from broker.cli.app import main

ROOT = Path(__file__).parents[3]
SHARED = Path(os.environ.get("BENCHMARK", ROOT.parent / "shared"))
TRACES, SCORER = SHARED / "data/spot_traces", SHARED / "bench/score.py"
NAMES = ("on_demand", "spot_else_on_demand", "eager", "uniform_progress")

pytestmark = [
    pytest.mark.skipif(not SCORER.exists(), reason="the benchmark's scorer and traces are not here"),
    pytest.mark.skipif(find_spec("numba") is None, reason="the benchmark's scorer needs numba"),
]


@dataclass(frozen=True)
class Row:
    """A row of the benchmark.

    Attributes:
        deadline: Hours.
        options: Ours; the scorer's follow.
        beside: An on-demand place that is put beside the trace.
    """

    trace: str
    deadline: int
    options: dict[str, str] = field(default_factory=dict)
    beside: str = ""

    def folder(self, made: Path) -> Path:
        """The trace, or one that the benchmark makes of it."""
        if not self.beside:
            return TRACES / self.trace
        if not (made / self.trace).exists():
            compose = [
                sys.executable,
                str(SHARED / "bench/compose.py"),
                str(TRACES / self.trace),
                str(made / self.trace),
            ]
            subprocess.run([*compose, "--add-ondemand", self.beside], check=True, timeout=60)
        return made / self.trace

    def ours(self, trace: Path, *more: str) -> list[str]:
        words = [f"--{name}={value}" for name, value in self.options.items()]
        return [
            "policy",
            "backtest",
            "--grid",
            f"--trace={trace}",
            f"--deadline={self.deadline}h",
            *words,
            *more,
        ]

    def theirs(self, trace: Path, log: Path) -> list[str]:
        renamed = {"startup": "startup-min", "startup-cross": "startup-cross-min"}
        words = [
            f"--{renamed.get(name, name)}={value.removesuffix('m')}" for name, value in self.options.items()
        ]
        return [str(trace), f"--deadline-h={self.deadline}", *words, f"--log={log}"]


H100 = {"gang": "16", "startup": "10m", "startup-cross": "10m", "checkpoint-gib": "500"}
V100X4 = {"gang": "4", "startup": "10m", "startup-cross": "5m", "checkpoint-gib": "200"}
ROWS = {
    "V100 1.1": Row("aws_v100x1_2023q1", 44),
    "V100 1.25": Row("aws_v100x1_2023q1", 50),
    "V100 1.5": Row("aws_v100x1_2023q1", 60),
    "V100 2.0": Row("aws_v100x1_2023q1", 80),
    "H100x16 1.25": Row("gcp_h100x16_2025q4", 50, H100),
    "H100x16 1.5": Row("gcp_h100x16_2025q4", 60, H100),
    "H100x16 2.0": Row("gcp_h100x16_2025q4", 80, H100),
    "V100 shock 1.5": Row("aws_v100x1_2023q1", 60, {"shock": "1.9@10"}),
    "two clouds 1.5": Row("gcp_h100x16_2025q4", 60, H100, "neo/us-neo-1/h100=2.99"),
    "V100x4 gang4 1.5": Row("aws_v100x4node_2023q3", 60, V100X4),
}


def scorer(calls: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """The scorer's answers, from one process, which compiles its optimum once."""
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); import score; "
        "calls = json.load(sys.stdin); "
        "print(json.dumps([score.score(score.parser().parse_args(call)) for call in calls]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(SCORER.parent)],
        input=json.dumps([list(call) for call in calls]),
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def reference(row: str, policy: str) -> float:
    with open(SHARED / "bench/reference_dev.csv", newline="") as file:
        return next(
            float(line["ratio"])
            for line in csv.DictReader(file)
            if (line["row"], line["policy"]) == (row, policy)
        )


def backtest(capsys: pytest.CaptureFixture[str], words: list[str]) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def compare(asked: Sequence[tuple[str, str]], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows and policies: our log, replayed by the scorer, costs what we say, and about what the reference says."""
    ours, calls = [], []
    for number, (name, policy) in enumerate(asked):
        row, log = ROWS[name], folder / f"{number}.csv"
        trace = row.folder(folder / "made")
        ours.append(backtest(capsys, row.ours(trace, _named(policy), f"--log={log}")))
        calls.append(row.theirs(trace, log))
    for (name, policy), our, their in zip(asked, ours, scorer(calls), strict=True):
        entry, windows = our["entries"][0], their["windows"]
        assert [w["start_tick"] for w in our["windows"]] == [w["start_tick"] for w in windows]
        assert [w["start"] for w in our["windows"]] == [w["start"] for w in windows]
        assert [w["optimum_usd"] for w in our["windows"]] == pytest.approx(
            [w["oracle"] for w in windows], rel=1e-9
        )
        assert [w["usd"] for w in entry["windows"]] == pytest.approx([w["cost"] for w in windows], rel=1e-9)
        assert [w["launches"] for w in entry["windows"]] == [w["launches"] for w in windows]
        assert [w["ticks"] for w in entry["windows"]] == [w["ticks"] for w in windows]
        assert entry["score"]["p95"] == pytest.approx(their["pooled"]["p95"], rel=1e-9)
        assert their["pooled"]["misses"] == 0
        if not policy.endswith(".yaml"):
            assert their["pooled"]["ratio"] == pytest.approx(reference(name, policy), rel=0.01), (
                name,
                policy,
            )


def _named(policy: str) -> str:
    return policy if policy.endswith(".yaml") else f"--baseline={policy}"


@pytest.mark.process
@pytest.mark.timeout(400)  # the scorer compiles its optimum first
def test_the_scorer_finds_the_same_costs_and_optima(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fast = [
        ("H100x16 1.25", "eager"),
        ("H100x16 1.5", "spot_else_on_demand"),
        ("two clouds 1.5", "on_demand"),
    ]
    policy = ("V100x4 gang4 1.5", str(ROOT / "policies/ride-the-spot.yaml"))
    compare([*fast, policy, ("V100 1.1", "uniform_progress")], tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ROWS)
def test_every_row_of_the_reference(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compare([(name, policy) for policy in NAMES], tmp_path, capsys)


@pytest.mark.process
@pytest.mark.parametrize("name", ["uniform_progress", "eager"])
def test_a_frozen_market_changes_nothing_that_was_done_before(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frozen, at = tmp_path / "frozen", "2023-02-19T20:00:00Z"
    base = TRACES / "aws_v100x1_2023q1"
    compose = [sys.executable, str(SHARED / "bench/compose.py"), str(base), str(frozen), "--freeze-after", at]
    subprocess.run(compose, check=True, timeout=60)
    rows = []
    for trace in (base, frozen):
        log = tmp_path / "log.csv"
        backtest(capsys, ROWS["V100 1.5"].ours(trace, f"--baseline={name}", f"--log={log}", "--windows=1"))
        with open(log, newline="") as file:
            rows.append([row for row in csv.DictReader(file) if row["ts"] <= at])
    assert rows[0] == rows[1]
    assert rows[0]
