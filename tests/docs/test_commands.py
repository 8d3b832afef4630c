"""Every command on every page is run, or at least understood by its program."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.docs import commands
from tests.docs.pages import ROOT, Block, blocks, pages
from tests.docs.shell import Shell

LANGUAGES = ("console", "json", "python", "text", "toml", "yaml", "")
TUTORIAL = ROOT / "docs" / "tutorial.md"

PAGES = [page for page in pages() if page != TUTORIAL]  # test_tutorial.py types all of that one
BLOCKS = [block for page in PAGES for block in blocks(page)]
CONSOLE = [block for block in BLOCKS if block.language == "console"]
RUN = sorted({block.page for block in BLOCKS if block.marker == "run"})
_MENTION = re.compile(r"`broker ([^`]+)`")


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_says_what_it_is(block: Block) -> None:
    assert block.language in LANGUAGES
    if block.language == "console":
        assert block.marker in ("run", "needs"), "<!-- run --> or <!-- needs: what --> belongs above it"


@pytest.mark.parametrize("block", CONSOLE, ids=str)
def test_its_program_understands_it(block: Block) -> None:
    assert block.commands
    for command in block.commands:
        commands.check(command.line)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_sentences_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for mention in _MENTION.findall(text):
        commands.parse_mention(mention.split())


@pytest.mark.process
@pytest.mark.parametrize("page", RUN)
def test_what_can_run_prints_what_the_page_says(page: str, clone: Path, reader: dict[str, str]) -> None:
    reader["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{reader['PATH']}"
    with Shell(clone, reader) as shell:
        for block in blocks(ROOT / page):
            if block.marker == "file":
                (clone / block.what).write_text(block.text, encoding="utf-8")
            elif block.marker == "run":
                *first, last = block.commands
                for command in first:
                    shell.run(command)
                shell.run(last, code=int(block.what.removeprefix("exit ") or 0))


@pytest.mark.parametrize(
    "line",
    ["broker wyh job", "broker why", "broker prices --gup H100", "broker token create", "make tset",
     "python -m lab --rate 20", "python -m lab.ctl price a", "python -m lba", "frobnicate x", "cp policies/none.yaml x",
     "aws iam create-polcy --policy-name x", "aws iam create-policy --policy-name x", "aws ssm get-parameter --nam x",
     "pip install gpu-capacity-broker", "pip install '.[azur]'", "kubectl apply -f docs/examples/none.yaml"],
)  # fmt: skip
def test_a_wrong_command_is_seen(line: str) -> None:
    with pytest.raises(commands.Misunderstood):
        commands.check(line)


@pytest.mark.parametrize("mention", ["wyh JOB", "why JOB --lmit 3", "token made"])
def test_a_wrong_mention_is_seen(mention: str) -> None:
    with pytest.raises(commands.Misunderstood):
        commands.parse_mention(mention.split())
