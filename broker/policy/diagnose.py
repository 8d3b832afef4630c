"""`broker policy check`: every mistake in files and folders, for people, for editors and for CI."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from broker.core.errors import PolicyError
from broker.policy.load import load_policy, mistakes, policy_files, read_file


def check_file(path: Path) -> list[PolicyError]:
    """Every mistake in one policy file; empty when it is well. Never raises."""
    try:
        return mistakes(read_file(path), str(path))
    except PolicyError as error:
        return [error]


def check(paths: Iterable[Path]) -> list[PolicyError]:
    """Every mistake in files and folders, names that two files share among them. Never raises."""
    errors: list[PolicyError] = []
    names: dict[str, Path] = {}
    for path in dict.fromkeys(_files(paths, errors)):
        found = check_file(path)
        errors += found
        if found:
            continue
        name = load_policy(read_file(path), str(path)).name
        first = names.setdefault(name, path)
        if first != path:
            hint = "a policy's name is unique in its folder"
            errors.append(PolicyError(f"{path}: the name {name} is taken by {first}", hint=hint))
    return errors


def _files(paths: Iterable[Path], errors: list[PolicyError]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        inside = policy_files(path)
        if not inside:
            errors.append(PolicyError(f"{path}: no policy files (*.yaml) in this folder"))
        files += inside
    return files


def as_text(errors: Sequence[PolicyError]) -> str:
    """Each with its place, source line, caret and hint; then the count."""
    if not errors:
        return "no mistakes\n"
    count = "1 mistake" if len(errors) == 1 else f"{len(errors)} mistakes"
    return "\n\n".join(str(error) for error in errors) + f"\n\n{count}\n"


def as_json(errors: Sequence[PolicyError]) -> list[dict[str, Any]]:
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
