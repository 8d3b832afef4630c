"""Sizes in bytes, as people write them."""

import re
from decimal import Decimal

KIB = 1024
MIB = 1024**2
GIB = 1024**3
TIB = 1024**4

_UNITS = {
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": KIB,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": TIB,
}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]i?B|B)")


def parse_size(text: str) -> int:
    """``80GiB``, ``1.5TiB``, ``300GB`` (decimal) to bytes, rounded down.

    Raises:
        ValueError: not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write 500MiB, 80GiB or 2TiB")
    return int(Decimal(match[1]) * _UNITS[match[2]])


def format_size(size_bytes: int) -> str:
    """Bytes in the largest binary unit that keeps it at one or more, one decimal: ``1.5GiB``."""
    for name, unit in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(size_bytes) >= unit:
            return f"{size_bytes / unit:.1f}".removesuffix(".0") + name
    return f"{size_bytes}B"
