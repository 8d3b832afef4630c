"""Errors: codes, exit codes, HTTP statuses. From the tree of `broker.core.errors`."""

from collections.abc import Iterator

from broker.cli.audit import FOUND
from broker.cli.job import OUTCOME_EXIT
from broker.core.errors import BrokerError, OutOfCapacity, Scoped
from broker.serve import problem

PAGE = "errors.md"

_INTRO = """\
# Errors

A command ends with the exit code of its error and one message on stderr: what, where (`file:line:column`, the line, a
caret), what to do. Over HTTP an error is an `application/problem+json` document with `status`, `code` (stable, for
programs), `detail`, `exit_code`, and where there is one `place` and `hint`.

| error | code | exit | HTTP | meaning |
|---|---|---|---|---|"""

_OUTCOMES = """
`broker logs -f` and `broker submit -f` end with the job's own outcome: {outcomes}. `broker audit` ends with {found}
when it has found something. A wrong option is 2, Ctrl-C 130."""


def render() -> str:
    """The page."""
    rows = [_row(kind, depth) for kind, depth in _tree(BrokerError, 0) if kind is not Scoped]
    outcomes = ", ".join(f"{code} {state}" for state, code in OUTCOME_EXIT.items())
    return "\n".join([_INTRO, *rows, _OUTCOMES.format(outcomes=outcomes, found=FOUND)])


def _tree(kind: type[BrokerError], depth: int) -> Iterator[tuple[type[BrokerError], int]]:
    yield kind, depth
    for child in kind.__subclasses__():
        # What a command adds to the tree is its own business; the tree of the core and the API is the contract.
        if child.__module__ in ("broker.core.errors", problem.__name__):
            yield from _tree(child, depth if kind is Scoped else depth + 1)


def _row(kind: type[BrokerError], depth: int) -> str:
    example = kind("") if not issubclass(kind, OutOfCapacity) else kind("", "zone")
    text = (kind.__doc__ or "").splitlines()[0]
    name = "&nbsp;" * 4 * depth + f"`{kind.__name__}`"
    return f"| {name} | `{kind.code}` | {kind.exit_code} | {problem.status_of(example).value} | {text} |"
