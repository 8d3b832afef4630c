"""``make mutation``: change the protocol's code in every small way, and see that a fast test notices each.

    python -m tests.exhaustive.mutation [--children N] [--afresh]

mutmut mutates and judges, in an environment of its own under ``build/`` and on a copy of the tree under ``/tmp``, so
that nobody who works here sees mutated files. It goes in two rounds: first with the tests that take seconds, then
what has survived them with the deaths and failures at every effect as well.

A run that was interrupted goes on, and a later one judges again only what has changed and what had survived
unexplained; ``--afresh`` forgets everything. What survives has to be explained in ``SURVIVORS.md``: by its changed
line, as the summary prints it. Ends with 1 when something survives unexplained, or the score is below `SCORE`.
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
from collections.abc import Iterable, Mapping, Sequence, Set
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
# In this order: a mutant lives only as long as the first test that notices it.
QUICK = (
    "tests/unit/migration/test_plan.py",
    "tests/unit/migration/test_states.py",
    "tests/unit/checkpoint/test_commits.py",
    "tests/exhaustive/test_bounds.py",
    "tests/exhaustive/test_answers.py",
    "tests/exhaustive/test_handing.py",
    "tests/exhaustive/test_telling.py",
    "tests/exhaustive/test_collector.py",
    "tests/exhaustive/test_shell.py",
    "tests/exhaustive/test_old_rows.py",
    "tests/exhaustive/test_sentences.py",
    "tests/exhaustive/test_scenarios.py",
)
ROUNDS = (QUICK, (*QUICK, "tests/exhaustive/test_crashes.py", "tests/exhaustive/test_outcomes.py"))
_COPIED = ("broker", "providers", "lab", "tests", "pyproject.toml", "README.md")
# What a mutant's worker ends with: a test failed, the tests could not run, they never ended (signal 24 or 9).
_KILLED, _HANGS = (1, 3), (24, -24, -9)

# The limits in real time are wide, as other work may be on the machine; those in CPU time are in the hook below.
CONFIG = """
[tool.mutmut]
source_paths = ["broker"]
only_mutate = {mutated}
also_copy = ["providers", "lab"]
do_not_mutate_patterns = ['^\\s*log\\.(debug|info|warning|error|exception|critical)\\(']
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["-m", "not slow and not process"]
timeout_multiplier = 5.0
timeout_constant = 8.0
use_git_change_detection = false
track_dependencies = false
"""
# The slowest test of these takes a second. A mutant that goes round in circles is found out by its CPU time.
HOOKS = """

def pytest_collection_modifyitems(items: list) -> None:
    items.sort(key=lambda item: next((n for n, path in enumerate({tests}) if path in item.nodeid), 99))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    import os, signal

    signal.signal(signal.SIGPROF, lambda *_: os._exit(24))
    signal.setitimer(signal.ITIMER_PROF, 10.0)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
"""
# Run by the Python that has mutmut; `mutmut show` takes a second a mutant.
DIFFS = """
import json, sys
from mutmut.mutation.diff_apply import get_diff_for_mutant
json.dump({name: get_diff_for_mutant(name, path=path) for name, path in json.load(sys.stdin).items()}, sys.stdout)
"""


@dataclass(frozen=True)
class Mutant:
    """One change and what came of it.

    Attributes:
        code: Exit code of the tests; None: not judged.
        diff: Of the function, as mutmut shows it; empty where it was killed.
    """

    name: str
    file: str
    code: int | None
    diff: str = ""

    @property
    def killed(self) -> bool:
        """A test noticed it, or it made the tests hang."""
        return self.code in (*_KILLED, *_HANGS)

    @property
    def change(self) -> tuple[str, str]:
        """The lines before and after."""
        lines = [line for line in self.diff.splitlines() if not line.startswith(("---", "+++"))]
        before = [line[1:].strip() for line in lines if line.startswith("-")]
        after = [line[1:].strip() for line in lines if line.startswith("+")]
        return " ".join(before), " ".join(after)

    @property
    def function(self) -> str:
        """As its heading in the explanations names it: file and function."""
        mangled = self.name.rpartition(".")[2].rpartition("__mutmut_")[0]
        return f"{self.file}, `{mangled.removeprefix('x').removeprefix('_').strip('ǁ').replace('ǁ', '.')}`"

    @property
    def shown(self) -> str:
        """The change as a paragraph of the explanations shows it, squeezed."""
        before, after = self.change
        return squeezed(f"- {before} + {after}")

    def explained_in(self, page: Mapping[str, Set[str]]) -> bool:
        """Its function has a section, and in that a paragraph shows the change."""
        return self.shown in page.get(self.function, ())


def main(arguments: Sequence[str] | None = None) -> int:
    """The whole run; the answer is the exit code."""
    parser = argparse.ArgumentParser(prog="make mutation")
    parser.add_argument("--children", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--afresh", action="store_true", help="judge every mutant, also those known")
    parser.add_argument(
        "--quick", action="store_true", help="the first round only; for while you write tests"
    )
    asked = parser.parse_args(arguments)
    python = environment()
    if asked.afresh:
        shutil.rmtree(TREE, ignore_errors=True)
    for tests in ROUNDS[:1] if asked.quick else ROUNDS:
        copy_tree(tests)
        page, known = explanations(), judged(python)
        doubtful = [m for m in known if not m.killed and not m.explained_in(page)]
        if tests is not QUICK and not doubtful:
            break
        doubt(doubtful)
        run = [python, "-m", "mutmut", "run", "--max-children", str(asked.children)]
        if ended := subprocess.run(run, cwd=TREE, check=False).returncode:
            return ended
    return report(judged(python))


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


def copy_tree(tests: Sequence[str]) -> None:
    """What mutmut works on, as it is now. Only what differs is written: by a file's age mutmut sees that it changed."""
    added = {
        Path("pyproject.toml"): CONFIG.format(mutated=json.dumps(MUTATED), tests=json.dumps(tests)),
        Path("tests/conftest.py"): HOOKS.format(tests=list(tests)),
    }
    here = {
        path.relative_to(ROOT)
        for name in _COPIED
        for path in ((ROOT / name).rglob("*") if (ROOT / name).is_dir() else [ROOT / name])
        if path.is_file() and not {"__pycache__", "found"} & set(path.parts)
    }
    for path in here:
        content = (ROOT / path).read_bytes() + added.get(path, "").encode()
        target = TREE / path
        if not target.exists() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    for name in _COPIED:
        for path in [path for path in (TREE / name).rglob("*.py") if path.relative_to(TREE) not in here]:
            path.unlink()
            (TREE / "mutants" / path.relative_to(TREE)).unlink(missing_ok=True)


