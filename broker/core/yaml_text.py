"""YAML that a person wrote, with the place of everything in it. Pure: text in, marked values out.

The one reader for job files and policy files. YAML 1.2: `yes` and `no` are text, only `true` and `false`
are booleans. Duplicate keys, anchors, tags and characters that cannot be seen are refused, since each of them makes
a file say something other than what it seems to say. How much a file may hold is in `broker.core.yaml_bounds`.

    document = parse(text, "train.yaml", SpecError)
    document.only(("name", "run"))                  # unknown keys, with a suggestion
    name = document.need("name").as_str()           # missing keys and wrong types, with their place
    raise document["name"].fail("taken", hint="choose another")
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.nodes import Node as RawNode

from broker.core.errors import Place, UsageError
from broker.core.yaml_bounds import (
    BOM,
    MAX_NUMBER,
    BoundedScanner,
    Refused,
    foreign_letter,
    refuse_unseen,
    unseen_in,
    wrong_key,
)

_TAG: Final = "tag:yaml.org,2002:"


class Node:
    """A value with its place: `Scalar`, `Sequence` or `Mapped`.

    Attributes:
        at: Where it starts.
        name: How messages call it: ``resources.gpus[1].count``; empty for the document.
    """

    def __init__(self, at: Place, name: str, error: type[UsageError]) -> None:
        self.at = at
        self.name = name
        self._error = error

    @property
    def value(self) -> Any:
        """The plain value: dict, list, str, int, float, bool or None."""
        raise NotImplementedError

    @property
    def kind(self) -> str:
        """What it is, in a person's words."""
        raise NotImplementedError

    def fail(self, message: str, hint: str | None = None) -> UsageError:
        """The error to raise when something is wrong with this value."""
        return self._error(message, self.at, hint)

    def wrong(self, wanted: str, hint: str | None = None) -> UsageError:
        """The error to raise when this value is not what it should be: ``nodes: expected ..., got text``."""
        return self.fail(f"{self.name or 'file'}: expected {wanted}, got {self.kind}", hint)

    def as_mapped(self) -> Mapped:
        """Itself, if it is a mapping."""
        if not isinstance(self, Mapped):
            raise self.wrong("a mapping (key: value)")
        return self

    def as_sequence(self) -> Sequence:
        """Itself, if it is a list."""
        if not isinstance(self, Sequence):
            raise self.wrong("a list")
        return self

    def as_str(self) -> str:
        """Its text, if it is text that is not empty."""
        if not isinstance(self, Scalar) or not isinstance(self._plain, str):
            hint = f'put it in quotes: "{self.text}"' if isinstance(self, Scalar) and self.text else None
            raise self.wrong("text", hint)
        if not self._plain.strip():
            raise self.fail(f"{self.name} is empty")
        return self._plain

    def as_int(self, minimum: int | None = None, maximum: int | None = None) -> int:
        """A whole number, at least `minimum` and at most `maximum`."""
        if not isinstance(self, Scalar) or isinstance(self._plain, bool) or not isinstance(self._plain, int):
            raise self.wrong("a whole number")
        if minimum is not None and self._plain < minimum:
            raise self.fail(f"{self.name}: {self._plain} is less than {minimum}")
        if maximum is not None and self._plain > maximum:
            raise self.fail(f"{self.name}: {self.text[:20]} is more than {maximum}")
        return self._plain

    def as_bool(self) -> bool:
        """True or false."""
        if not isinstance(self, Scalar) or not isinstance(self._plain, bool):
            raise self.wrong("true or false")
        return self._plain

    def as_decimal(self) -> Decimal:
        """A finite number, exactly as written: money never passes through float."""
        if (
            isinstance(self, Scalar)
            and isinstance(self._plain, int | float)
            and not isinstance(self._plain, bool)
        ):
            try:
                number = Decimal(self.text)
            except InvalidOperation:  # .inf, .nan, 0x10
                number = Decimal(self._plain)
            if number.is_finite():
                return number
        raise self.wrong("a number")

    def as_choice(self, options: Iterable[str]) -> str:
        """Text that is one of `options`."""
        text, known = self.as_str(), list(options)
        if text not in known:
            raise self.fail(
                f"{self.name}: {text!r} is not one of {', '.join(known)}", did_you_mean(text, known)
            )
        return text


