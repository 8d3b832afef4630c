"""docs/reference/job-file.md says what the reader does."""

import re
from pathlib import Path

import pytest

from broker.core.errors import SpecError
from broker.jobs import later, spec
from broker.jobs.spec import parse_job

PAGE = (Path(__file__).parents[3] / "docs/reference/job-file.md").read_text()
FIELDS, NOT_YET = PAGE.split("## Not yet")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)

SECTIONS = {
    "": (spec.TOP, later.TOP),
    "resources.": (spec.RESOURCES, later.RESOURCES),
    "resources.gpus[].": ((), later.GPU),
    "source.": (spec.SOURCE, later.SOURCE),
    "data[].": (spec.DATA, later.DATA),
    "checkpoint.": (spec.CHECKPOINT, later.CHECKPOINT),
    "checkpoint.keep_best.": (spec.KEEP_BEST, later.KEEP_BEST),
    "stop.": (spec.STOP, later.STOP),
}
PARENTS = {"resources", "source", "data", "checkpoint", "checkpoint.keep_best", "stop"}


def rows(text: str) -> dict[str, str]:
    found = re.findall(r"^\| `([^`]+)` \|(.*)\|$", text, re.MULTILINE)
    return {name: rest.strip() for name, rest in found}


def test_every_field_has_its_row():
    known = {prefix + key for prefix, (now, _) in SECTIONS.items() for key in now}
    assert rows(FIELDS).keys() == known - PARENTS


def test_every_later_field_has_its_row():
    assert rows(NOT_YET) == {
        prefix + key: hint for prefix, (_, more) in SECTIONS.items() for key, hint in more.items()
    }


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_read(tmp_path: Path, example: str):
    for name in ("train.py", "requirements.txt"):
        (tmp_path / name).touch()
    parse_job(example, "example.yaml", tmp_path)


def test_the_error_shown_is_the_one_given(tmp_path: Path):
    text = EXAMPLES[0].replace("H100", "H10O")
    with pytest.raises(SpecError) as caught:
        parse_job(text, "train.yaml", tmp_path)
    assert f"```text\n{caught.value}\n```" in PAGE
