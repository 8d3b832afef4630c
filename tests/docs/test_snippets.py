"""Every piece of a file on every page is one that its reader takes."""

import ast
import json
from pathlib import Path

import pytest

from broker.jobs.spec import parse_job
from broker.paper.testing.read import read_cases
from broker.paper.testing.scaffold import policy_text
from broker.policy.load import mistakes
from broker.settings import Settings
from providers.registry import vendor_endpoints
from tests.docs.pages import Block, blocks, pages

ALL = [block for page in pages() for block in blocks(page)]


def of(language: str) -> list[Block]:
    return [block for block in ALL if block.language == language]


def file_name(block: Block) -> str:
    """Of a policy or of defaults whose name matters, as its first line says; else empty."""
    first = block.text.splitlines()[0]
    return first.removeprefix("# ") if first.startswith("# ") and first.endswith(".yaml") else ""


@pytest.mark.parametrize("block", of("toml"), ids=str)
def test_settings(block: Block, tmp_path: Path) -> None:
    settings = Settings.parse(block.text, str(block), tmp_path)
    for cloud, section in settings.open_clouds.items():
        (tmp_path / "key.json").touch()
        named = {"credentials_file": tmp_path / "key.json"} if "credentials_file" in section.options else {}
        vendor_endpoints(cloud, {**section.options, **named})  # reads the options strictly


@pytest.mark.parametrize("block", of("yaml"), ids=str)
def test_jobs_and_policies(block: Block, tmp_path: Path) -> None:
    if "\ncases:" in block.text:
        (tmp_path / "nights.yaml").write_text(policy_text("nights"))
        (tmp_path / "nights.test.yaml").write_text(block.text)
        assert read_cases(tmp_path / "nights.test.yaml")[1] == []
    elif file_name(block) or block.text.startswith("policy:"):
        for other in of("yaml"):  # what the page's policies may extend
            if other.page == block.page and file_name(other).endswith(".defaults.yaml"):
                (tmp_path / file_name(other)).write_text(other.text)
        assert mistakes(block.text, str(tmp_path / (file_name(block) or "p.yaml"))) == []
    else:
        for script in ("train.py", "count.py", "requirements.txt"):
            (tmp_path / script).touch()
        parse_job(block.text, str(block), tmp_path)


@pytest.mark.parametrize("block", of("json"), ids=str)
def test_json(block: Block) -> None:
    json.loads(block.text)


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_python(block: Block) -> None:
    ast.parse(block.text)
