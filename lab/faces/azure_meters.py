"""Rows of the retail price list: for each pool the one that counts, and beside it those that trap, all of them real.

The same size is also listed with Windows, as Cloud Services, on dedicated hosts, at low priority, for test subscriptions,
as a reservation (the price of the whole term, by the hour as the row says), by meters of other regions, with prices
that were and that will be. Others are no machines with a whole GPU.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from broker.core.time import DAY_S, to_iso
from lab.pools import Pool
from lab.sold.azure import NAMES
from lab.world import World

WINDOWS_USD_VCPU_H = 0.046  # what a licence adds, by the difference of the two lists in 2026
_LONG_AGO = "2021-11-01T00:00:00Z"
_PLACES = {"eastus": "US East", "westus3": "US West 3"}
_SERVICE = {"serviceName": "Virtual Machines", "serviceId": "DZH313Z7MMC8", "serviceFamily": "Compute"}


@dataclass(frozen=True)
class Meters:
    """The list over a world.

    Attributes:
        filler: Rows of other machines, for each region: what a real region has some 12,000 of.
    """

    world: World
    filler: int = 0
    regions: tuple[str, ...] = field(default=("eastus", "westus3"))

    def rows(self, at_s: int) -> Iterator[dict[str, Any]]:
        """Every row as of a moment, in a fixed order, made one by one: those that count lie all over the list."""
        for region in self.regions:
            pools = [
                pool
                for pool in self.world.pools.values()
                if (pool.listing.zone.cloud, pool.listing.zone.region) == ("azure", region)
            ]
            every = self.filler // (len(pools) + 1)
            made = 0
            for pool in pools:
                yield from (_filler(region, number) for number in range(made, made + every))
                made += every
                yield from _of_pool(pool, at_s)
            yield from _others(region)
            yield from (_filler(region, number) for number in range(made, self.filler))


def row(
    region: str, size: str, product: str, sku: str, meter: str, usd_h: float, since: str, **more: Any
) -> dict[str, Any]:
    """One row. Ids follow from what it is, and not from its date, as Microsoft's do."""
    meter_id, product_id, sku_id = _ids(region, product, sku, meter, more.get("type", ""))
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": usd_h,
        "unitPrice": usd_h,
        "armRegionName": region,
        "location": _PLACES[region],
        "effectiveStartDate": since,
        "meterId": meter_id,
        "meterName": meter,
        "productId": product_id,
        "skuId": sku_id,
        "productName": product,
        "skuName": sku,
        **_SERVICE,
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": size,
        **more,
    }


@cache
def _ids(region: str, product: str, sku: str, meter: str, kind: str) -> tuple[str, str, str]:
    """Of meter, product and SKU; kept, for a whole list is made anew for each of its pages."""
    name = uuid.uuid5(uuid.NAMESPACE_URL, f"{region}/{product}/{sku}/{meter}/{kind}")
    product_id = f"DZH318{uuid.uuid5(uuid.NAMESPACE_URL, product).hex[:6].upper()}"
    return str(name), product_id, f"{product_id}/{name.hex[:4].upper()}"


def _of_pool(pool: Pool, at_s: int) -> Iterator[dict[str, Any]]:
    listing, change = pool.listing, pool.at(at_s)
    size, names, region = listing.type.name, NAMES[listing.type.name], listing.zone.region
    usd_h, since = change.price_micro_usd_h / 1e6, to_iso(change.at_s * 1000)
    windows_usd_h = round(usd_h + WINDOWS_USD_VCPU_H * listing.type.vcpus, 6)
    windows = names.product.removesuffix(" Linux") + " Windows"
    if listing.market == "spot":
        spot = (f"{names.sku} Spot", f"{names.meter} Spot")
        ends = to_iso((at_s + 20 * DAY_S) * 1000)
        yield row(region, size, windows, *spot, windows_usd_h, since)
        yield row(region, size, names.product, *spot, usd_h, since, effectiveEndDate=ends)
        # One name says Spot and the other does not.
        yield row(region, size, names.product, names.sku, f"{names.meter} Spot", round(usd_h / 3, 6), since)
        return
    linux = (names.product, names.sku, names.meter)
    later, low = to_iso((at_s + 30 * DAY_S) * 1000), f"{names.sku} Low Priority"
    yield row(region, size, windows, names.sku, names.meter, windows_usd_h, since)
    yield row(region, size, *linux, round(usd_h * 1.2, 6), _LONG_AGO)
    yield row(region, size, *linux, usd_h, since)
    yield row(region, size, *linux, round(usd_h / 2, 6), later)
    yield row(region, size, names.product, low, f"{names.meter} Low Priority", round(usd_h / 5, 6), since)
    cloud_services = f"{names.product} Cloud Services"
    yield row(region, size, cloud_services, names.sku, names.meter, round(usd_h * 1.1, 6), since)
    elsewhere = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{size}/elsewhere"))
    yield row(region, size, *linux, round(usd_h / 4, 6), since, isPrimaryMeterRegion=False, meterId=elsewhere)
    host = size.removeprefix("Standard_").replace("_", "") + "_Type1"
    yield row(region, host, f"{names.product} DedicatedHost", host, host, round(usd_h * 2, 6), since)
    yield row(region, size, *linux, round(usd_h * 0.43, 6), since, type="DevTestConsumption")
    for term, years in (("1 Year", 1), ("3 Years", 3)):
        total = round(usd_h * 8760 * years * 0.64)
        yield row(region, size, *linux, float(total), since, type="Reservation", reservationTerm=term)


def _others(region: str) -> Iterator[dict[str, Any]]:
    """No machines with a whole GPU that we know: a part of one, none, an FPGA, and two that nobody here has facts of."""
    since = _LONG_AGO
    sixth = ("Virtual Machines NVadsA10v5 Series", "NV6adsA10v5", "NV6adsA10v5")
    yield row(region, "Standard_NV6ads_A10_v5", *sixth, 0.454, since)
    yield row(region, "Standard_D4s_v5", "Virtual Machines Dsv5 Series", "D4s v5", "D4s v5", 0.192, since)
    yield row(region, "Standard_NP10s", "Virtual Machines NP Series", "NP10s", "NP10s", 1.65, since)
    grace = "Standard_ND128isr_NDR_GB200_v6"
    yield row(region, grace, "Virtual Machines NDsr GB200 v6 Series", "ND128isr", "ND128isr", 108.16, since)
    new = "Standard_ND96isrf_H200_v5"
    yield row(
        region, new, "Virtual Machines NDsrH200v5 Series", "ND96isrfH200v5", "ND96isrfH200v5", 84.8, since
    )


def _filler(region: str, number: int) -> dict[str, Any]:
    name = f"E{2 + number % 95}-{number // 95}ds v5"
    size = f"Standard_{name.replace(' ', '_')}"
    return row(
        region,
        size,
        "Virtual Machines Edsv5 Series",
        name,
        name,
        round(0.05 * (1 + number % 95), 6),
        _LONG_AGO,
    )
