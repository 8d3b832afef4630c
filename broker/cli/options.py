"""How options are read that several commands have."""

from collections.abc import Callable

from broker.core.errors import UsageError
from broker.core.offer import Market
from broker.core.whole import parse_whole

# What the API takes at most: GPUs of one instance, GiB of memory.
GPUS_MAX, GIB_MAX = 10_000, 1_000_000


def whole(option: str, least: int, most: int | None = None) -> Callable[[str | int], int]:
    """A reader of whole numbers for Typer, which itself would take 1_3 for 13.

    Raises:
        UsageError: by the reader: no whole number, or none from `least` to `most`.
    """

    def read(given: str | int) -> int:
        try:
            number = parse_whole(str(given))
        except ValueError as error:
            raise UsageError(f"{option}: {error}") from None
        if number < least:
            raise UsageError(f"{option}: {number} is less than {least}")
        if most is not None and number > most:
            raise UsageError(f"{option}: {number} is more than {most}")
        return number

    return read


def market_word(text: str) -> str:
    """The value of ``--market``; upper and lower case, and - for _, are the same.

    Raises:
        UsageError: there is no such market.
    """
    word = text.lower().replace("-", "_")
    if word not in tuple(Market):
        *first, last = Market
        raise UsageError(f"--market: there is no {text!r}", hint=f"write {', '.join(first)} or {last}")
    return word
