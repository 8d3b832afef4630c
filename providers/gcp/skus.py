"""The price list of Google: SKUs of cores, RAM, GPUs and local SSD, into the price of a machine. Pure.

There is no price of a machine type: it is the sum of its parts, and a missing part must never read as a cheap
machine. So an unknown unit, two prices for one part, or a part that is not listed yield no price at all.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from broker.core.offer import Market
from broker.core.time import from_datetime
from providers.gcp.machines import MachineFacts

_MARKETS = {"OnDemand": Market.ON_DEMAND, "Preemptible": Market.SPOT}
_MONTH_HOURS = 730  # how Google turns a monthly price into an hourly one

# Sold to other people, or under other terms.
_NOT_OURS = re.compile(
    r"sole tenancy|commitment|reserved|calendar|\bdws\b|premium|custom|suspended|upgrade|confidential",
    re.IGNORECASE,
)
_SPOT = r"(?:spot preemptible )?"
_GRAMMAR = (
    ("slice", "h", re.compile(rf"^{_SPOT}(?P<name>\w+) nvidia (?P<gpu>.+?) \(1 gpu slice\)", re.IGNORECASE)),
    ("core", "h", re.compile(rf"^{_SPOT}(?P<name>.+?) instance core\b", re.IGNORECASE)),
    ("ram", "GiBy.h", re.compile(rf"^{_SPOT}(?P<name>.+?) instance ram\b", re.IGNORECASE)),
    ("gpu", "h", re.compile(rf"^{_SPOT}nvidia (?P<name>.+?) gpu\b", re.IGNORECASE)),
    ("ssd", "GiBy.mo", re.compile(rf"^{_SPOT}(?P<name>ssd backed local storage)", re.IGNORECASE)),
)


@dataclass(frozen=True)
class PartKey:
    """What a part is, and where and how it is sold. `kind`: core, ram, gpu, slice or ssd."""

    kind: str
    name: str
    region: str
    market: Market


@dataclass(frozen=True)
class PartPrice:
    """Price of one unit of a part for an hour."""

    amount: Decimal
    currency: str
    effective_at_ms: int | None


@dataclass(frozen=True)
class MachinePrice:
    """Price of a whole machine for an hour. `effective_at_ms` is that of its newest part."""

    amount: Decimal
    currency: str
    effective_at_ms: int | None


def parts(skus: Iterable[Any], now_ms: int) -> dict[PartKey, PartPrice]:
    """Every part that the SKUs price, by what it is; a part with two different prices is left out."""
    found: dict[PartKey, PartPrice] = {}
    doubtful: set[PartKey] = set()
    for sku in skus:
        named = _named(sku)
        price = _price(sku, now_ms, named[2]) if named else None
        if named is None or price is None:
            continue
        kind, name, _ = named
        for region in sku.service_regions:
            key = PartKey(kind, name, region, _MARKETS[sku.category.usage_type])
            if key in found and found[key].amount != price.amount:
                doubtful.add(key)
            found[key] = price
    return {key: price for key, price in found.items() if key not in doubtful}


def machine_price(
    found: Mapping[PartKey, PartPrice], machine: MachineFacts, region: str, market: Market
) -> MachinePrice | None:
    """The sum of a machine's parts, or None when one of them is not priced there."""
    recipe = machine.recipe
    wanted: list[tuple[str, tuple[str, ...], Decimal]] = []
    if recipe.slices:
        wanted.append(("slice", recipe.gpus, Decimal(machine.gpus)))
    else:
        wanted.append(("core", (recipe.instance,), Decimal(machine.vcpus)))
        wanted.append(("ram", (recipe.instance,), Decimal(machine.memory_mib) / 1024))
        wanted.append(("gpu", recipe.gpus, Decimal(machine.gpus)))
    if machine.local_ssd_gib:
        wanted.append(("ssd", ("ssd backed local storage",), Decimal(machine.local_ssd_gib)))
    chosen: list[tuple[Decimal, PartPrice]] = []
    for kind, names, count in wanted:
        keys = [PartKey(kind, name, region, market) for name in names]
        prices = [found[key] for key in keys if key in found]
        if len(prices) != 1:
            return None
        chosen.append((count, prices[0]))
    currencies = {price.currency for _, price in chosen}
    return MachinePrice(
        amount=sum((count * price.amount for count, price in chosen), Decimal(0)),
        currency=currencies.pop() if len(currencies) == 1 else "+".join(sorted(currencies)),
        effective_at_ms=max(
            (price.effective_at_ms for _, price in chosen if price.effective_at_ms), default=None
        ),
    )


def _named(sku: Any) -> tuple[str, str, str] | None:
    """(kind, name, unit) of a SKU that is a part of a machine we could rent."""
    text = sku.description
    if sku.category.resource_family != "Compute" and "local storage" not in text.lower():
        return None
    if sku.category.usage_type not in _MARKETS or _NOT_OURS.search(text):
        return None
    for kind, unit, pattern in _GRAMMAR:
        if match := pattern.match(text):
            name = match.group("gpu") if kind == "slice" else match.group("name")
            return kind, name.lower(), unit
    return None


def _price(sku: Any, now_ms: int, unit: str) -> PartPrice | None:
    """The price in effect, an hour. The timeline is in order of time; its last entry that has begun counts."""
    begun = [
        info
        for info in sku.pricing_info
        if _effective_ms(info) is None or (_effective_ms(info) or 0) <= now_ms
    ]
    if not begun or begun[-1].pricing_expression.usage_unit != unit:
        return None
    # A first tier that is free is an allowance of the whole billing account, not our price; a later one that is
    # cheaper is for those who use more than anybody can be sure of.
    for tier in sorted(begun[-1].pricing_expression.tiered_rates, key=lambda rate: rate.start_usage_amount):
        amount = Decimal(tier.unit_price.units) + Decimal(tier.unit_price.nanos) / 10**9
        if amount:
            hourly = amount / _MONTH_HOURS if unit == "GiBy.mo" else amount
            return PartPrice(hourly, tier.unit_price.currency_code, _effective_ms(begun[-1]))
    return None


def _effective_ms(info: Any) -> int | None:
    return from_datetime(info.effective_time) if info.effective_time else None
