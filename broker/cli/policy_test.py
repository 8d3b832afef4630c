"""`broker policy test`: plays policies against prices and stock that a file tells, and judges what they answer."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.output import AsJson, say, show_json
from broker.core.errors import BrokerError, PolicyError, UsageError

if TYPE_CHECKING:
    from broker.paper.testing.case import CaseFile


def register(policy: typer.Typer) -> None:
    """Add the command to `broker policy`."""
    policy.command("test")(run)


def run(
    paths: Annotated[
        list[Path], typer.Argument(help="Test files (*.test.yaml), or folders of policies with their tests.")
    ],
    as_json: AsJson = False,
) -> None:
    """Play every case and say which expectations were not met, each with the answer's reasons.

    Exit 1 when one was not, 2 when a file is wrong. In a folder, policies without a test are named.
    """
    from broker.paper.testing.judge import judge
    from broker.paper.testing.report import as_json as report_json
    from broker.paper.testing.report import as_text as report_text
    from providers import tariffs

    files = _read(_test_files(paths))
    verdicts = [
        judge(case, tariffs.billing_rule, tariffs.egress_micro_usd_per_gib)
        for file in files
        for case in file.cases
    ]
    untested = _untested(paths, files)
    if as_json:
        show_json(report_json(verdicts, untested))
    else:
        print(report_text(verdicts, untested), end="")
    if not all(verdict.passed for verdict in verdicts):
        raise typer.Exit(BrokerError.exit_code)


def _test_files(paths: Sequence[Path]) -> list[Path]:
    from broker.paper.testing.read import SUFFIX, case_files

    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = case_files(path)
            if not inside:
                raise UsageError(
                    f"{path}: no tests (*{SUFFIX}) in this folder",
                    hint="broker policy new NAME writes a first one",
                )
            found += inside
        elif path.name.endswith(SUFFIX):
            found.append(path)
        else:
            raise UsageError(
                f"{path}: not a test", hint=f"tests of policies are *{SUFFIX}, or give their folder"
            )
    return list(dict.fromkeys(found))


def _read(paths: Sequence[Path]) -> "list[CaseFile]":
    """Every file, or every mistake in them: a run that leaves out what it could not read proves nothing."""
    from broker.paper.testing.read import read_cases

    files: list[CaseFile] = []
    wrong: list[PolicyError] = []
    for path in paths:
        file, errors = read_cases(path)
        wrong += errors
        if file is not None:
            files.append(file)
    for error in wrong:
        say(f"{error}\n")
    if wrong:
        say(f"{len(wrong)} {'mistake' if len(wrong) == 1 else 'mistakes'}; nothing was played")
        raise typer.Exit(UsageError.exit_code)
    return files


def _untested(paths: Sequence[Path], files: "Sequence[CaseFile]") -> list[Path]:
    """Policies of the folders that no case plays."""
    from broker.policy.load import policy_files

    played = {path.resolve() for file in files for path in file.policies}
    inside = [policy for path in paths if path.is_dir() for policy in policy_files(path)]
    return [policy for policy in inside if policy.resolve() not in played]
