"""Proofs that pages name exist: tests by path and name, mutants and invariants of the simulation."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.docs.pages import ROOT, pages
from tests.sim.mutants import MUTANTS

PROTOCOL = ROOT / "docs" / "internals" / "migration.md"
_TEST = re.compile(r"(tests/[\w/]+\.py)::([\w:]+)")
_FILE = re.compile(r"`((?:broker|providers|lab|policies|deploy)/[\w./-]+\.\w+)`")
_RULE = re.compile(r"[IL]\d+ [a-z0-9 -]+")


@cache
def defined(path: str) -> frozenset[str]:
    """Tests and classes of a file, as pytest names them; none when there is no such file."""
    if not (ROOT / path).is_file():
        return frozenset()
    found = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
            found |= {
                f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)
            }
    return frozenset(found)


def missing_tests(text: str) -> list[str]:
    """Tests that a text names and nobody has written."""
    return [f"{path}::{name}" for path, name in _TEST.findall(text) if name not in defined(path)]


def cells(text: str, column: str) -> Iterator[str]:
    """Cells below a heading of this name, of every table that has one."""
    heading: list[str] = []
    for line in text.splitlines():
        row = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if row and not heading:
            heading = row
        elif row and column in heading and not set(row[0]) <= set("-"):
            yield row[heading.index(column)]
        elif not row:
            heading = []


def rules_of_the_simulation() -> set[str]:
    """Names under which the simulation reports violations."""
    files = [file for file in (ROOT / "tests" / "sim").glob("*.py") if not file.name.startswith("test_")]
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and _RULE.fullmatch(str(n.value))}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_tests_and_files_that_a_page_names_exist(page):
    text = page.read_text(encoding="utf-8")
    assert missing_tests(text) == []
    assert [name for name in _FILE.findall(text) if not (ROOT / name).exists()] == []


def test_every_rule_of_the_protocol_has_its_proof():
    text = PROTOCOL.read_text(encoding="utf-8")
    proofs = list(zip(*(cells(text, column) for column in ("holds", "mutant", "test")), strict=True))
    assert len(proofs) > 30
    assert [proof for proof in proofs if not any(proof[1:])] == [], "neither a mutant nor a test"


def test_mutants_of_the_protocol_exist():
    named = [
        name
        for cell in cells(PROTOCOL.read_text(encoding="utf-8"), "mutant")
        for name in re.findall(r"\w+", cell)
    ]
    assert set(named) <= set(MUTANTS)
    assert len(named) == len(set(named)), "a mutant breaks one rule"
    assert len(named) > 30


def test_the_page_lists_what_the_simulation_checks():
    text = PROTOCOL.read_text(encoding="utf-8")
    listed = [cell for cell in cells(text, "name") if _RULE.fullmatch(cell)]
    assert sorted(listed) == sorted(rules_of_the_simulation())
    known = {name.split()[0] for name in listed}
    for column in ("holds", "by"):
        assert {name for cell in cells(text, column) for name in cell.split()} <= known


@pytest.mark.parametrize(
    "text",
    ["`tests/sim/test_seeds.py::test_nothing`", "`tests/sim/test_none.py::test_a_seed_holds_every_invariant`",
     "`tests/unit/decision/test_move.py::TestHold::test_veto`"],
)  # fmt: skip
def test_a_wrong_name_is_seen(text):
    assert missing_tests(text)


def test_cells_are_those_below_their_heading():
    text = "| a | b |\n|---|---|\n| 1 | 2 |\n\nwords\n\n| b |\n|---|\n| 3 |\n"
    assert list(cells(text, "b")) == ["2", "3"]
    assert list(cells(text, "c")) == []
