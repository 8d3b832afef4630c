"""A value over time as change points, and the short way to write one: ``32.0x30m 61.0x2h _x20m 32.0``.

Each word is a value and how long it holds; a last value without a length holds for ever, and so does the last one that
has one. ``_`` is no value: of a price, that no poll sees it, so that the last one seen grows old. Made after promtool's
series, with lengths instead of counts of samples.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final, Generic, TypeVar

from broker.core.errors import Place, PolicyError
from broker.core.money import micro_usd
from broker.core.time import DAY_S, MS, parse_duration
from broker.core.yaml_text import Node, Scalar

T = TypeVar("T")

# A year of five-minute polls has less; more than that is no test of a policy.
MOST_POINTS: Final = 2000
_LONGEST_S: Final = 366 * DAY_S
_MOST_USD: Final = Decimal(100_000)
_MOST_STOCK: Final = 1_000_000
_WORD: Final = re.compile(r"\S+")


@dataclass(frozen=True)
class Track(Generic[T]):
    """A value over time.

    Attributes:
        at_ms: From when each value holds, ascending.
        values: One for each.
        length_ms: Until when the values were written out; the last one holds on.
    """

    at_ms: tuple[int, ...]
    values: tuple[T, ...]
    length_ms: int = 0

    def __post_init__(self) -> None:
        assert len(self.at_ms) == len(self.values) > 0, "a track has a value"
        assert all(a < b for a, b in zip(self.at_ms, self.at_ms[1:], strict=False)), "ascending"

    def at(self, now_ms: int) -> T:
        """The value at that moment; the first one also before its time."""
        return self.values[max(0, bisect_right(self.at_ms, now_ms) - 1)]

    def since(self, now_ms: int) -> int:
        """From when the value at that moment has held."""
        return self.at_ms[max(0, bisect_right(self.at_ms, now_ms) - 1)]

    def after(self, now_ms: int) -> Iterator[tuple[int, T]]:
        """The changes that are still to come."""
        first = bisect_right(self.at_ms, now_ms)
        return zip(self.at_ms[first:], self.values[first:], strict=True)


def constant(value: T, from_ms: int) -> Track[T]:
    """A value that never changes."""
    return Track((from_ms,), (value,))


def price_micro_usd_h(text: str) -> int | None:
    """``32.0`` dollars an hour for the whole instance; None for ``_``.

    Raises:
        ValueError: no price.
    """
    if text == "_":
        return None
    amount = _number(text, "a price such as 32.0, or _")
    if not 0 < amount <= _MOST_USD:
        raise ValueError(f"a price is more than 0 and at most {_MOST_USD} dollars an hour")
    return micro_usd(amount)


def stock(text: str) -> int:
    """``4`` nodes that can be had there.

    Raises:
        ValueError: no such number.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 7):
        raise ValueError(f"{text[:20]!r} is not a number of nodes")
    return min(int(text), _MOST_STOCK)


def share(text: str) -> float:
    """``30%`` as 0.3.

    Raises:
        ValueError: no share.
    """
    if not text.endswith("%"):
        raise ValueError(f"{text[:20]!r} is not a share; write 30%")
    percent = _number(text[:-1], "a share such as 30%")
    if not 0 <= percent <= 100:
        raise ValueError(f"{text[:20]} is out of range: 0% to 100%")
    return float(percent / 100)


def read_series(node: Node, value: Callable[[str], T], from_ms: int) -> Track[T]:
    """A series as a person wrote it.

    Args:
        value: Reads one value; its ValueError is for the person.
        from_ms: When it begins.

    Raises:
        PolicyError: at the word that is wrong.
    """
    if not isinstance(node, Scalar) or not isinstance(node.value, str | int | float) or node.value is True:
        raise node.wrong('values with how long they hold, such as "32.0x30m 61.0x2h"')
    words = list(_WORD.finditer(node.text))
    if not words:
        raise node.fail(f"{node.name} is empty", 'write "32.0x30m 61.0x2h"')
    if len(words) > MOST_POINTS:
        raise node.fail(f"{node.name} has {len(words)} values; {MOST_POINTS} are allowed")
    at_ms: list[int] = []
    values: list[T] = []
    now_s = 0
    for number, word in enumerate(words, 1):
        try:
            read, lasts_s = _word(word[0], value, last=number == len(words))
            if now_s + lasts_s > _LONGEST_S:
                raise ValueError("a series is at most 366d long")
        except ValueError as error:
            raise PolicyError(f"{node.name}: {error}", inside(node, word.start())) from None
        if not values or values[-1] != read:
            at_ms.append(from_ms + now_s * MS)
            values.append(read)
        now_s += lasts_s
    return Track(tuple(at_ms), tuple(values), now_s * MS)


def inside(node: Scalar, offset: int) -> Place:
    """The place of a character of a value; its start where the text is folded over several lines of the file."""
    start = node.at.source.find(node.text, node.at.column - 1)
    if start < 0:
        return node.at
    return Place(node.at.file, node.at.line, start + offset + 1, node.at.source)


def _word(word: str, value: Callable[[str], T], *, last: bool) -> tuple[T, int]:
    text, times, length = word.partition("x")
    read = value(text)
    if not times:
        if not last:
            raise ValueError(f"how long? only the last value may go on for ever: write {word[:20]}x30m")
        return read, 0
    if length.isascii() and length.isdigit():
        raise ValueError(f"{word[:20]!r} has no unit of time; write {word[:20]}m")
    seconds = parse_duration(length)
    if seconds < 1:
        raise ValueError(f"{word[:20]!r} holds for no time at all")
    return read, seconds


def _number(text: str, wanted: str) -> Decimal:
    try:
        # Decimal reads digits of every script, 1_000 and NaN; a person who writes a price writes digits and a dot.
        number = Decimal(text) if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?", text) else None
    except InvalidOperation:
        number = None
    if number is None:
        raise ValueError(f"{text[:20]!r} is not {wanted}")
    return number
