"""The `broker` command: one noun a module, heavy imports inside the commands.

Exit codes are those of `broker.core.errors`; ``logs -f`` ends with the job's own outcome instead. Messages go to
stderr, answers to stdout, and a mistake of a person never prints a traceback.
"""

import sys

import typer

from broker.cli import (
    access,
    audit,
    backup,
    doctor,
    events,
    history,
    job,
    jobs,
    market,
    nodes,
    policies,
    prices,
    probe,
    quarantine,
    serve,
    switches,
)
from broker.core.errors import BrokerError

_HELP = """Rents GPU capacity wherever it is cheapest and obtainable, and moves checkpointed training jobs there.

Exit codes: 0 ok, 1 failed, 2 wrong file or option, 3 not found, 4 not allowed, 5 conflict, 6 refused by a policy or
cap, 7 a cloud said no, 8 `broker audit` has found something. `broker logs -f` ends with the job: 0 succeeded, 100 failed, 103 cancelled.
"""


def build() -> typer.Typer:
    """The command tree."""
    app = typer.Typer(
        name="broker", help=_HELP, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
    )
    for module in (
        serve,
        access,
        jobs,
        job,
        events,
        prices,
        history,
        market,
        quarantine,
        nodes,
        policies,
        switches,
        probe,
        audit,
        backup,
        doctor,
    ):
        module.register(app)
    return app


def main(arguments: list[str] | None = None) -> int:
    """Run one command line; returns its exit code."""
    try:
        # Typer itself answers wrong options (2), Ctrl-C (130) and a reader that has gone (1), and always exits.
        typer.main.get_command(build())(args=arguments, prog_name="broker")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except BrokerError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0