class Scalar(Node):
    """One value.

    Attributes:
        text: As it stands in the file, without its quotes.
    """

    def __init__(self, plain: Any, text: str, at: Place, name: str, error: type[UsageError]) -> None:
        super().__init__(at, name, error)
        self._plain = plain
        self.text = text

    @property
    def value(self) -> Any:
        return self._plain

    @property
    def kind(self) -> str:
        match self._plain:
            case None:
                return "nothing"
            case bool():
                return f"{self.text} (true or false)"
            case int() | float():
                return f"the number {self.text}"
            case _:
                return f"the text {self.text[:40]!r}"


class Sequence(Node):
    """A list."""

    def __init__(self, items: list[Node], at: Place, name: str, error: type[UsageError]) -> None:
        super().__init__(at, name, error)
        self._items = items

    @property
    def value(self) -> list[Any]:
        return [item.value for item in self._items]

    @property
    def kind(self) -> str:
        return "a list"

    def place(self, index: int) -> Place:
        """Where an item starts."""
        return self._items[index].at

    def __iter__(self) -> Iterator[Node]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> Node:
        return self._items[index]


class Mapped(Node):
    """A mapping, keys in the order of the file. A key whose value is left empty has a `Scalar` of None."""

    def __init__(
        self, entries: dict[str, Node], keys: dict[str, Place], at: Place, name: str, error: type[UsageError]
    ) -> None:
        super().__init__(at, name, error)
        self._entries = entries
        self._keys = keys

    @property
    def value(self) -> dict[str, Any]:
        return {key: node.value for key, node in self._entries.items()}

    @property
    def kind(self) -> str:
        return "a mapping"

    def place(self, key: str) -> Place:
        """Where a key stands; the value's place is ``self[key].at``."""
        return self._keys[key]

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, key: str) -> Node:
        return self._entries[key]

    def items(self) -> Iterable[tuple[str, Node]]:
        """Keys and values in the order of the file."""
        return self._entries.items()

    def get(self, key: str) -> Node | None:
        """The value, or None when the key is missing or its value is left empty."""
        node = self._entries.get(key)
        return None if isinstance(node, Scalar) and node.value is None else node

    def need(self, key: str, hint: str | None = None) -> Node:
        """The value of a key that must be there."""
        node = self.get(key)
        if node is None:
            at = self._keys.get(key, self.at)
            raise self._error(f"{_join(self.name, key)} is missing", at, hint)
        return node

    def only(self, known: Iterable[str], later: Mapping[str, str] | None = None) -> None:
        """Refuse every key that is not in `known`.

        Args:
            known: Keys that may be here.
            later: Keys that will mean something one day, each with what to do until then.
        """
        options = list(known)
        for key in self._entries:
            if key in options:
                continue
            name, at = _join(self.name, key), self._keys[key]
            if later and key in later:
                raise self._error(f"{name} is not supported yet", at, later[key] or None)
            raise self._error(f"unknown key {name}", at, unknown_key_hint(key, options, later or ()))


def parse(
    text: str,
    file: str,
    error: type[UsageError] = UsageError,
    scanner: type[BoundedScanner] = BoundedScanner,
) -> Mapped:
    """A file whose top level is a mapping.

    Args:
        file: For messages.
        error: Class of every error that this file can cause.
        scanner: With its bounds; for files of which some are longer than any that a person writes.

    Raises:
        UsageError: of class `error`; no YAML, a duplicate key, an anchor, a tag, no mapping, more than
            `broker.core.yaml_bounds` allows, or a character that cannot be seen.
    """
    text = text.removeprefix(BOM)  # editors on Windows put it at the start; anywhere else it is refused
    lines = text.replace("\r\n", "\n").split("\n")

    def place(line: int, column: int) -> Place:
        return Place(file, line + 1, column + 1, lines[line] if line < len(lines) else "")

    yaml = YAML(typ="safe", pure=True)
    yaml.Scanner = scanner
    try:
        refuse_unseen(text)
        root = yaml.compose(text)
        if root is None:
            raise error("the file is empty", place(0, 0))
        return _Marker(place, error).read(root, "").as_mapped()
    except Refused as refused:
        raise error(refused.message, place(refused.line, refused.column), refused.hint) from None
    except MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        at = place(mark.line, mark.column) if mark else place(0, 0)
        hint = "indent with spaces" if "\\t" in str(problem.problem) else None
        if str(problem.problem).endswith("found another document"):
            raise error("a second document begins here (---): one file, one document", at) from None
        raise error(f"not YAML: {problem.problem or problem.context}", at, hint) from None
    except YAMLError as problem:  # a character that YAML does not allow: no mark
        raise error(f"not YAML: {str(problem).splitlines()[0]}", place(0, 0)) from None
    except RecursionError:
        raise error("nested too deeply", place(0, 0)) from None
    except OverflowError:  # ruamel 0.19 hands the code of an escape to chr() unchecked
        raise error("not YAML: an escape (\\U...) names no character", place(0, 0)) from None


