"""`broker policy`: everything about policy files; a file a command where it is more than a few lines."""

from typing import Annotated

import typer

from broker.cli import backtest, policy_check, policy_new, policy_test
from broker.cli.output import show_json

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
policy_check.register(app)
policy_test.register(app)
policy_new.register(app)
backtest.register(app)


def register(parent: typer.Typer) -> None:
    """Add the commands."""
    parent.add_typer(app, name="policy", help="Write, check, test and back-test policy files.")


@app.callback()
def _policy() -> None:
    """Write, check, test and back-test policy files. None of it needs a daemon."""


@app.command()
def schema(
    defaults: Annotated[
        bool, typer.Option("--defaults", help="Of a *.defaults.yaml, which has no name.")
    ] = False,
) -> None:
    """Print the JSON Schema of a policy file, for editors: completion, meanings, and mistakes while you type."""
    from broker.policy.json_schema import policy_schema

    show_json(policy_schema(is_defaults=defaults))
