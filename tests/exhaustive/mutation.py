"""``make mutation``: change the protocol's code in every small way, and see that a fast test notices each.

    python -m tests.exhaustive.mutation [--children N] [--afresh]

mutmut mutates and judges, in an environment of its own under ``build/`` and on a copy of the tree under ``/tmp``, so
that nobody who works here sees mutated files. A run that was interrupted goes on, and a later one judges again only
what has changed and what had survived; ``--afresh`` forgets everything. What survives has to be explained in ``SURVIVORS.md``: by its changed line, as the
summary prints it. Ends with 1 when something survives unexplained, or the score is below `SCORE`.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOME = ROOT / "build" / "mutation"
TREE = Path(tempfile.gettempdir()) / "gpu-capacity-broker-mutation"
EXPLAINED = Path(__file__).with_name("SURVIVORS.md")
MUTMUT = "mutmut==3.8.1"
SCORE = 0.90
MUTATED = (
    *(
        f"broker/migration/{name}.py"
        for name in ("plan", "nodes", "handover", "settle", "reconcile", "collect")
    ),
    "broker/checkpoint/commits.py",
)
# The fastest first: a mutant lives only as long as the first test that notices it.
TESTS = (
    "tests/unit/migration/test_plan.py",
    "tests/unit/migration/test_states.py",
    "tests/unit/checkpoint/test_commits.py",
    "tests/exhaustive/test_bounds.py",
    "tests/exhaustive/test_collector.py",
    "tests/exhaustive/test_shell.py",
    "tests/exhaustive/test_sentences.py",
    "tests/exhaustive/test_scenarios.py",
    "tests/exhaustive/test_crashes.py",
    "tests/exhaustive/test_outcomes.py",
)
_COPIED = ("broker", "providers", "lab", "tests", "pyproject.toml", "README.md")
# What a mutant's worker ends with when its tests passed, and when there were none. Anything else has killed it.
_SURVIVED, _UNTESTED = 0, 33

CONFIG = """
[tool.mutmut]
source_paths = ["broker"]
only_mutate = {mutated}
also_copy = ["providers", "lab"]
do_not_mutate_patterns = ['^\\s*log\\.(debug|info|warning|error|exception|critical)\\(']
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["-m", "not slow and not process"]
timeout_multiplier = 4.0
timeout_constant = 20.0
use_git_change_detection = false
track_dependencies = false
"""
ORDER = """

def pytest_collection_modifyitems(items: list) -> None:
    items.sort(key=lambda item: next((n for n, path in enumerate({tests}) if path in item.nodeid), 99))
"""


@dataclass(frozen=True)
class Mutant:
    """One change and what came of it.

    Attributes:
        code: Exit code of the tests.
        diff: Of the function, as mutmut shows it; empty where it was killed.
    """

    name: str
    file: str
    code: int | None
    diff: str = ""

    @property
    def killed(self) -> bool:
        """A test noticed it, or it made the tests hang or die."""
        return self.code not in (_SURVIVED, _UNTESTED, None)

    @property
    def change(self) -> tuple[str, str]:
        """The line before and after."""
        lines = [line for line in self.diff.splitlines() if not line.startswith(("---", "+++"))]
        before = [line[1:].strip() for line in lines if line.startswith("-")]
        after = [line[1:].strip() for line in lines if line.startswith("+")]
        return " ".join(before), " ".join(after)


def main(arguments: Sequence[str] | None = None) -> int:
    """The whole run; the answer is the exit code."""
    parser = argparse.ArgumentParser(prog="make mutation")
    parser.add_argument("--children", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--afresh", action="store_true", help="judge every mutant, also those known to be dead"
    )
    asked = parser.parse_args(arguments)
    python = environment()
    if asked.afresh:
        shutil.rmtree(TREE, ignore_errors=True)
    copy_tree()
    doubt_survivors()
    run = [python, "-m", "mutmut", "run", "--max-children", str(asked.children)]
    ended = subprocess.run(run, cwd=TREE, check=False).returncode
    return ended or report(list(judged(python)))


def environment() -> str:
    """An environment with mutmut, on top of ours; returns its Python."""
    python = HOME / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(HOME)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", MUTMUT]
        subprocess.run(install, check=True)
    ours = next(Path(entry) for entry in sys.path if entry.endswith("site-packages"))
    theirs = next((HOME / "lib").glob("python*/site-packages"))
    (theirs / "ours.pth").write_text(f"{ours}\n")
    return str(python)


def copy_tree() -> None:
    """What mutmut works on, as it is now."""
    skip = shutil.ignore_patterns("__pycache__", "*.pyc", "found")
    for name in _COPIED:
        source, target = ROOT / name, TREE / name
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target, ignore=skip)
        else:
            shutil.copy2(source, target)
    with (TREE / "pyproject.toml").open("a") as file:
        file.write(CONFIG.format(mutated=json.dumps(MUTATED), tests=json.dumps(TESTS)))
    with (TREE / "tests" / "conftest.py").open("a") as file:
        file.write(ORDER.format(tests=list(TESTS)))


def doubt_survivors() -> None:
    """Tests may have been added since: which of them reach what, and who survives, is asked again."""
    (TREE / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)
    for path in (TREE / "mutants").rglob("*.meta"):
        found = json.loads(path.read_text())
        codes = found["exit_code_by_key"]
        found["exit_code_by_key"] = {
            name: None if code in (_SURVIVED, _UNTESTED) else code for name, code in codes.items()
        }
        path.write_text(json.dumps(found))


def judged(python: str) -> Iterator[Mutant]:
    """Every mutant with its verdict."""
    for path in MUTATED:
        found = json.loads((TREE / "mutants" / f"{path}.meta").read_text())
        for name, code in found["exit_code_by_key"].items():
            mutant = Mutant(name, path, code)
            if not mutant.killed:
                show = [python, "-m", "mutmut", "show", name]
                diff = subprocess.run(show, cwd=TREE, check=True, capture_output=True, text=True).stdout
                mutant = Mutant(name, path, code, diff)
            yield mutant


def report(mutants: Sequence[Mutant]) -> int:
    """The summary, for a person."""
    explained = squeezed(EXPLAINED.read_text()) if EXPLAINED.exists() else ""
    alive = [mutant for mutant in mutants if not mutant.killed]
    unexplained = [mutant for mutant in alive if squeezed(mutant.change[1]) not in explained]
    for mutant in unexplained:
        before, after = mutant.change
        print(f"\nsurvived, unexplained: {mutant.name}\n    - {before}\n    + {after}")
    print(f"\n{'file':36} {'mutants':>8} {'killed':>8} {'score':>8}")
    total, dead = Counter(m.file for m in mutants), Counter(m.file for m in mutants if m.killed)
    for file in MUTATED:
        if total[file]:
            print(f"{file:36} {total[file]:8} {dead[file]:8} {dead[file] / total[file]:8.1%}")
    score = sum(dead.values()) / max(1, len(mutants))
    print(f"{'':36} {len(mutants):8} {sum(dead.values()):8} {score:8.1%}")
    print(f"{len(alive)} survived, {len(unexplained)} of them are not explained in {EXPLAINED.name}")
    return int(bool(unexplained) or score < SCORE)


def squeezed(text: str) -> str:
    """Text without its white space: a diff and a page break lines differently."""
    return re.sub(r"\s+", "", text)


if __name__ == "__main__":
    sys.exit(main())
