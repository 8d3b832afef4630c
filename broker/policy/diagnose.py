"""`broker policy check`: every mistake in files and folders, for people, for editors and for CI."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.core.errors import PolicyError
from broker.policy.extend import is_defaults
from broker.policy.load import defaults_files, judged, policy_files, read_file
from broker.policy.schema import Policy
from broker.policy.suspect import warnings
from broker.policy.ties import tie_error, ties


@dataclass(frozen=True)
class Checked:
    """What a check has found.

    Attributes:
        files: That were looked at; defaults among them.
        errors: In the order of the files; what two files have done together comes last.
        warnings: What is read without a mistake and is one most likely.
        policies: Those without a mistake.
    """

    files: tuple[Path, ...]
    errors: tuple[PolicyError, ...]
    warnings: tuple[PolicyError, ...] = ()
    policies: tuple[Policy, ...] = ()

    @property
    def count(self) -> str:
        """``2 policies, 1 mistake``."""
        defaults = sum(is_defaults(str(file)) for file in self.files)
        parts = [_count(len(self.files) - defaults, "policy", "policies")]
        if defaults:
            parts.append(_count(defaults, "file of defaults", "files of defaults"))
        parts.append(_count(len(self.errors), "mistake", "mistakes"))
        if self.warnings:
            parts.append(_count(len(self.warnings), "warning", "warnings"))
        return ", ".join(parts)


def check_file(path: Path) -> list[PolicyError]:
    """Every mistake in one policy file; empty when it is well. Never raises."""
    return _read(path)[1]


def check(paths: Iterable[Path]) -> Checked:
    """Every mistake in files and folders, also what only shows in two of them: one name, a tie. Never raises."""
    errors: list[PolicyError] = []
    files = list(dict.fromkeys(_files(paths, errors)))
    first_of: dict[str, Path] = {}
    policies: list[Policy] = []
    for path in files:
        policy, found = _read(path)
        errors += found
        if policy is None or is_defaults(str(path)):
            continue
        first = first_of.setdefault(policy.name, path)
        if first != path:
            hint = "a policy's name is unique in its folder"
            errors.append(PolicyError(f"{path}: the name {policy.name} is taken by {first}", hint=hint))
        policies.append(policy)
    errors += [tie_error(policy, first) for first, *others in ties(policies) for policy in others]
    # What several policies inherit is told once.
    doubted = {str(warning): warning for policy in policies for warning in warnings(policy)}
    return Checked(tuple(files), tuple(errors), tuple(doubted.values()), tuple(policies))


def _read(path: Path) -> tuple[Policy | None, list[PolicyError]]:
    try:
        policy, errors = judged(read_file(path), str(path))
    except PolicyError as error:
        return None, [error]
    return (None if errors else policy), errors


def _files(paths: Iterable[Path], errors: list[PolicyError]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        inside = [*defaults_files(path), *policy_files(path)]
        if not inside:
            errors.append(PolicyError(f"{path}: no policy files (*.yaml) in this folder"))
        files += inside
    return files


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def mistakes_as_json(errors: Sequence[PolicyError]) -> list[dict[str, Any]]:
    """Plain values; the place is null where a mistake has none in a file."""
    return [
        {
            "code": error.code,
            "message": error.message,
            "file": error.place.file if error.place else None,
            "line": error.place.line if error.place else None,
            "column": error.place.column if error.place else None,
            "hint": error.hint,
        }
        for error in errors
    ]
