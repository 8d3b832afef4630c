"""Single values of `broker.toml`: durations, moments, money, addresses. A ValueError is for the person."""

from datetime import datetime
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator

from broker.core.money import micro_usd
from broker.core.time import from_iso, parse_duration
from broker.core.wrong_value import kind_of

_MOST_MICRO_USD = 10**15


def _seconds(value: object) -> object:
    if isinstance(value, str):
        seconds = parse_duration(value)
        if seconds < 1:
            raise ValueError(f"{value!r} is shorter than 1s")
        return seconds
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f"{value!r} has no unit; write it as a string: 90s, 10m, 2h")
    raise ValueError(f"expected a duration, got {kind_of(value, 'a table')}; write 90s, 10m or 2h")


def _instant(value: object) -> object:
    if isinstance(value, datetime):
        value = value.isoformat()
    if isinstance(value, str):
        return from_iso(value)
    raise ValueError(f"expected a date and time, got {kind_of(value, 'a table')}; write 2026-11-30T12:00:00Z")


def _dollars(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is not an amount of dollars; write 400 or 12.50")
    amount_micro_usd = micro_usd(str(value))
    if not 0 <= amount_micro_usd <= _MOST_MICRO_USD:
        raise ValueError(f"{value} dollars is out of range; 0 to 1000000000 are allowed")
    return amount_micro_usd


def _address(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError(f"expected an address and port, got {kind_of(value, 'a table')}")
    host, _, port = value.rpartition(":")
    if not host or " " in value or not (port.isascii() and port.isdecimal()) or int(port[:6]) > 65535:
        raise ValueError(f"{value!r} is not an address and port; write 127.0.0.1:8700 or [::1]:8700")
    return value


def _plain_number(value: object) -> object:
    """A text that pydantic takes for a number and nobody else does: ``1_3``, from the environment."""
    if isinstance(value, str) and "_" in value:
        raise ValueError(f"expected a number, got {kind_of(value, 'a table')}")
    return value


Duration = Annotated[int, BeforeValidator(_seconds)]
Instant = Annotated[int, BeforeValidator(_instant)]
Dollars = Annotated[int, BeforeValidator(_dollars)]
Address = Annotated[str, BeforeValidator(_address)]
Count = Annotated[int, BeforeValidator(_plain_number)]
Factor = Annotated[float, BeforeValidator(_plain_number)]


def is_url(text: str) -> bool:
    """Whether it names a host, and a port that can be one."""
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and parts.port != -1  # asked for, since a port that is none raises
    except ValueError:  # so does half a bracket
        return False
