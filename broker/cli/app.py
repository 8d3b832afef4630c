"""The `broker` command: one noun a module, heavy imports inside the commands.

Exit codes are those of `broker.core.errors`; ``logs -f`` ends with the job's own outcome instead. Messages go to
stderr, answers to stdout, and a mistake of a person never prints a traceback.
"""

import errno
import os
import sys
from contextlib import suppress
from typing import TextIO

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
    savings,
    serve,
    shadow,
    simulate,
    switches,
)
from broker.core.errors import BrokerError

# Of a stream: its disk is full, its reader has gone, its device has failed.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EPIPE, errno.EIO)

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
        savings,
        shadow,
        simulate,
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
    # A stream that was closed before we began is None in Python.
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    try:
        code = _run(arguments)
        # Now, and not as the interpreter ends: there a failure is told in its own words, and is no exit code.
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as error:
        if error.errno not in _UNWRITABLE or error.filename is not None:
            raise
        return _unwritten(error)
    return code


def _run(arguments: list[str] | None) -> int:
    try:
        # Typer itself answers wrong options (2), Ctrl-C (130) and a reader that has gone (1), and always exits.
        typer.main.get_command(build())(args=arguments, prog_name="broker")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except BrokerError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _unwritten(error: OSError) -> int:
    """Say that something could not be written; who reads no further need not be told."""
    _drop(sys.stdout)
    if error.errno != errno.EPIPE:
        with suppress(OSError):
            print(f"error: cannot write: {error.strerror}", file=sys.stderr, flush=True)
    _drop(sys.stderr)
    return 1


def _drop(stream: TextIO) -> None:
    """What it still holds and cannot write goes nowhere, so that the interpreter does not fail on it at its end."""
    try:
        stream.flush()
    except OSError:
        with _nowhere() as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")
