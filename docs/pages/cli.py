"""Every command of `broker`, from the command tree itself."""

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from broker.cli.app import build

PAGE = "cli.md"

_INTRO = """\
# `broker`

Answers go to stdout, messages to stderr. On a terminal an answer is a table, or a block a row where it is too narrow
for one; ids are never cut. In a pipe it is one line a row with tabs between and no header; with `--json` it is what
the API said. `NO_COLOR` is honoured. A job is named by its id, or by its name (then the newest of that name is
meant). Exit codes: [errors](errors.md).

The commands reach the daemon of `broker login`, or of `$BROKER_URL`, `$BROKER_TOKEN` and `$BROKER_CA` (a file).
"""


def render() -> str:
    """The page."""
    root = typer.main.get_command(build())
    return "\n".join([_INTRO, *_commands("broker", root)])


def _commands(name: str, command: Any) -> Iterator[str]:
    children = getattr(command, "commands", {})
    if name != "broker":
        yield from _command(name, command)
    for child in sorted(children):
        yield from _commands(f"{name} {child}", children[child])


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *map(_metavar, arguments)])
    if getattr(command, "commands", None):
        usage += " [COMMAND]"
    yield f"## `{name}`\n"
    yield f"```\n{usage}\n```\n"
    yield inspect.cleandoc(command.help or "") + "\n"
    if arguments or options:
        yield "| | |"
        yield "|---|---|"
        for argument in arguments:
            yield f"| `{_metavar(argument)}` | {argument.help or ''}{_default(argument)} |"
        for option in options:
            flags = ", ".join(f"`{flag}`" for flag in option.opts)
            yield f"| {flags} | {option.help or ''}{_default(option)} |"
        yield ""


def _metavar(argument: Any) -> str:
    text = argument.metavar or argument.name.upper()
    text = f"{text}..." if argument.nargs != 1 else text
    return text if argument.required else f"[{text}]"


def _default(param: Any) -> str:
    value = param.default
    if param.required or value in (None, "", False) or callable(value):
        return ""
    return f" Default: `{value}`."
