"""Single values of a policy file: durations, shares, money, names, lists, conditions. Each error at its place.

A `Kind` reads a value, and says in JSON Schema how it is written: an editor and the daemon cannot differ on it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Generic, TypeVar

from broker.core.errors import PolicyError
from broker.core.money import micro_usd
from broker.core.time import DAY_S, format_duration, parse_duration
from broker.core.yaml_text import Node, Scalar
from broker.policy.conditions import MAX_TEXT, compile_condition
from broker.policy.facts import Line, facts_for
from broker.policy.schema import Condition

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
S = TypeVar("S", bound=str)

_NAME: Final = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_PATTERN: Final = "[A-Za-z0-9*][A-Za-z0-9*._-]{0,99}"
_FILE: Final = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}\.yaml"
_DURATION: Final = r"[\s0-9.smhdw]*[smhdw]\s*"
_SHARE: Final = r"\s*([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\s*%\s*"
_READINGS: Final = "(?:[1-9]|10) readings?"
MOST_READINGS: Final = 10  # as many as are kept: `broker.jobs.metrics.KEPT`
_LONGEST_S: Final = 366 * DAY_S
_MOST_USD: Final = 1_000_000_000

# Nobody reads more, and each costs time: a condition some milliseconds at worst.
_MOST_ITEMS: Final = 200
_MOST_CONDITIONS: Final = 30


@dataclass(frozen=True)
class Kind(Generic[T_co]):
    """How a value is written.

    Attributes:
        read: Its value, or a PolicyError at its place.
        schema: The same as JSON Schema, as far as that reaches: it accepts whatever `read` accepts.
        words: For messages, where a mapping would do as well.
    """

    read: Callable[[Node], T_co]
    schema: Mapping[str, Any]
    words: str = ""

    def __call__(self, node: Node) -> T_co:
        return self.read(node)


def _name(node: Node) -> str:
    text = node.as_str()
    if not re.fullmatch(_NAME, text):
        raise node.fail(
            f"{node.name}: {text!r} is not a name",
            "lower-case letters, digits and dashes, as in ride-the-spot",
        )
    return text


def _file_name(node: Node) -> str:
    text = node.as_str()
    if not re.fullmatch(_FILE, text):
        hint = "a file in the same folder, as in team.defaults.yaml"
        raise node.fail(f"{node.name}: {text!r} is not the name of a policy file", hint)
    return text


def _seconds(minimum_s: int) -> Callable[[Node], int]:
    def read(node: Node) -> int:
        if not isinstance(node, Scalar) or node.value is None:
            raise node.wrong("a duration", "write 90s, 10m, 2h or 1d")
        text = node.text.strip()
        if text.startswith("-"):
            raise node.fail(f"{node.name}: a duration is not negative")
        if not isinstance(node.value, str):
            unit = f"write {text}s or {text}m" if isinstance(node.value, int) else "write 90s, 10m, 2h or 1d"
            raise node.wrong("a duration", unit)
        try:
            seconds = parse_duration(text)
        except ValueError as error:
            raise node.fail(f"{node.name}: {error}") from None
        if not minimum_s <= seconds <= _LONGEST_S:
            bound = f"at least {format_duration(minimum_s)}" if seconds < minimum_s else "at most 366d"
            raise node.fail(f"{node.name}: {text} is out of range", f"{bound}")
        return seconds

    return read


def _share(node: Node) -> float:
    if not isinstance(node, Scalar) or node.value is None:
        raise node.wrong("a share", "write 20%")
    text = node.text.strip()
    if not text.endswith("%"):
        raise node.wrong("a share", f"write {_percent(text)}%")
    try:
        percent = Decimal(text[:-1].strip()) if re.fullmatch(_SHARE, text, re.ASCII) else None
    except InvalidOperation:
        percent = None
    if percent is None and not text.startswith("-"):
        raise node.fail(f"{node.name}: {text!r} is not a share", "write 20%")
    if percent is None or not percent.is_finite() or not 0 <= percent <= 100:
        raise node.fail(f"{node.name}: {text} is out of range", "0% to 100%")
    return float(percent / 100)


def _percent(text: str) -> str:
    """What a bare number was meant to be: 0.2 and 20 are both 20 %."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return "20"
    if not number.is_finite() or not 0 < number <= 100:
        return "20"
    return f"{(number * 100 if number <= 1 else number).normalize():f}"


def _money(node: Node) -> int:
    if isinstance(node, Scalar) and isinstance(node.value, str) and node.text.strip().startswith("$"):
        raise node.wrong("dollars as a number", f"write {node.text.strip()[1:]}")
    amount = node.as_decimal()
    if not 0 <= amount <= _MOST_USD:
        raise node.fail(f"{node.name}: {node.value} dollars is out of range", f"0 to {_MOST_USD}")
    return micro_usd(amount)


def _positive_money(node: Node) -> int:
    amount = _money(node)
    if amount == 0:
        raise node.fail(f"{node.name}: 0 dollars would forbid everything", "leave the key out for no bound")
    return amount


def _region(node: Node) -> str:
    text = node.as_str()
    if not re.fullmatch(_PATTERN, text):
        raise node.fail(f"{node.name}: {text!r} is not a region pattern", 'as in "us-*"')
    return text


