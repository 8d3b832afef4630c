"""What is wrong with a value, in our words. Pydantic finds the mistake; its own texts speak of programs, not of files.

Pure: takes the plain mistakes of ``ValidationError.errors()``, and knows no pydantic.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from broker.core.yaml_text import did_you_mean

# Kinds of https://docs.pydantic.dev/latest/errors/validation_errors/ that say "another type was wanted".
_WANTED: Final[Mapping[str, str]] = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dataclass_type": "{table}",
    "decimal_parsing": "a number",
    "decimal_type": "a number",
    "dict_type": "{table}",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "frozen_set_type": "a list",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "int_type": "a whole number",
    "list_type": "a list",
    "mapping_type": "{table}",
    "model_attributes_type": "{table}",
    "model_type": "{table}",
    "none_required": "nothing",
    "path_type": "a path",
    "set_type": "a list",
    "string_type": "text",
    "tuple_type": "a list",
}
_BOUNDS: Final[Mapping[str, tuple[str, str]]] = {
    "greater_than": ("gt", "is not more than"),
    "greater_than_equal": ("ge", "is less than"),
    "less_than": ("lt", "is not less than"),
    "less_than_equal": ("le", "is more than"),
}
_SHOWN: Final = 40


def words(mistakes: Sequence[Mapping[str, Any]], table: str = "a mapping") -> tuple[str, str | None]:
    """What is wrong, to stand behind the name of the key; and a hint, when one comes close.

    Args:
        mistakes: Those of one value: one, or one a variant when several types would have done.
        table: What the file calls a mapping.
    """
    first = mistakes[0]
    kind, given, context = first["type"], first.get("input"), first.get("ctx") or {}
    wanted = [_WANTED[m["type"]].format(table=table) for m in mistakes if m["type"] in _WANTED]
    if kind in _WANTED or _is_nan(given):
        names = " or ".join(dict.fromkeys(wanted)) or "a number"
        return f"expected {names}, got {kind_of(given, table)}", None
    if kind in _BOUNDS:
        limit, how = _BOUNDS[kind]
        return f"{given} {how} {_plain(context[limit])}", None
    if kind in ("literal_error", "enum"):
        known = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        hint = did_you_mean(given, known) if isinstance(given, str) else None
        return f"{_short(given)} is not one of {', '.join(known)}", hint
    if kind == "missing":
        return "missing", None
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return "unknown key", None
    if kind == "string_pattern_mismatch":
        return f"{_short(given)} does not have the form {context['pattern']}", None
    if kind in ("too_short", "too_long", "string_too_short", "string_too_long"):
        return _length(kind, given, context), None
    if kind in ("value_error", "assertion_error"):
        return str(first["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, "), None
    if kind == "json_invalid":
        return f"not JSON: {context.get('error', 'it cannot be read')}", None
    return f"{_short(given)} is not allowed here", None


def kind_of(value: object, table: str = "a mapping") -> str:
    """What a value is, in a person's words: ``the number 5``, ``the text 'x'``, ``a list``."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {_short(value)}"
        case Mapping():
            return table
        case list() | tuple():
            return "a list"
        case _:
            return _short(value)


def of_one_value(
    mistakes: Sequence[Mapping[str, Any]],
) -> tuple[tuple[str | int, ...], list[Mapping[str, Any]]]:
    """The path to the first value that is wrong, and all that is said of it.

    Where several types would have done, pydantic makes one mistake a variant, with the variant's name in the path.
    """
    first = mistakes[0]
    path = tuple(first["loc"])
    same = [m for m in mistakes if m.get("input") is first.get("input") and m["type"] in _WANTED]
    if first["type"] in _WANTED and len(same) > 1 and len({tuple(m["loc"])[:-1] for m in same}) == 1:
        return path[:-1], same
    return path, [first]


def name_of(path: Sequence[str | int]) -> str:
    """The last key of a path with what follows it: ``regions[0]``."""
    keys = [at for at, part in enumerate(path) if isinstance(part, str)]
    start = keys[-1] if keys else 0
    return "".join(part if isinstance(part, str) else f"[{part}]" for part in path[start:])


def _plain(bound: object) -> str:
    return f"{bound:g}" if isinstance(bound, float) else str(bound)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and value != value


def _length(kind: str, given: object, context: Mapping[str, Any]) -> str:
    count = context.get("actual_length", len(given) if isinstance(given, str) else 0)
    if not count:
        return "empty"
    things = "characters" if kind.startswith("string") else "items"
    most = context.get("max_length")
    bound = f"at most {most}" if kind.endswith("long") else f"at least {context.get('min_length')}"
    return f"has {count} {things}; {bound} are allowed"


def _short(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN + 2 else text[:_SHOWN] + "..."
