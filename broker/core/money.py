"""Money as integer micro-USD; a rate is micro-USD per hour.

Vendor text goes through Decimal and never through float: 0.1 + 0.2 has no place in a ledger.
Does not know currencies other than the dollar: a quote in another one is quarantined by the market.
"""

from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

MICRO_PER_USD = 1_000_000
MS_PER_HOUR = 3_600_000

_DIGITS = 13


def micro_usd(text: str | int | Decimal) -> int:
    """Dollars as a vendor writes them ("32.7726000000") to micro-USD, rounded half to even.

    Raises:
        ValueError: the text is no finite number, or ten trillion dollars and more.
    """
    # Decimal takes 1_3 and the digits of every script.
    if isinstance(text, str) and ("_" in text or not text.isascii()):
        raise ValueError(f"{text[:40]!r} is not an amount of dollars")
    try:
        value = Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{text!r} is not an amount of dollars") from error
    if not value.is_finite():
        raise ValueError(f"{text!r} is not a finite amount of dollars")
    # Before it is written out: a number of a few letters may have a billion digits.
    if value.adjusted() >= _DIGITS:
        raise ValueError(f"{str(text)[:40]} is more dollars than there are")
    return int((value * MICRO_PER_USD).to_integral_value(ROUND_HALF_EVEN))


def usd(amount_micro_usd: int) -> Decimal:
    """Micro-USD as exact dollars."""
    return Decimal(amount_micro_usd) / MICRO_PER_USD


def format_usd(amount_micro_usd: int, places: int = 2) -> str:
    """``$12.34``; rounded half to even for people, never for sums."""
    quantum = Decimal(1).scaleb(-places)
    value = usd(amount_micro_usd).quantize(quantum, ROUND_HALF_EVEN)
    return f"-${-value}" if value < 0 else f"${value}"


def cost_micro_usd(rate_micro_usd_h: int, duration_ms: int) -> int:
    """What a rate costs over a duration, rounded half to even to a micro-dollar."""
    exact = Decimal(rate_micro_usd_h) * duration_ms / MS_PER_HOUR
    return int(exact.to_integral_value(ROUND_HALF_EVEN))