def _labels(node: Node) -> dict[str, str]:
    entries = node.as_mapped()
    if len(entries) == 0:
        raise node.fail(f"{node.name} is empty", "leave the key out, or write at least one")
    if len(entries) > _MOST_ITEMS:
        raise node.fail(f"{node.name} has {len(entries)} entries; {_MOST_ITEMS} are allowed")
    return {key: value.as_str() for key, value in entries.items()}


def _moves(node: Node) -> int:
    count = node.as_int(0)
    if count == 0:
        raise node.fail(f"{node.name}: 0 would forbid every move", "write migrate: never")
    return count


def _readings(node: Node) -> int:
    text = node.as_str() if isinstance(node, Scalar) and isinstance(node.value, str) else ""
    if not re.fullmatch(_READINGS, text):
        raise node.wrong(f"1 to {MOST_READINGS} readings", "as in 3 readings")
    return int(text.split()[0])


def _never(node: Node) -> None:
    if not isinstance(node, Scalar) or node.value != "never":
        raise node.wrong("a mapping or never")


def _whole(pattern: str) -> str:
    """A pattern for all of a text: JSON Schema looks for it anywhere."""
    return f"^(?:{pattern})$"


_TEXT: Final = {"type": "string", "pattern": r"\S"}
_DOLLARS: Final = {"type": "number", "minimum": 0, "maximum": _MOST_USD}

text: Final = Kind(Node.as_str, _TEXT)
name: Final = Kind(_name, {"type": "string", "pattern": _whole(_NAME)})
file_name: Final = Kind(_file_name, {"type": "string", "pattern": _whole(_FILE)})
truth: Final = Kind(Node.as_bool, {"type": "boolean"})
duration: Final = Kind(_seconds(0), {"type": "string", "pattern": _whole(_DURATION)})
positive_duration: Final = Kind(_seconds(1), duration.schema)
share: Final = Kind(_share, {"type": "string", "pattern": _whole(_SHARE)})
money: Final = Kind(_money, _DOLLARS)
positive_money: Final = Kind(_positive_money, {"type": "number", "exclusiveMinimum": 0, "maximum": _MOST_USD})
region: Final = Kind(_region, {"type": "string", "pattern": _whole(_PATTERN)})
moves: Final = Kind(_moves, {"type": "integer", "minimum": 1})
readings: Final = Kind(_readings, {"type": "string", "pattern": _whole(_READINGS)})
never: Final = Kind(_never, {"const": "never"}, "never")
labels: Final = Kind(
    _labels,
    {"type": "object", "minProperties": 1, "maxProperties": _MOST_ITEMS, "additionalProperties": _TEXT},
)


def integer(minimum: int, maximum: int) -> Kind[int]:
    """A whole number within bounds."""
    schema = {"type": "integer", "minimum": minimum, "maximum": maximum}
    return Kind(lambda node: node.as_int(minimum, maximum), schema)


def choice(options: Iterable[S]) -> Kind[S]:
    """One of some words, as the member of the enumeration that they come from."""
    known = tuple(options)
    return Kind(
        lambda node: known[known.index(node.as_choice(known))], {"enum": [str(word) for word in known]}
    )


def several(item: Kind[T], *, least: int = 1, most: int = _MOST_ITEMS) -> Kind[tuple[T, ...]]:
    """A list that names nothing twice."""

    def read(node: Node) -> tuple[T, ...]:
        nodes = node.as_sequence()
        if len(nodes) < least:
            raise node.fail(f"{node.name} is empty", "leave the key out, or write at least one")
        if len(nodes) > most:
            raise nodes[most].fail(f"{node.name} has {len(nodes)} entries; {most} are allowed")
        values: list[T] = []
        for child in nodes:
            value = item(child)
            if value in values:
                raise child.fail(f"{node.name}: {child.value} stands here twice")
            values.append(value)
        return tuple(values)

    schema = {"type": "array", "items": item.schema, "minItems": least, "maxItems": most, "uniqueItems": True}
    return Kind(read, schema)


def one_or_several(item: Kind[T]) -> Kind[tuple[T, ...]]:
    """One value or a list of them."""
    many = several(item)
    return Kind(
        lambda node: (item(node),) if isinstance(node, Scalar) else many(node),
        {"anyOf": [item.schema, many.schema]},
    )


def conditions(line: Line) -> Kind[tuple[Condition, ...]]:
    """A list of conditions over the facts of that list."""

    def read(node: Node) -> Condition:
        text = node.as_str()
        at = node.at
        # The place of a quoted text is its quote, that of a block its indicator: a caret wants the text.
        start = at.source.find(text.splitlines()[0], at.column - 1)
        if 0 <= start - (at.column - 1) <= 1:
            at = type(at)(at.file, at.line, start + 1, at.source)
        condition = compile_condition(text, at, facts_for(line, text))
        if line is Line.STOP_WHEN and not any(name.startswith("metrics.") for name in condition.needs):
            raise PolicyError("a line of stop.when speaks of a metric", at, "as in metrics.loss > 10.0")
        if not condition.needs:
            raise PolicyError(
                "the condition speaks of no fact: it never changes", at, "docs/reference/facts.md"
            )
        return condition

    return several(Kind(read, _TEXT | {"maxLength": MAX_TEXT}), most=_MOST_CONDITIONS)
