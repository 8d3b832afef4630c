"""The tutorial, typed from its first line to its last, in one shell, by somebody who has only that page."""

from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.shell import Shell

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("lab"), pytest.mark.timeout(240)]


def test_every_command_does_what_the_page_says(clone: Path, reader: dict[str, str]) -> None:
    with Shell(clone, reader) as shell:
        for block in blocks(ROOT / "docs" / "tutorial.md"):
            if block.marker == "file":
                (clone / block.what).write_text(block.text, encoding="utf-8")
            elif block.language == "console":
                for command in block.commands:
                    shell.run(command, timeout_s=90)
            else:
                pytest.fail(f"{block}: a block that the reader neither types nor saves")
