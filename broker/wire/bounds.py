"""How large a number and how long a text may be that comes from a node or lies in a store. Pure.

A job writes its own metrics and names its own checkpoints, so what an agent tells is only as sane as the job. What
is taken in is stored as 64-bit integers and sent on as JSON in UTF-8: one number or text that fits neither would
fail every pass of the daemon, for all jobs and for ever. So every field has a bound, by its declared type:

    int             0 to 2^53 - 1, which every JSON reader takes exactly
    float           finite; one that may be missing (a loss) may also be infinite or no number
    str             at most 4000 characters, no NUL, no half of a surrogate pair
    list, mapping   at most 1000 items

What is out of bounds and may be missing is left out; a text is mended, and too many items are cut. With any other
field nothing can be done: the message is refused.
"""

import math
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, Dict, Mapping, Optional, Tuple, TypeVar, Union, get_args, get_origin, get_type_hints

MAX_NUMBER = 2**53 - 1
MAX_TEXT = 4000
MAX_ITEMS = 1000
_DEEPEST = 64

M = TypeVar("M")


class OutOfBounds(ValueError):
    """A number, or a text, that nothing can be done with."""


def is_whole(value: object) -> bool:
    """Whether this is an integer from 0 to 2^53 - 1. True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_NUMBER


def whole(value: object) -> int:
    """The same integer.

    Raises:
        OutOfBounds: it is none from 0 to 2^53 - 1.
    """
    if not is_whole(value):
        raise OutOfBounds(f"expected an integer from 0 to {MAX_NUMBER}, got {value!r:.40}")
    assert isinstance(value, int)
    return value


def whole_or_none(value: object) -> Optional[int]:
    """The same integer; None for what is none from 0 to 2^53 - 1: a step out of these bounds is no step."""
    return whole(value) if is_whole(value) else None


def is_legible(text: str) -> bool:
    """Whether it can be sent as UTF-8 and stored: no half of a surrogate pair, no NUL."""
    return (text.isascii() and "\0" not in text) or not any(_is_bad(letter) for letter in text)


def legible(text: str, longest: int = MAX_TEXT) -> str:
    """The text with a replacement for every letter that cannot be sent, cut to `longest` characters."""
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return text if is_legible(text) else "".join("\ufffd" if _is_bad(letter) else letter for letter in text)


def _is_bad(letter: str) -> bool:
    return letter == "\0" or "\ud800" <= letter <= "\udfff"


def plain_bounded(value: Any, depth: int = 0) -> Any:
    """JSON values of no declared shape, each within its bounds; what cannot be is None."""
    if depth > _DEEPEST:
        return None
    if isinstance(value, str):
        return legible(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if abs(value) <= MAX_NUMBER else None
    if isinstance(value, Mapping):
        items = list(value.items())[:MAX_ITEMS]
        return {legible(str(name)): plain_bounded(item, depth + 1) for name, item in items}
    if isinstance(value, (list, tuple)):
        return [plain_bounded(item, depth + 1) for item in value[:MAX_ITEMS]]
    return None


def legible_json(value: Any) -> Any:
    """A JSON document with every text in it mended, and nothing else changed."""
    if isinstance(value, str):
        return legible(value, max(len(value), 1))
    if isinstance(value, dict):
        return {legible(name, max(len(name), 1)): legible_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [legible_json(item) for item in value]
    return value


def bounded(message: M) -> M:
    """A copy of a message with every field within its bounds.

    Args:
        message: A dataclass, declared of the types that the module's docstring names.

    Raises:
        OutOfBounds: a field that must be there is out of bounds; the text names it.
    """
    kind: Any = type(message)
    values: Dict[str, Any] = {}
    for name, (declared, optional) in _shape(kind).items():
        value = getattr(message, name)
        try:
            values[name] = None if value is None and optional else _within(declared, optional, value)
        except OutOfBounds as error:
            raise OutOfBounds(f"{kind.__name__}.{name}: {error}") from None
    result: M = kind(**values)
    return result


@lru_cache(maxsize=64)
def _shape(kind: Any) -> Dict[str, Tuple[Any, bool]]:
    """Declared type of each field, and whether it may be None."""
    hints = get_type_hints(kind)
    shape = {}
    for each in fields(kind):
        options = get_args(hints[each.name]) if get_origin(hints[each.name]) is Union else (hints[each.name],)
        (declared,) = [option for option in options if option is not type(None)]
        shape[each.name] = (declared, len(options) > 1)
    return shape


def _within(declared: Any, optional: bool, value: Any) -> Any:
    if declared is int:
        return whole_or_none(value) if optional else whole(value)
    if declared is float:
        return float_or_none(value) if optional else _float(value)
    if declared is bool or declared is str:
        if not isinstance(value, declared):
            raise OutOfBounds(f"expected {declared.__name__}, got {value!r:.40}")
        return legible(value) if isinstance(value, str) else value
    if is_dataclass(declared):
        return bounded(value)
    origin, inner = get_origin(declared), get_args(declared)
    if origin is list and isinstance(value, (list, tuple)):
        return [_within(inner[0], False, item) for item in value[:MAX_ITEMS]]
    if origin is dict and isinstance(value, Mapping):
        if inner[1] is Any:
            return plain_bounded(value)
        found = {legible(str(name)): float_or_none(item) for name, item in value.items()}
        return dict([(name, item) for name, item in found.items() if item is not None][:MAX_ITEMS])
    raise OutOfBounds(f"expected {declared}, got {value!r:.40}")


def float_or_none(value: Any) -> Optional[float]:
    """Infinite and no number are fine: a loss is both, on a bad day."""
    try:
        return float(value) if isinstance(value, (int, float)) else None
    except OverflowError:
        return None


def _float(value: Any) -> float:
    number = float_or_none(value)
    if number is None or not math.isfinite(number) or abs(number) > MAX_NUMBER:
        raise OutOfBounds(f"expected a number of at most {MAX_NUMBER}, got {value!r:.40}")
    return number
