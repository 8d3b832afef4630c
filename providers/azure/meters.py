"""Which rows of the price list are the price of a Linux machine of ours. Pure.

One size has a dozen rows: Windows, Cloud Services, dedicated hosts, low priority, test subscriptions, reservations
(whose price is that of the whole term, by the hour as the row says), meters of other regions, prices to come.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from broker.core.offer import Market
from broker.core.time import DAY_S, MS, from_iso

_NAMES = ("productName", "skuName", "meterName")
# Sold to other people, or under other terms; in any of the three names.
_NOT_OURS = ("windows", "cloud services", "cloudservices", "dedicated", "low priority")


@dataclass(frozen=True)
class Meter:
    """One price.

    Attributes:
        size: ``armSkuName``.
        text: Dollars an hour of one machine, as written.
        currency: As written.
        meter_id: The same for all dates of one price.
    """

    size: str
    market: Market
    text: str
    currency: str
    effective_at_ms: int
    meter_id: str


@dataclass(frozen=True)
class Chosen:
    """The prices of one region.

    Attributes:
        meters: One for each size and market; several of one date where the list contradicts itself.
        elsewhere: Sizes without a price, for their meters all belong to other regions.
        ended: Sizes sold once whose prices are over; with their market, ``Standard_NC6s_v3 spot``.
    """

    meters: tuple[Meter, ...]
    elsewhere: frozenset[str]
    ended: frozenset[str]


def chosen(rows: Iterable[Mapping[str, Any]], is_wanted: Callable[[str], bool], now_ms: int) -> Chosen:
    """The prices in force now.

    Args:
        rows: Of one region.
        is_wanted: Whether a size is to be priced; asked first, so that of the others nothing is kept.

    Raises:
        ValueError: a row of a wanted size is not of the documented shape.
    """
    begun: dict[tuple[str, Market], dict[str, list[Meter]]] = {}
    not_primary: set[str] = set()
    over: set[tuple[str, Market]] = set()
    for row in rows:
        size = row.get("armSkuName")
        if not isinstance(size, str) or not is_wanted(size):
            continue
        market = _market(row)
        if market is None or not _is_hourly(row):
            continue
        # Meters that are not primary are used for no bill, as the documentation has it.
        if row.get("isPrimaryMeterRegion") is not True:
            not_primary.add(size)
            continue
        meter = _meter(size, market, row)
        if _has_ended(row, now_ms):
            over.add((size, market))
            continue
        if meter.effective_at_ms > now_ms:
            continue
        of_meter = begun.setdefault((size, market), {}).setdefault(meter.meter_id, [])
        if of_meter and of_meter[0].effective_at_ms < meter.effective_at_ms:
            of_meter.clear()
        if not of_meter or of_meter[0].effective_at_ms == meter.effective_at_ms:
            of_meter.append(meter)
    found = tuple(meter for by_id in begun.values() for meter in _at_once(by_id))
    ended = frozenset(f"{size} {market}" for size, market in over - begun.keys())
    return Chosen(found, frozenset(not_primary - {meter.size for meter in found}), ended)


def _market(row: Mapping[str, Any]) -> Market | None:
    """How a row is sold, None when not to us."""
    names = [str(row.get(name, "")).lower() for name in _NAMES]
    if row.get("type") != "Consumption" or row.get("reservationTerm"):
        return None
    if any(word in name for word in _NOT_OURS for name in names):
        return None
    spot = ["spot" in name for name in names[1:]]
    # Both names say Spot, or neither does: a row that is half of each is neither.
    return None if any(spot) and not all(spot) else Market.SPOT if any(spot) else Market.ON_DEMAND


def _is_hourly(row: Mapping[str, Any]) -> bool:
    if row.get("unitOfMeasure") != "1 Hour":
        return False
    try:
        return Decimal(str(row.get("tierMinimumUnits"))) == 0
    except InvalidOperation:
        return False


def _meter(size: str, market: Market, row: Mapping[str, Any]) -> Meter:
    return Meter(
        size=size,
        market=market,
        text=str(row.get("retailPrice")),
        currency=str(row.get("currencyCode") or ""),
        effective_at_ms=from_iso(str(row.get("effectiveStartDate"))),
        meter_id=str(row.get("meterId")),
    )


def _has_ended(row: Mapping[str, Any], now_ms: int) -> bool:
    """Spot rows are republished by the month, each with its last day."""
    end = row.get("effectiveEndDate")
    return end is not None and from_iso(str(end)) + DAY_S * MS <= now_ms


def _at_once(by_id: Mapping[str, list[Meter]]) -> list[Meter]:
    """One price, or all that differ under one date: the market believes none of two prices that hold at once."""
    differing: dict[tuple[str, Any], Meter] = {}
    for meter in (meter for meters in by_id.values() for meter in meters):
        key = (meter.currency, _amount(meter.text))
        if key not in differing or differing[key].effective_at_ms < meter.effective_at_ms:
            differing[key] = meter
    newest_ms = max(meter.effective_at_ms for meter in differing.values())
    if len(differing) == 1:
        return list(differing.values())
    return [replace(meter, effective_at_ms=newest_ms) for meter in differing.values()]


def _amount(text: str) -> Decimal | str:
    try:
        return Decimal(text)
    except InvalidOperation:
        return text
