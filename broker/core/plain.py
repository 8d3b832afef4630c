"""Frozen dataclasses as plain JSON values and back, by their annotations. Pure.

Rows, API bodies and files all hold the same shapes; one rule for all of them: a dataclass is an object of its
fields, a tuple is a list, an enum is its value. Reading ignores unknown keys and takes defaults for missing ones,
so that what an older or newer release wrote can still be read.
"""

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """A value as dict, list, str, int, float, bool or None, all the way down."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | float):
        return value
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no plain form")


def from_plain(kind: type[T], plain: Any) -> T:
    """A value of `kind` from its plain form.

    Raises:
        ValueError: a required field is missing, or something has the wrong shape; the text says where.
    """
    result: T = _read(kind, plain, kind.__name__)
    return result


@lru_cache(maxsize=256)
def _shape(kind: type[Any]) -> tuple[tuple[Field[Any], Any], ...]:
    hints = get_type_hints(kind)
    return tuple((field, hints[field.name]) for field in fields(kind) if field.init)


def _read(kind: Any, plain: Any, where: str) -> Any:
    if kind is Any:
        return plain
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _union(kind, plain, where)
    if origin is tuple:
        if not isinstance(plain, list | tuple):
            raise ValueError(f"{where}: expected a list, got {type(plain).__name__}")
        item = get_args(kind)[0]
        return tuple(_read(item, each, f"{where}[{i}]") for i, each in enumerate(plain))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(plain, Mapping):
            raise ValueError(f"{where}: expected an object, got {type(plain).__name__}")
        item = get_args(kind)[1]
        return {key: _read(item, each, f"{where}.{key}") for key, each in plain.items()}
    if is_dataclass(kind):
        return _object(kind, plain, where)
    if issubclass(kind, Enum):
        try:
            return kind(plain)
        except ValueError:
            raise ValueError(f"{where}: {plain!r} is no {kind.__name__}") from None
    return _atom(kind, plain, where)


def _union(kind: Any, plain: Any, where: str) -> Any:
    options = [option for option in get_args(kind) if option is not type(None)]
    if plain is None and len(options) < len(get_args(kind)):
        return None
    assert len(options) == 1, f"{where}: only X | None is supported, not {kind}"
    return _read(options[0], plain, where)


def _object(kind: Any, plain: Any, where: str) -> Any:
    if not isinstance(plain, Mapping):
        raise ValueError(f"{where}: expected an object, got {type(plain).__name__}")
    values = {}
    for field, hint in _shape(kind):
        if field.name in plain:
            values[field.name] = _read(hint, plain[field.name], f"{where}.{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{where}.{field.name} is missing")
    return kind(**values)


def _atom(kind: Any, plain: Any, where: str) -> Any:
    # bool is an int in Python and an int is a float in JSON; neither may slip through as the other.
    if kind is float and isinstance(plain, int) and not isinstance(plain, bool):
        return float(plain)
    if not isinstance(plain, kind) or (isinstance(plain, bool) and kind is not bool):
        raise ValueError(f"{where}: expected {kind.__name__}, got {plain!r:.60}")
    return plain
