"""Simple comparisons in a condition: ``offer.price < 3.0``, ``offer.cloud in ["aws", "gcp"]``, ``!job.has_commit``. Pure.

Only what can be read without an engine is read; whatever else a line says is left alone, so that what is found here is
always true of the line, and nothing is ever said of a line that is not understood.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from broker.core.time import HOUR_S, MINUTE_S

Value = float | str | bool

_FACT: Final = r"[a-z]\w*(?:\.\w+)+"
_NUMBER: Final = r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_TEXT: Final = r"\"[^\"\\]*\"|'[^'\\]*'"
_LITERAL: Final = rf"{_NUMBER}|{_TEXT}|true|false|duration\(\s*(?:{_TEXT})\s*\)"
_COMPARED: Final = re.compile(
    rf"(?P<fact>{_FACT})\s*(?P<op><=|>=|==|!=|<|>)\s*(?P<value>{_LITERAL})(?![\w.(])"
)
_TURNED: Final = re.compile(
    rf"(?<![\w.)])(?P<value>{_LITERAL})\s*(?P<op><=|>=|==|!=|<|>)\s*(?P<fact>{_FACT})(?![\w(])"
)
_AMONG: Final = re.compile(
    rf"(?P<fact>{_FACT})\s+in\s+\[(?P<items>\s*(?:{_TEXT})(?:\s*,\s*(?:{_TEXT}))*\s*)\]"
)
_BARE: Final = re.compile(rf"(?P<no>!?)\s*(?P<fact>{_FACT})")
_MIRROR: Final = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNIT_S: Final = {"h": HOUR_S, "m": MINUTE_S, "s": 1, "ms": 0.001}


@dataclass(frozen=True)
class Comparison:
    """A fact against a value.

    Attributes:
        op: ``<``, ``<=``, ``>``, ``>=``, ``==`` or ``!=``; the fact stands on its left.
        value: A duration is in seconds.
        text: As it stands in the line, from `at` on.
    """

    fact: str
    op: str
    value: Value
    text: str
    at: int


@dataclass(frozen=True)
class Among:
    """A fact that is one of some texts."""

    fact: str
    values: tuple[str, ...]
    text: str
    at: int


def anywhere(text: str) -> list[Comparison]:
    """Every comparison with a number or a duration in a line, wherever it stands."""
    found = [*_all(_COMPARED, text, lambda op: op), *_all(_TURNED, text, _MIRROR.__getitem__)]
    return sorted(found, key=lambda comparison: comparison.at)


def conjuncts(text: str) -> list[Comparison | Among]:
    """What must hold for the line to hold, as far as it is simple: its parts between ``&&`` outside any bracket."""
    parts: list[Comparison | Among] = []
    for part, at in _split(text):
        bare = part.strip()
        start = at + len(part) - len(part.lstrip())
        while bare.startswith("(") and bare.endswith(")") and _closes_last(bare):
            inner = bare[1:-1]
            start += 1 + len(inner) - len(inner.lstrip())
            bare = inner.strip()
        if len(list(_split(bare))) > 1:
            parts += [_moved(inside, start) for inside in conjuncts(bare)]
        elif (simple := _simple(bare, start)) is not None:
            parts.append(simple)
    return parts


def _simple(bare: str, at: int) -> Comparison | Among | None:
    for pattern, turn in ((_COMPARED, lambda op: op), (_TURNED, _MIRROR.__getitem__)):
        if found := pattern.fullmatch(bare):
            return _comparison(found, turn, at)
    if found := _AMONG.fullmatch(bare):
        return Among(found["fact"], tuple(v[1:-1] for v in re.findall(_TEXT, found["items"])), bare, at)
    if found := _BARE.fullmatch(bare):
        return Comparison(found["fact"], "==", not found["no"], bare, at)
    return None


def _all(pattern: re.Pattern[str], text: str, turn: Callable[[str], str]) -> Iterator[Comparison]:
    for found in pattern.finditer(text):
        comparison = _comparison(found, turn, found.start())
        if comparison is not None and isinstance(comparison.value, float):
            yield comparison


def _comparison(found: re.Match[str], turn: Callable[[str], str], at: int) -> Comparison | None:
    value = _value(found["value"])
    return None if value is None else Comparison(found["fact"], turn(found["op"]), value, found[0], at)


def _value(text: str) -> Value | None:
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("duration"):
        written = text[text.index("(") + 1 : -1].strip()[1:-1]
        parts = _PART.findall(written)
        whole = "".join(amount + unit for amount, unit in parts) == written
        return sum(float(amount) * _UNIT_S[unit] for amount, unit in parts) if parts and whole else None
    if text[0] in "\"'":
        return text[1:-1]
    return float(text)


def _split(text: str) -> Iterator[tuple[str, int]]:
    """The parts between ``&&`` outside strings and brackets, each with where it begins; the whole where ``||`` or ``?`` is."""
    depth, start, quote, cuts = 0, 0, "", []
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote and text[at - 1] != "\\" else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif depth == 0 and (letter == "?" or text.startswith("||", at)):
            yield text, 0
            return
        elif depth == 0 and text.startswith("&&", at):
            cuts.append(at)
    for cut in [*cuts, len(text)]:
        yield text[start:cut], start
        start = cut + 2


def _closes_last(text: str) -> bool:
    """Whether the bracket that opens the text is the one that ends it."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return at == len(text) - 1
    return False


def _moved(part: Comparison | Among, by: int) -> Comparison | Among:
    if isinstance(part, Among):
        return Among(part.fact, part.values, part.text, part.at + by)
    return Comparison(part.fact, part.op, part.value, part.text, part.at + by)


@dataclass
class Room:
    """The values that are left for one fact.

    Attributes:
        low, high: Numbers between these; an open end excludes its own value.
        among: Texts, or None for any.
        without: Values that are out.
    """

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False
    among: frozenset[Value] | None = None
    without: set[Value] = field(default_factory=set)

    def narrow(self, part: Comparison | Among) -> None:
        """Keep what is true of the part too."""
        if isinstance(part, Among):
            self._keep(frozenset(part.values))
        elif part.op == "!=":
            self.without.add(part.value)
        elif part.op == "==" and not isinstance(part.value, float):
            self._keep(frozenset({part.value}))
        elif isinstance(part.value, float):
            self._bound(part.op, part.value)

    def is_empty(self) -> bool:
        """Whether no value is left."""
        if self.among is not None:
            return not self.among - self.without
        if self.low == self.high:
            return self.low_open or self.high_open or self.low in self.without
        return self.low > self.high

    def _keep(self, values: frozenset[Value]) -> None:
        self.among = values if self.among is None else self.among & values

    def _bound(self, op: str, value: float) -> None:
        is_open = op in ("<", ">")
        if op in ("<", "<=", "==") and (value, not is_open) < (self.high, not self.high_open):
            self.high, self.high_open = value, is_open
        if op in (">", ">=", "==") and (-value, not is_open) < (-self.low, not self.low_open):
            self.low, self.low_open = value, is_open
