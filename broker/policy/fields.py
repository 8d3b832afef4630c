"""Single values of a policy file: durations, shares, money, names, lists, conditions. Each error at its place."""

import re
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from typing import Final, TypeVar

from broker.core.errors import PolicyError
from broker.core.money import micro_usd
from broker.core.time import DAY_S, format_duration, parse_duration
from broker.core.yaml_text import Mapped, Node, Scalar, unknown_key_hint
from broker.policy.conditions import compile_condition
from broker.policy.facts import Line, facts_for
from broker.policy.schema import Condition

T = TypeVar("T")
D = TypeVar("D")
S = TypeVar("S", bound=str)

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_PATTERN: Final = re.compile(r"[A-Za-z0-9*][A-Za-z0-9*._-]{0,99}")
_LONGEST_S: Final = 366 * DAY_S
_MOST_USD: Final = Decimal(1_000_000_000)

# Nobody reads more, and each costs time: a condition some milliseconds at worst, an unknown key half a one.
_MOST_ITEMS: Final = 200
_MOST_CONDITIONS: Final = 30
_TOLD: Final = 20


class Section:
    """A mapping that is read key by key; mistakes are collected, so that a check tells of all of them.

    Attributes:
        node: The mapping.
    """

    def __init__(self, node: Mapped, errors: list[PolicyError]) -> None:
        self.node = node
        self._errors = errors

    def note(self, error: PolicyError) -> None:
        """Keep a mistake."""
        self._errors.append(error)

    def read(self, key: str, reader: Callable[[Node], T], default: D) -> T | D:
        """The value of a key, or its default where the key is absent or wrong.

        A key whose value is left empty is a mistake and no default: it was written for some reason.
        """
        if key not in self.node:
            return default
        if self.node.get(key) is None:
            hint = "write a value, or leave the key out"
            self.note(PolicyError(f"{self._name(key)} is empty", self.node.place(key), hint))
            return default
        try:
            return reader(self.node[key])
        except PolicyError as error:
            self.note(error)
            return default

    def section(self, key: str) -> "Section | None":
        """A mapping inside this one; None when absent or no mapping."""
        node = self.read(key, Node.as_mapped, None)
        return Section(node, self._errors) if node is not None else None

    def only(self, known: Iterable[str], later: dict[str, str] | None = None) -> None:
        """Note every key that may not be here, and those that will mean something one day."""
        options, unknown = list(known), 0
        for key in self.node:
            name = self._name(key)
            at = self.node.place(key)
            if key in options:
                continue
            if later and key in later:
                self.note(PolicyError(f"{name} is not supported yet", at, later[key]))
                continue
            if unknown == _TOLD:
                self.note(PolicyError("more unknown keys follow", at))
                return
            unknown += 1
            self.note(PolicyError(f"unknown key {name}", at, unknown_key_hint(key, options, later or ())))

    def _name(self, key: str) -> str:
        return f"{self.node.name}.{key}" if self.node.name else key


def name(node: Node) -> str:
    """A policy's name: lower-case letters, digits and dashes, at most 63."""
    text = node.as_str()
    if not _NAME.fullmatch(text):
        raise node.fail(
            f"{node.name}: {text!r} is not a name",
            "lower-case letters, digits and dashes, as in ride-the-spot",
        )
    return text


def duration(node: Node, minimum_s: int = 0) -> int:
    """``10m`` in seconds, from `minimum_s` to 366 days."""
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


def positive_duration(node: Node) -> int:
    """A duration of at least a second."""
    return duration(node, minimum_s=1)


def share(node: Node) -> float:
    """``20%`` as 0.2; 0 % to 100 %."""
    if not isinstance(node, Scalar) or node.value is None:
        raise node.wrong("a share", "write 20%")
    text = node.text.strip()
    if not text.endswith("%"):
        raise node.wrong("a share", f"write {_percent(text)}%")
    try:
        percent = Decimal(text[:-1].strip())
    except InvalidOperation:
        raise node.fail(f"{node.name}: {text!r} is not a share", "write 20%") from None
    if not percent.is_finite() or not 0 <= percent <= 100:
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


def money(node: Node) -> int:
    """Dollars (``80``, ``80.0``) in micro-USD; 0 to a thousand million."""
    if isinstance(node, Scalar) and isinstance(node.value, str) and node.text.strip().startswith("$"):
        raise node.wrong("dollars as a number", f"write {node.text.strip()[1:]}")
    amount = node.as_decimal()
    if not 0 <= amount <= _MOST_USD:
        raise node.fail(f"{node.name}: {node.value} dollars is out of range", "0 to 1000000000")
    return micro_usd(amount)


def positive_money(node: Node) -> int:
    """Dollars, more than none."""
    amount = money(node)
    if amount == 0:
        raise node.fail(f"{node.name}: 0 dollars would forbid everything", "leave the key out for no bound")
    return amount


def pattern(node: Node) -> str:
    """A region name with ``*``."""
    text = node.as_str()
    if not _PATTERN.fullmatch(text):
        raise node.fail(f"{node.name}: {text!r} is not a region pattern", 'as in "us-*"')
    return text


def several(item: Callable[[Node], T], most: int = _MOST_ITEMS) -> Callable[[Node], tuple[T, ...]]:
    """A reader of a list of 1 to `most` that names nothing twice."""

    def read(node: Node) -> tuple[T, ...]:
        nodes = node.as_sequence()
        if len(nodes) == 0:
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

    return read


def one_or_several(item: Callable[[Node], T]) -> Callable[[Node], tuple[T, ...]]:
    """A reader of one value or a list of them."""

    def read(node: Node) -> tuple[T, ...]:
        return (item(node),) if isinstance(node, Scalar) else several(item)(node)

    return read


def choice(options: Iterable[S]) -> Callable[[Node], S]:
    """A reader of one of some words, as the member of the enumeration that they come from."""
    known = tuple(options)
    return lambda node: known[known.index(node.as_choice(known))]


def labels(node: Node) -> dict[str, str]:
    """A mapping of text to text."""
    entries = node.as_mapped()
    if len(entries) == 0:
        raise node.fail(f"{node.name} is empty", "leave the key out, or write at least one")
    if len(entries) > _MOST_ITEMS:
        raise node.fail(f"{node.name} has {len(entries)} entries; {_MOST_ITEMS} are allowed")
    return {key: value.as_str() for key, value in entries.items()}


def conditions(line: Line) -> Callable[[Node], tuple[Condition, ...]]:
    """A reader of a list of conditions over the facts of that list."""

    def read(node: Node) -> Condition:
        text = node.as_str()
        at = node.at
        # The place of a quoted text is its quote, that of a block its indicator: a caret wants the text.
        start = at.source.find(text.splitlines()[0], at.column - 1)
        if 0 <= start - (at.column - 1) <= 1:
            at = type(at)(at.file, at.line, start + 1, at.source)
        condition = compile_condition(text, at, facts_for(line))
        if not condition.needs:
            raise PolicyError(
                "the condition speaks of no fact: it never changes", at, "docs/reference/facts.md"
            )
        return condition

    return several(read, _MOST_CONDITIONS)