def suggest(name: str, options: Iterable[str]) -> str | None:
    """The option that `name` was most likely meant to be, upper and lower case aside; None when none is near."""
    by_folded = {option.casefold(): option for option in options}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[close[0]] if close else None


def did_you_mean(name: str, options: Iterable[str]) -> str | None:
    """``did you mean nodes?`` or None."""
    near = suggest(name, options)
    return f"did you mean {near}?" if near else None


def unknown_key_hint(key: str, options: Iterable[str], later: Iterable[str] = ()) -> str:
    """What to do about a key that is not among `options` and `later`."""
    near = did_you_mean(key, [*options, *later]) or f"known keys are {', '.join(options)}"
    return f"{foreign}; {near}" if (foreign := foreign_letter(key)) else near


def _join(parent: str, key: str) -> str:
    return f"{parent}.{key}" if parent else key


class _Marker:
    """Turns ruamel's node graph into marked values."""

    def __init__(self, place: Any, error: type[UsageError]) -> None:
        self._place = place
        self._error = error

    def read(self, raw: RawNode, name: str) -> Node:
        at: Place = self._place(raw.start_mark.line, raw.start_mark.column)
        match raw:
            case MappingNode():
                return self._mapping(raw, at, name)
            case SequenceNode():
                self._plain_tag(raw, "seq", at)
                items = [self.read(item, f"{name}[{i}]") for i, item in enumerate(raw.value)]
                return Sequence(items, at, name, self._error)
            case ScalarNode():
                return Scalar(self._scalar(raw, at), raw.value, at, name, self._error)
        raise AssertionError(raw)

    def _mapping(self, raw: MappingNode, at: Place, name: str) -> Mapped:
        self._plain_tag(raw, "map", at)
        entries: dict[str, Node] = {}
        keys: dict[str, Place] = {}
        for raw_key, raw_value in raw.value:
            key_at: Place = self._place(raw_key.start_mark.line, raw_key.start_mark.column)
            key = self._key(raw_key, key_at)
            if key in entries:
                raise self._error(f"duplicate key {_join(name, key)}; first on line {keys[key].line}", key_at)
            entries[key] = self.read(raw_value, _join(name, key))
            keys[key] = key_at
        return Mapped(entries, keys, at, name, self._error)

    def _key(self, raw: RawNode, at: Place) -> str:
        key = str(raw.value) if isinstance(raw, ScalarNode) else ""
        if wrong := wrong_key(key):
            raise self._error(wrong, at)
        return key

    def _scalar(self, raw: ScalarNode, at: Place) -> Any:
        text, tag = str(raw.value), str(raw.tag)
        if unseen := unseen_in(text):
            raise self._error(f"{unseen} cannot be seen", at, "leave it out")
        if len(text) > MAX_NUMBER and tag.removeprefix(_TAG) in ("int", "float"):
            raise self._error(f"a number of {len(text)} characters; {MAX_NUMBER} are allowed", at)
        # Python and the parser take 1_3 for 13; YAML 1.2 does not, and neither does anybody who meant 1.3.
        if tag.removeprefix(_TAG) in ("int", "float") and "_" in text:
            raise self._error(f"{text[:40]!r} is not a number", at, "leave the _ out, or put it in quotes")
        try:
            match tag.removeprefix(_TAG):
                case "null":
                    return None
                case "bool":
                    return text.casefold() == "true"
                case "int":
                    return int(text, 0) if text.lower().startswith(("0x", "0o", "0b")) else int(text)
                case "float":
                    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
                case "str" | "timestamp" | "merge" | "value":
                    return text
        except ValueError:
            raise self._error(f"{text!r} is not a number", at, f'put it in quotes: "{text}"') from None
        raise self._tag(raw, at)

    def _plain_tag(self, raw: RawNode, wanted: str, at: Place) -> None:
        if str(raw.tag) != _TAG + wanted:
            raise self._tag(raw, at)

    def _tag(self, raw: RawNode, at: Place) -> UsageError:
        hint = "text that begins with ! goes in quotes"
        return self._error(f"the tag {raw.tag} is not supported", at, hint)
