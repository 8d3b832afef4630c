"""Instants are integer milliseconds since 1970 UTC; durations are integer seconds, or ms where named so.

Pure: reading a clock is the business of `broker.core.ports.Clock`.
"""

import re
from datetime import UTC, datetime

MS = 1000
MINUTE_S = 60
HOUR_S = 3600
DAY_S = 86_400

# A hundred years, and the last moment that `datetime` knows: more is a slip, and would overflow somewhere else.
LONGEST_S = 36_525 * DAY_S
LAST_MS = 253_402_300_799_999

_UNIT_S = {"s": 1, "m": MINUTE_S, "h": HOUR_S, "d": DAY_S, "w": 7 * DAY_S}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m|h|d|w)")


def parse_duration(text: str) -> int:
    """``90s``, ``10m``, ``1h30m``, ``2d`` to whole seconds.

    Raises:
        ValueError: not a duration, not a whole number of seconds, or longer than a hundred years.
    """
    compact = text.strip().replace(" ", "")
    matches = list(_PART.finditer(compact))
    if not matches or "".join(m.group(0) for m in matches) != compact:
        raise ValueError(f"{text!r} is not a duration; write 90s, 10m, 2h or 1d")
    total = sum(float(m.group(1)) * _UNIT_S[m.group(2)] for m in matches)
    if total > LONGEST_S:
        raise ValueError(f"{text[:40]!r} is longer than 100 years")
    if total != int(total):
        raise ValueError(f"{text!r} is not a whole number of seconds")
    return int(total)


def format_duration(seconds: float) -> str:
    """Seconds as ``45s``, ``10m``, ``1h30m``, ``2d4h``: the two largest units that are not zero."""
    left = round(abs(seconds))
    parts = []
    for name, size in (("d", DAY_S), ("h", HOUR_S), ("m", MINUTE_S), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{name}")
    sign = "-" if seconds < 0 and parts else ""
    return sign + ("".join(parts[:2]) or "0s")


def age_s(then_ms: int, now_ms: int) -> float:
    """Seconds since then. What lies ahead of the clock was dated by one that was ahead: it is as old as it is far away, so
    that it is not taken for fresh until that day comes.
    """
    return abs(now_ms - then_ms) / MS


def from_iso(text: str) -> int:
    """RFC 3339 to milliseconds. A time without a zone is refused: guessing UTC has cost people money.

    Raises:
        ValueError: no date, or no zone.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a date and time; write 2026-11-30T12:00:00Z") from None
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; append Z for UTC")
    return round(moment.timestamp() * MS)


def to_iso(at_ms: int) -> str:
    """Milliseconds to RFC 3339 in UTC, with a Z; the fraction is left out when it is zero."""
    moment = datetime.fromtimestamp(at_ms / MS, UTC)
    timespec = "milliseconds" if at_ms % MS else "seconds"
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")


def to_datetime(at_ms: int) -> datetime:
    """Milliseconds to an aware datetime in UTC, for SDKs that want one."""
    return datetime.fromtimestamp(at_ms / MS, UTC)


def from_datetime(moment: datetime) -> int:
    """An aware datetime to milliseconds.

    Raises:
        ValueError: the datetime has no zone.
    """
    if moment.tzinfo is None:
        raise ValueError("a datetime without a zone has no place here")
    return round(moment.timestamp() * MS)