def doubt(mutants: Iterable[Mutant]) -> None:
    """Tests may have been added since: which of them reach what, and who of these survives, is asked again."""
    (TREE / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)
    names = {mutant.name for mutant in mutants}
    for path in (TREE / "mutants").rglob("*.meta"):
        found = json.loads(path.read_text())
        codes = found["exit_code_by_key"]
        found["exit_code_by_key"] = {n: None if n in names else code for n, code in codes.items()}
        path.write_text(json.dumps(found))


def judged(python: str) -> list[Mutant]:
    """Every mutant with its verdict, as far as there is one."""
    files = {path: TREE / "mutants" / f"{path}.meta" for path in MUTATED}
    mutants = [
        Mutant(name, path, code)
        for path, meta in files.items()
        if meta.exists()
        for name, code in json.loads(meta.read_text())["exit_code_by_key"].items()
    ]
    alive = json.dumps({mutant.name: mutant.file for mutant in mutants if not mutant.killed})
    shown = subprocess.run(
        [python, "-c", DIFFS], cwd=TREE, check=True, input=alive, capture_output=True, text=True
    )
    diffs = json.loads(shown.stdout)
    return [Mutant(m.name, m.file, m.code, diffs.get(m.name, "")) for m in mutants]


def explanations() -> Mapping[str, Set[str]]:
    """What survives and why: its function to the paragraphs on it, squeezed."""
    page: dict[str, set[str]] = {}
    for section in EXPLAINED.read_text().split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        page.setdefault(heading, set()).update(squeezed(part) for part in text.split("\n\n"))
    return page


def report(mutants: Sequence[Mutant]) -> int:
    """The summary, for a person."""
    alive = [mutant for mutant in mutants if not mutant.killed]
    page = explanations()
    needless = {(f, part) for f, parts in page.items() for part in parts if part.startswith("-")}
    needless -= {(mutant.function, mutant.shown) for mutant in alive}
    for function, part in sorted(needless):
        print(f"\nexplained, and does not survive: {function}\n    {part}")
    unexplained = [mutant for mutant in alive if not mutant.explained_in(page)]
    for mutant in unexplained:
        before, after = mutant.change
        print(
            f"\nsurvived, unexplained: {mutant.name}\n## {mutant.function}\n\n    - {before}\n    + {after}"
        )
    total, dead = Counter(m.file for m in mutants), Counter(m.file for m in mutants if m.killed)
    hangs = Counter(m.file for m in mutants if m.code in _HANGS)
    print(f"\n{'file':36} {'mutants':>8} {'killed':>8} {'of them hung':>13} {'score':>8}")
    for file in MUTATED:
        if total[file]:
            share = dead[file] / total[file]
            print(f"{file:36} {total[file]:8} {dead[file]:8} {hangs[file]:13} {share:8.1%}")
    score = dead.total() / max(1, len(mutants))
    print(f"{'':36} {len(mutants):8} {dead.total():8} {hangs.total():13} {score:8.1%}")
    print(f"{len(alive)} survived, {len(unexplained)} of them are not explained in {EXPLAINED.name}")
    return int(bool(unexplained) or score < SCORE)


def squeezed(text: str) -> str:
    """Text without its white space: a diff and a page break lines differently."""
    return re.sub(r"\s+", "", text)


if __name__ == "__main__":
    sys.exit(main())
