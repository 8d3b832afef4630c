"""Frozen dataclasses as plain JSON values and back, by their annotations. Pure.

Rows, API bodies and files all hold the same shapes; one rule for all of them: a dataclass is an object of its
fields, a tuple is a list, an enum is its value. Reading ignores unknown keys and takes defaults for missing ones,
so that what an older or newer release wrote can still be read.
"""

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
Reader = Callable[[Any], Any]


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
    try:
        result: T = _reader(cast(Any, kind))(plain)
    except _Misfit as misfit:
        raise ValueError(f"{kind.__name__}{misfit.path}{misfit.why}") from None
    return result


class _Misfit(Exception):
    """Something has the wrong shape. The path grows on the way out: nobody builds it for what is well."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.path = ""

    def below(self, step: str) -> "_Misfit":
        self.path = step + self.path
        return self


@lru_cache(maxsize=256)
def _reader(kind: Any) -> Reader:
    """How to read a kind; annotations are looked at once, since rows are read all the time."""
    if kind is Any:
        return lambda plain: plain
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _union(kind)
    if origin is tuple:
        return _tuple(_reader(get_args(kind)[0]))
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(_reader(get_args(kind)[1]))
    if is_dataclass(kind):
        return _object(kind)
    if issubclass(kind, Enum):
        return _enum(kind)
    return _atom(kind)


def _tuple(item: Reader) -> Reader:
    def read(plain: Any) -> Any:
        if not isinstance(plain, list | tuple):
            raise _Misfit(f": expected a list, got {type(plain).__name__}")
        values: list[Any] = []
        try:
            for each in plain:
                values.append(item(each))
        except _Misfit as misfit:
            raise misfit.below(f"[{len(values)}]") from None
        return tuple(values)

    return read


def _mapping(item: Reader) -> Reader:
    def read(plain: Any) -> Any:
        if not isinstance(plain, Mapping):
            raise _Misfit(f": expected an object, got {type(plain).__name__}")
        key: Any = None
        try:
            values = {}
            for key, each in plain.items():
                values[key] = item(each)
            return values
        except _Misfit as misfit:
            raise misfit.below(f".{key}") from None

    return read


def _union(kind: Any) -> Reader:
    options = [option for option in get_args(kind) if option is not type(None)]
    assert len(options) == 1 < len(get_args(kind)), f"only X | None is supported, not {kind}"
    inner = _reader(options[0])
    return lambda plain: None if plain is None else inner(plain)


def _enum(kind: type[Enum]) -> Reader:
    members = {member.value: member for member in kind}

    def read(plain: Any) -> Any:
        try:
            return members[plain]
        except (KeyError, TypeError):
            raise _Misfit(f": {plain!r} is no {kind.__name__}") from None

    return read


def _object(kind: Any) -> Reader:
    hints = get_type_hints(kind)
    shape = [
        (
            field.name,
            _reader(hints[field.name]),
            field.default is MISSING and field.default_factory is MISSING,
        )
        for field in fields(kind)
        if field.init
    ]

    def read(plain: Any) -> Any:
        if not isinstance(plain, Mapping):
            raise _Misfit(f": expected an object, got {type(plain).__name__}")
        name = ""
        try:
            values = {}
            for name, item, required in shape:
                if name in plain:
                    values[name] = item(plain[name])
                elif required:
                    raise _Misfit(" is missing")
        except _Misfit as misfit:
            raise misfit.below(f".{name}") from None
        return kind(**values)

    return read


def _atom(kind: type[Any]) -> Reader:
    # bool is an int in Python and an int is a float in JSON; neither may slip through as the other.
    def read(plain: Any) -> Any:
        if type(plain) is kind:
            return plain
        if kind is float and isinstance(plain, int) and not isinstance(plain, bool):
            return float(plain)
        if not isinstance(plain, kind) or (isinstance(plain, bool) and kind is not bool):
            raise _Misfit(f": expected {kind.__name__}, got {plain!r:.60}")
        return plain

    return read
