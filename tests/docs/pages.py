"""What the pages contain: fenced blocks with their markers, and links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>\w*)\s*$")
_MARKER = re.compile(r"^ *<!-- (?P<kind>run|file|needs)(?:: (?P<what>.+))? -->$")
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (?P<text>.+)$")


@dataclass(frozen=True)
class Command:
    """A line after ``$ ``, and the lines below it: what it prints, with ``…`` for what is not always the same."""

    line: str
    prints: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        page: Relative to the repository.
        line: Of the opening fence.
        marker: ``run``, ``file``, ``needs`` from the comment above it, or empty.
        what: Of the marker: how the last command exits, which file, what it needs.
    """

    page: str
    line: int
    language: str
    text: str
    marker: str = ""
    what: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[Command]:
        """Of a console block.

        Raises:
            ValueError: it does not begin with a command.
        """
        found: list[Command] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append(Command(line[2:], ()))
            elif found:
                found[-1] = Command(found[-1].line, (*found[-1].prints, line))
            else:
                raise ValueError(f"{self}: a console block begins with a command after '$ '")
        return found


def pages() -> list[Path]:
    """Every page for people."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("bench/*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(page: Path) -> Iterator[Block]:
    """Fenced blocks in their order, those of a list's steps, too."""
    name = str(page.relative_to(ROOT))
    fence, indent, begin, language, body = "", "", 0, "", list[str]()
    marker: tuple[str, str] = ("", "")
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if fence:
            if line == indent + fence:
                yield Block(name, begin, language, "\n".join([*body, ""]), *marker)
                fence, marker = "", ("", "")
            else:
                body.append(line.removeprefix(indent))
        elif opened := _FENCE.match(line):
            fence, indent, begin = opened["ticks"], opened["indent"], number
            language, body = opened["language"], []
        elif told := _MARKER.match(line):
            marker = (told["kind"], told["what"] or "")
        elif line.strip():
            marker = ("", "")
    assert not fence, f"{name}:{begin}: the block is not closed"


def links(page: Path) -> Iterator[tuple[int, str]]:
    """(line, target) of every link outside fenced blocks and code."""
    fenced = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            for link in _LINK.finditer(re.sub(r"`[^`]*`", "", line)):
                yield number, link["target"]


def anchors(page: Path) -> set[str]:
    """Names of the headings, as GitHub makes them."""
    fenced, found = False, set[str]()
    for line in page.read_text(encoding="utf-8").splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and (heading := _HEADING.match(line)):
            text = re.sub(r"[^\w\- ]", "", heading["text"].lower()).replace(" ", "-")
            found.add(text)
    return found
