"""The generated reference pages are what the code says."""

from pathlib import Path

import pytest

from broker.policy.facts import FACTS
from docs import generate


def test_pages_are_up_to_date() -> None:
    assert generate.out_of_date(generate.REFERENCE) == [], "run: make docs"


def test_writing_mends_what_differs_and_nothing_else(tmp_path: Path) -> None:
    names = generate.write(tmp_path)
    assert "facts.md" in names
    assert generate.write(tmp_path) == []
    (tmp_path / "facts.md").write_text("old")
    assert generate.out_of_date(tmp_path) == ["facts.md"]
    assert generate.write(tmp_path) == ["facts.md"]


def test_check_names_the_page_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "REFERENCE", tmp_path)
    assert generate.main(["--check"]) == 1
    assert "docs/reference/facts.md is out of date" in capsys.readouterr().err


def test_every_fact_has_its_row() -> None:
    page = generate.render_all()["facts.md"]
    assert all(page.count(f"| `{fact.name}` |") == 1 for fact in FACTS)
