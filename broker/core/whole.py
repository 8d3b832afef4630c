"""Whole numbers as people write them: the digits 0 to 9, and nothing that Python alone takes for a number."""

import re

_WHOLE = re.compile(r"-?[0-9]+")
# More fits into no column and no counter, and Python does not read thousands of digits.
_DIGITS = 18


def parse_whole(text: str) -> int:
    """``8``, ``-3``; not ``1_3``, ``8.0``, ``+8`` or digits of another script.

    Raises:
        ValueError: not a whole number, or one of more than 18 digits.
    """
    word = text.strip()
    if not _WHOLE.fullmatch(word):
        raise ValueError(f"{text[:40]!r} is not a whole number")
    if len(word.removeprefix("-")) > _DIGITS:
        raise ValueError(f"{text[:20]!r}... has more than {_DIGITS} digits")
    return int(word)
