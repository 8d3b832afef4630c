"""The overlay file: YAML to `broker.market.overlay.Overlay`, every mistake with its place. Pure."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, TypeVar

from broker.core.errors import SettingsError
from broker.core.money import micro_usd
from broker.core.time import from_datetime, from_iso, to_iso
from broker.core.yaml_bounds import BoundedScanner
from broker.core.yaml_text import Mapped, Node, parse
from broker.market.overlay import Commitment, Credit, Discount, Entry, Overlay, Owned, Rate

_MOST_MICRO_USD: Final = 10**15
_MOST_NODES: Final = 100_000
_DIGITS: Final = 12  # before the point, or behind it
_SHARE: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,9})?) ?%")
_DATES: Final = ("from", "until")
_PRICE: Final = ("price_usd_h", "price_usd_gpu_h")

T = TypeVar("T")


class _Scanner(BoundedScanner):
    """A contract may have a price for each type and zone: some 5,000 entries, and a second or two to read them."""

    max_tokens = 100_000


def read_overlay(text: str, file: str) -> Overlay:
    """An overlay file; an empty one changes nothing.

    Raises:
        SettingsError: the first mistake, with file, line and column.
    """
    if not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines()):
        return Overlay()
    document = parse(text, file, SettingsError, _Scanner)
    document.only(("discounts", "committed", "credits", "owned", "prices"))
    overlay = Overlay(
        discounts=_list(document, "discounts", _discount),
        committed=_list(document, "committed", _commitment),
        credits=_list(document, "credits", _credit),
        owned=_list(document, "owned", lambda entry: _rate(entry, Owned)),
        prices=_list(document, "prices", lambda entry: _rate(entry, Rate)),
    )
    _refuse_two_credits(document, overlay)
    return overlay


def _list(document: Mapped, key: str, read: Callable[[Mapped], T]) -> tuple[T, ...]:
    node = document.get(key)
    return () if node is None else tuple(read(entry.as_mapped()) for entry in node.as_sequence())


def _discount(entry: Mapped) -> Discount:
    entry.only(("offers", "percent", *_DATES))
    node = entry.need("percent", hint="what is taken off the list price: percent: 12")
    percent = Fraction(_number(node))
    if not 0 < percent < 100:
        raise node.fail(f"{node.name}: {node.value} is not between 0 and 100")
    return Discount(**_common(entry), share=percent / 100)


def _commitment(entry: Mapped) -> Commitment:
    entry.only(("offers", "count", *_PRICE, *_DATES))
    entry.need("until", hint="a commitment has an end: until: 2027-06-30")
    count = entry.need("count", hint="nodes: count: 4").as_int(1, _MOST_NODES)
    return Commitment(**_common(entry), **_price(entry), count=count)


def _rate(entry: Mapped, kind: type[T]) -> T:
    entry.only(("offers", *_PRICE, *_DATES))
    return kind(**_common(entry), **_price(entry))


def _credit(entry: Mapped) -> Credit:
    entry.only(("cloud", "usd", "worth", *_DATES))
    usd = entry.need("usd", hint="what was left on the day `from`")
    amount = _micro_usd(usd)
    entry.need("from", hint="spending is counted from that day on")
    entry.need("until", hint="the last day on which the credit can be used")
    from_ms, until_ms = _dates(entry)
    worth = _share(entry.need("worth", hint="what a credit dollar counts in decisions: worth: 25%"))
    return Credit(
        cloud=entry.need("cloud").as_str().lower(),
        micro_usd=amount,
        worth=worth,
        from_ms=from_ms,
        until_ms=until_ms,
        place=str(entry.at),
    )


def _refuse_two_credits(document: Mapped, overlay: Overlay) -> None:
    for at, credit in enumerate(overlay.credits):
        for other in overlay.credits[:at]:
            starts_ms = [c.from_ms for c in (credit, other) if c.from_ms is not None]
            if credit.cloud == other.cloud and any(credit.holds(at) and other.holds(at) for at in starts_ms):
                raise (
                    document["credits"]
                    .as_sequence()[at]
                    .fail(
                        f"two credits of {credit.cloud} at one time; the other one is at {other.place}",
                        hint="let one begin when the other ends, or add them up",
                    )
                )


def _common(entry: Mapped) -> dict[str, Any]:
    from_ms, until_ms = _dates(entry)
    hint = "a pattern of offer keys: aws/*/p5.48xlarge/on_demand"
    offers = entry.need("offers", hint=hint)
    pattern = offers.as_str()
    if "*" not in pattern and pattern.count("/") != 3:
        raise offers.fail(f"{offers.name}: {pattern!r} is no offer", hint)
    return {"offers": pattern, "from_ms": from_ms, "until_ms": until_ms, "place": str(entry.at)}


def _price(entry: Mapped) -> dict[str, Any]:
    given = [key for key in _PRICE if entry.get(key) is not None]
    if len(given) != 1:
        raise entry.fail(
            f"{entry.name}: write one of {' and '.join(_PRICE)}",
            hint="of a whole node, or of one of its GPUs",
        )
    return {"micro_usd_h": _micro_usd(entry[given[0]]), "per_gpu": given[0] == "price_usd_gpu_h"}


def _number(node: Node) -> Decimal:
    number = node.as_decimal()
    # Before anything is computed: a number of a few letters may have a billion digits.
    if abs(number.adjusted()) > _DIGITS:
        raise node.fail(f"{node.name}: {number} has more digits than any amount of money")
    return number


def _micro_usd(node: Node) -> int:
    amount = micro_usd(_number(node))
    if not 0 < amount <= _MOST_MICRO_USD:
        raise node.fail(
            f"{node.name}: {node.value} dollars is out of range; more than 0 and at most 1000000000"
        )
    return amount


def _share(node: Node) -> Fraction:
    text = node.as_str().strip()
    match = _SHARE.fullmatch(text)
    if match is None or (share := Fraction(match[1]) / 100) > 1:
        raise node.fail(f"{node.name}: {text[:40]!r} is not a share from 0% to 100%")
    return share


def _dates(entry: Mapped) -> tuple[int | None, int | None]:
    from_ms, until_ms = (_moment(entry, key, last) for key, last in (("from", False), ("until", True)))
    if from_ms is not None and until_ms is not None and until_ms <= from_ms:
        raise entry["until"].fail(
            f"{entry.name}: it ends ({to_iso(until_ms)}) before it begins ({to_iso(from_ms)})"
        )
    return from_ms, until_ms


def _moment(entry: Mapped, key: str, last: bool) -> int | None:
    """A day in UTC, of which the last one counts whole; or a moment."""
    node = entry.get(key)
    if node is None:
        return None
    text = node.as_str().strip()
    try:
        day = date.fromisoformat(text)
    except ValueError:
        try:
            return from_iso(text)
        except ValueError as error:
            raise node.fail(f"{node.name}: {error}", hint="or a day: 2026-11-30") from None
    try:
        return from_datetime(datetime.combine(day + timedelta(days=last), time(), UTC))
    except OverflowError:
        raise node.fail(f"{node.name}: there is no such day") from None


def entries_of(overlay: Overlay) -> Iterator[tuple[str, Entry]]:
    """Every entry that speaks of offers, with the name of its list in the file."""
    for kind in ("discounts", "committed", "owned", "prices"):
        for entry in getattr(overlay, kind):
            yield kind, entry
