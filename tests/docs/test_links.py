"""Links lead somewhere, every page is found from the index, and no page knows the machine that it was written on."""

import os
import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, anchors, links, pages

PAGES = pages()
_PAGE_IN_SOURCE = re.compile(r"(?<![\w/])(?:docs/[\w./-]+|[A-Z]+)\.md\b")
_NOT_OURS = re.compile(rf"{re.escape(str(ROOT))}/|/root/|/home/\w|/tmp/pytest|site-packages|\.pyenv")


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_resolve(page: Path) -> None:
    for line, target in links(page):
        if target.startswith(("https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{relative(page)}:{line}: {target}"
        assert found.is_relative_to(ROOT), f"{relative(page)}:{line}: {target} leaves the repository"
        if anchor:
            assert anchor in anchors(found), f"{relative(page)}:{line}: no heading #{anchor}"


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    named = {(index.parent / target.partition("#")[0]).resolve() for _, target in links(index)}
    missing = [relative(page) for page in PAGES if page.is_relative_to(index.parent) and page not in named]
    assert missing == ["docs/index.md"]


def test_pages_that_the_program_names_exist() -> None:
    for folder in ("broker", "providers", "lab", "policies", "deploy"):
        for file in sorted((ROOT / folder).rglob("*")):
            if file.is_file() and file.suffix != ".pyc":
                for name in _PAGE_IN_SOURCE.findall(file.read_text(encoding="utf-8", errors="replace")):
                    assert (ROOT / name).exists(), f"{relative(file)} names {name}"


def test_tests_that_pages_name_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"`(tests/[\w/.]+)`", page.read_text(encoding="utf-8")):
            assert (ROOT / name).exists(), f"{relative(page)} names {name}"


def test_nothing_knows_the_machine_it_was_written_on() -> None:
    shown = [*PAGES, *(ROOT / "docs" / "images").iterdir(), *(ROOT / "docs" / "examples").iterdir()]
    shown += [file for file in (ROOT / "deploy").rglob("*") if file.is_file()]
    for page in shown:
        text = page.read_text(encoding="utf-8")
        assert not (found := _NOT_OURS.search(text)), f"{relative(page)}: {found and found[0]}"
        assert os.uname().nodename not in text or len(os.uname().nodename) < 6
