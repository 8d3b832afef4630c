"""Broken files and, beside each, every word that a person is told about it.

`broken/policies/NAME.yaml` is read as a policy and `broken/jobs/NAME.yaml` as a job file; `NAME.txt` has the messages.
A message that changes is changed in its file, where a reviewer reads it as its reader will.
"""

from pathlib import Path

import pytest

from broker.core.errors import SpecError
from broker.jobs.spec import parse_job
from broker.policy.load import mistakes

BROKEN = Path(__file__).parent / "broken"
POLICIES = sorted(path.stem for path in (BROKEN / "policies").glob("*.yaml"))
JOBS = sorted(path.stem for path in (BROKEN / "jobs").glob("*.yaml"))


def expected(folder: str, name: str) -> str:
    return (BROKEN / folder / f"{name}.txt").read_text(encoding="utf-8")


def text(folder: str, name: str) -> str:
    return (BROKEN / folder / f"{name}.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", POLICIES)
def test_what_is_told_of_a_broken_policy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BROKEN / "policies")  # what is extended is looked for beside the file
    errors = mistakes(text("policies", name), f"{name}.yaml")
    assert "\n\n".join(str(error) for error in errors) + "\n" == expected("policies", name)


@pytest.mark.parametrize("name", JOBS)
def test_what_is_told_of_a_broken_job(name: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        parse_job(text("jobs", name), f"{name}.yaml", tmp_path)
    assert f"{caught.value}\n" == expected("jobs", name)


def test_no_broken_file_is_without_its_messages() -> None:
    assert len(POLICIES) >= 40
    assert len(JOBS) >= 20
    told = {path.relative_to(BROKEN).with_suffix("") for path in BROKEN.glob("*/*.txt")}
    assert told == {path.relative_to(BROKEN).with_suffix("") for path in BROKEN.glob("*/*.yaml")}
