"""Whether a command line would be understood, without running it."""

import argparse
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import botocore.exceptions
import botocore.session
import typer
from botocore import xform_name

from broker.cli.app import build
from lab import __main__ as lab
from lab import ctl
from tests.docs.pages import ROOT

# Programs of others that pages name. What they do is not ours to test; the files of ours that they are given are.
FOREIGN = [
    "az",
    "bash",
    "cat",
    "cd",
    "cp",
    "docker",
    "export",
    "gcloud",
    "grep",
    "install",
    "journalctl",
    "kill",
    "kubectl",
    "mkdir",
    "python3",
    "sed",
    "set",
    "source",
    "sqlite3",
    "systemctl",
    "until",
    "wait",
    "curl",
    "mv",
    "tail",
]
_OURS = ("deploy", "docs", "policies", "broker", "providers", "lab", "tests")
_BROKER: Any = typer.main.get_command(build())


class Misunderstood(AssertionError):
    """The program would refuse this command line."""


def check(line: str) -> None:
    """Parse a command line as its program would.

    Raises:
        Misunderstood: it would be refused, or names a file of the repository that is not there.
    """
    words = _words(line)
    if not words:
        return
    program = words[0].rpartition("/")[2]
    if program == "broker":
        parse_broker(words[1:])
    elif program in ("python", "python3") and words[1:2] == ["-m"]:
        _parse_module(words[2], words[3:])
    elif program == "make":
        _parse_make(words[1:])
    elif program == "aws":
        _parse_aws(words[1:])
    elif program == "pip":
        _parse_pip(words[1:])
    elif program not in FOREIGN:
        raise Misunderstood(f"{line}: who is {words[0]}?")
    for word in words[1:]:
        path = word.strip("'\"")
        if path.split("/")[0] in _OURS and "/" in path and not (ROOT / path).exists():
            raise Misunderstood(f"{line}: there is no {path}")


def parse_broker(words: list[str]) -> None:
    """Every option and argument as the command defines it; nothing is run."""
    command, name = _BROKER, "broker"
    parent: Any = None
    try:
        while True:
            context = command.make_context(name, list(words), parent=parent)
            rest = [*getattr(context, "_protected_args", ()), *context.args]
            if not getattr(command, "commands", None) or not rest:
                return
            name, command, words = command.resolve_command(context, rest)
            parent = context
    except typer.Exit:
        return  # --help
    except Exception as error:
        if type(error).__module__.startswith(("click", "typer")):
            raise Misunderstood(
                f"broker {shlex.join(words)}: {getattr(error, 'message', '') or error}"
            ) from error
        raise


def parse_mention(words: list[str]) -> None:
    """A command named in a sentence: it exists, and so do its options. Arguments may be missing or be placeholders."""
    command = _BROKER
    words = list(words)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if command is _BROKER and words:
        raise Misunderstood(f"broker has no command {words[0]}")
    known = {flag for parameter in command.params for flag in parameter.opts}
    takes_arguments = any(parameter.param_type_name == "argument" for parameter in command.params)
    for word in words:
        flag = word.partition("=")[0]
        if flag.startswith("-") and flag not in known | {"--help"}:
            raise Misunderstood(f"broker ... {' '.join(words)}: no option {flag}")
        if flag[0].islower() and getattr(command, "commands", None) and not takes_arguments:
            raise Misunderstood(f"no command {word} there")


def _words(line: str) -> list[str]:
    """The words up to the first pipe, redirection or ``;``, without leading assignments and a trailing ``&``."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if re.fullmatch(r"[|&;<>()]+", word):
            break
        if words or not re.fullmatch(r"[A-Z_]+=.*", word):
            words.append(word)
    return words


def _parse_module(module: str, words: list[str]) -> None:
    parsers = {"lab": lab.parser, "lab.ctl": ctl.parser}
    if module in ("pytest", "venv"):
        return
    if module in parsers:
        _argparse(parsers[module](), words)
    elif (
        not (ROOT / Path(*module.split("."))).with_suffix(".py").exists()
        and not (ROOT / Path(*module.split("."), "__main__.py")).exists()
    ):
        raise Misunderstood(f"python -m {module}: there is no such module")


def _argparse(parser: argparse.ArgumentParser, words: list[str]) -> None:
    try:
        parser.parse_args(words)
    except SystemExit as error:
        if error.code:
            raise Misunderstood(f"{parser.prog} {shlex.join(words)}") from error


def _parse_aws(words: list[str]) -> None:
    """Service, operation and options as the AWS CLI makes them of botocore's models; `s3` is a program of its own."""
    if words[0] == "s3":
        return
    session = botocore.session.get_session()
    try:
        model = session.get_service_model(words[0])
        names = {xform_name(name, "-"): name for name in model.operation_names}
        shape = model.operation_model(names[words[1]]).input_shape
    except (botocore.exceptions.UnknownServiceError, KeyError) as error:
        raise Misunderstood(f"aws {shlex.join(words[:2])}: there is no such call") from error
    known = {f"--{xform_name(name, '-')}" for name in (shape.members if shape else ())}
    needed = {f"--{xform_name(name, '-')}" for name in (shape.required_members if shape else ())}
    given = {word.partition("=")[0] for word in words[2:] if word.startswith("--")}
    if wrong := given - known - {"--region", "--query", "--output", "--profile"}:
        raise Misunderstood(f"aws {shlex.join(words)}: no option {', '.join(sorted(wrong))}")
    if missing := needed - given:
        raise Misunderstood(f"aws {shlex.join(words)}: needs {', '.join(sorted(missing))}")


def _parse_pip(words: list[str]) -> None:
    """What is installed is this checkout, with extras that it has: there is no package of ours anywhere else."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    what = [word for word in words[1:] if word.startswith(".")]
    if words[:1] != ["install"] or len(what) != 1:
        raise Misunderstood(f"pip {shlex.join(words)}: it installs a folder, the checkout")
    named = re.fullmatch(r"\.(?:\[([a-z,]+)\])?", what[0])
    if named is None or not set(named[1].split(",") if named[1] else ()) <= extras.keys():
        raise Misunderstood(f"pip {shlex.join(words)}: extras are {', '.join(extras)}")


def _parse_make(words: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    for word in words:
        if "=" not in word and word not in targets:
            raise Misunderstood(f"make {word}: there is no such target")
