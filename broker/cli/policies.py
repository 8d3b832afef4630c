"""`broker policy check`: every mistake of policy files, before the daemon sees them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import policy_new, policy_test
from broker.cli.output import AsJson, say, show_json
from broker.core.errors import UsageError

if TYPE_CHECKING:
    from broker.policy.schema import Policy

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
policy_test.register(app)
policy_new.register(app)


def register(parent: typer.Typer) -> None:
    """Add the commands."""
    parent.add_typer(app, name="policy", help="Check policy files.")


@app.callback()
def _policy() -> None:
    """Check policy files."""


@app.command()
def check(
    paths: Annotated[list[Path], typer.Argument(help="Policy files, or folders of them.")],
    as_json: AsJson = False,
) -> None:
    """Print every mistake with file:line:column, the line, a caret and a hint; exit 2 when there is one."""
    from broker.policy.load import load_policy, mistakes, policy_files, read_file
    from broker.policy.ties import tie_error, ties

    files = [file for path in paths for file in (policy_files(path) if path.is_dir() else [path])]
    if not files:
        raise UsageError(f"no policy files in {', '.join(map(str, paths))}", hint="policies are *.yaml")
    found: list[UsageError] = []
    names: dict[str, Path] = {}
    read: list[Policy] = []
    for file in files:
        try:
            text = read_file(file)
        except UsageError as error:
            found.append(error)
            continue
        wrong = mistakes(text, str(file))
        found += wrong
        if not wrong:
            read.append(load_policy(text, str(file)))
            name = read[-1].name
            first = names.setdefault(name, file)
            if first != file:
                found.append(
                    UsageError(f"{file}: the name {name} is taken by {first}", hint="rename one of them")
                )
    found += [tie_error(policy, first) for first, *others in ties(read) for policy in others]
    if as_json:
        show_json(
            {"files": [str(file) for file in files], "mistakes": [_plain(mistake) for mistake in found]}
        )
    else:
        for mistake in found:
            say(f"{mistake}\n")
        policies = "policy" if len(files) == 1 else "policies"
        say(f"{len(files)} {policies}, {len(found)} {'mistake' if len(found) == 1 else 'mistakes'}")
    if found:
        raise typer.Exit(UsageError.exit_code)


def _plain(error: UsageError) -> dict[str, object]:
    place = error.place
    return {
        "message": error.message,
        "file": place.file if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "hint": error.hint,
    }
