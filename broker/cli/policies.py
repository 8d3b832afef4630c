"""`broker policy check`: every mistake of policy files, before the daemon sees them."""

from pathlib import Path
from typing import Annotated

import typer

from broker.cli import backtest, policy_new, policy_test
from broker.cli.output import AsJson, say, show_json
from broker.core.errors import UsageError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
policy_test.register(app)
policy_new.register(app)
backtest.register(app)


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
    from broker.policy.diagnose import check as check_files
    from broker.policy.diagnose import mistakes_as_json

    checked = check_files(paths)
    if as_json:
        files = [str(file) for file in checked.files]
        show_json({"files": files, "mistakes": mistakes_as_json(checked.errors)})
    else:
        for mistake in checked.errors:
            say(f"{mistake}\n")
        say(checked.count)
    if checked.errors:
        raise typer.Exit(UsageError.exit_code)


@app.command()
def schema(
    defaults: Annotated[
        bool, typer.Option("--defaults", help="Of a *.defaults.yaml, which has no name.")
    ] = False,
) -> None:
    """Print the JSON Schema of a policy file, for editors: completion, meanings, and mistakes while you type."""
    from broker.policy.json_schema import policy_schema

    show_json(policy_schema(is_defaults=defaults))
