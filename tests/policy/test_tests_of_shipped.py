"""`broker policy test policies/`: what the shipped policies promise, in files that their readers can change and run."""

from pathlib import Path

import pytest

from broker.paper.testing.judge import judge
from broker.paper.testing.read import case_files, read_cases
from broker.paper.testing.report import as_text
from broker.policy.load import policy_files
from providers import tariffs

FOLDER = Path(__file__).parents[2] / "policies"


@pytest.mark.parametrize("path", case_files(FOLDER), ids=lambda path: path.name)
def test_every_case_passes(path: Path) -> None:
    file, errors = read_cases(path)
    assert file is not None, "\n".join(map(str, errors))
    verdicts = [judge(case, tariffs.billing_rule, tariffs.egress_micro_usd_per_gib) for case in file.cases]
    assert all(verdict.passed for verdict in verdicts), as_text(verdicts, [])


def test_no_shipped_policy_is_without_a_test() -> None:
    played = {policy.resolve() for path in case_files(FOLDER) for policy in read_cases(path)[0].policies}
    assert [path.name for path in policy_files(FOLDER) if path.resolve() not in played] == []
