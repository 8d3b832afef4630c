"""Words for mistakes in `broker.toml` and its environment variables: place, source line, suggestion."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import get_args

from pydantic import BaseModel, ValidationError

from broker.core.errors import Place, SettingsError
from broker.core.wrong_value import name_of, of_one_value, words
from broker.core.yaml_text import did_you_mean

_SYNTAX = re.compile(r"^(?P<what>.*) \(at line (?P<line>\d+), column (?P<column>\d+)\)$")
_HEADER = re.compile(r"^\s*\[\[?\s*(?P<name>[^\[\]]+?)\s*\]")

Path = tuple[str | int, ...]


class Document:
    """The text of a configuration file, to point into it.

    Attributes:
        file: For messages.
        text: The whole file.
    """

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text

    def place(self, path: Path) -> Place | None:
        """Where `path` (section, key) is written; the section's header when the key is not; None when neither is."""
        keys = [str(part) for part in path]
        section: list[str] = []
        found: Place | None = None
        for number, line in enumerate(self.text.splitlines(), start=1):
            if header := _HEADER.match(line):
                section = [part.strip().strip("\"'") for part in header["name"].split(".")]
                if section and keys[: len(section)] == section:
                    found = Place(self.file, number, line.index("[") + 1, line.rstrip())
                    if section == keys:
                        return found
                continue
            rest = keys[len(section) :]
            if keys[: len(section)] != section or not rest:
                continue
            if re.match(rf"""^\s*(["']?){re.escape(rest[0])}\1\s*[.=]""", line):
                return Place(self.file, number, len(line) - len(line.lstrip()) + 1, line.rstrip())
        return found

    def syntax_error(self, error: ValueError | RecursionError) -> SettingsError:
        """The parser's complaint with its place."""
        if not isinstance(error, tomllib.TOMLDecodeError):
            # Python's own limits; the parser does not say where it was.
            what = "it is nested too deeply" if isinstance(error, RecursionError) else "a number is too long"
            return SettingsError(f"{self.file}: not TOML: {what}")
        told = _SYNTAX.match(str(error))
        if told is None:
            what = str(error).removesuffix(" (at end of document)")
            return SettingsError(f"not TOML: {what}", Place(self.file, max(1, self.text.count("\n")), 1))
        line = int(told["line"])
        source = (self.text.splitlines() or [""])[min(line, self.text.count("\n") + 1) - 1]
        return SettingsError(
            f"not TOML: {told['what']}", Place(self.file, line, int(told["column"]), source.rstrip())
        )

    def wrong(
        self, path: Path, message: str, hint: str | None = None, known: Iterable[str] = ()
    ) -> SettingsError:
        """An error at `path`; a near miss among `known` becomes the hint."""
        place = self.place(path)
        where = "" if place else f"{'.'.join(str(part) for part in path)}: "
        return SettingsError(where + message, place, hint or suggestion(str(path[-1]), known))


def suggestion(word: str, known: Iterable[str]) -> str | None:
    """A hint for a key that nobody knows: the nearest one, else all of them."""
    choices = sorted(known)
    return did_you_mean(word, choices) or (f"known here: {', '.join(choices)}" if choices else None)


def explain(
    error: ValidationError,
    document: Document,
    model: type[BaseModel],
    environ: Mapping[str, str],
    prefix: str,
) -> SettingsError:
    """The first complaint of pydantic in our words, at its place in the file or as the variable's name."""
    path, mistakes = of_one_value(error.errors(include_url=False))
    if mistakes[0]["type"] == "extra_forbidden":
        message, hint = f"unknown key {path[-1]!r}", suggestion(str(path[-1]), _keys(model, path[:-1]))
    else:
        message, hint = words(mistakes, table="a table")
        message = f"{name_of(path)}: {message}"
    variable = prefix + "__".join(str(part).upper() for part in path)
    for name in map(str.upper, environ):
        if name == variable or name.startswith(f"{variable}__"):
            return SettingsError(f"environment variable {name}: {message}", hint=hint)
    return document.wrong(path, message, hint)


def refuse_unknown_variables(environ: Mapping[str, str], prefix: str, sections: Iterable[str]) -> None:
    """A variable ``BROKER_X__Y`` whose X is no section is a slip, and would otherwise do nothing.

    ``BROKER_X`` for the whole of section X is one too, unless it is JSON.

    Raises:
        SettingsError: there is one.
    """
    known = tuple(sections)
    for name, value in environ.items():
        section = name.upper().removeprefix(prefix).lower()
        if name.upper().startswith(prefix) and section in known and not _is_json(value):
            hint = f"one key of it is set by {prefix}{section.upper()}__KEY"
            raise SettingsError(f"environment variable {name}: [{section}] is a section, no key", hint=hint)
    for name in environ:
        section, nested, _ = name.upper().removeprefix(prefix).partition("__")
        if name.upper().startswith(prefix) and nested and section.lower() not in known:
            raise SettingsError(
                f"environment variable {name}: no section [{section.lower()}]",
                hint=suggestion(section.lower(), known),
            )


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _keys(model: type[BaseModel], path: Path) -> list[str]:
    """The keys that `model` knows at `path`, as the file spells them."""
    for part in path:
        field = model.model_fields.get(str(part))
        if field is None:
            return []
        inner = [kind for kind in (field.annotation, *get_args(field.annotation)) if isinstance(kind, type)]
        model = next((kind for kind in inner if issubclass(kind, BaseModel)), model)
    return [field.alias or name for name, field in model.model_fields.items()]
