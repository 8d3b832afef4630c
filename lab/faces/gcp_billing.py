"""Cloud Billing: the SKUs of Compute Engine. A machine has no SKU, its cores, RAM and GPUs have.

Beside the SKUs that people want are the ones that trap them, all real: sole tenancy, commitments, DWS and calendar
mode, all of them cheaper, and a local SSD in another unit.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from broker.core.time import to_iso
from lab.faces.gcp_errors import Call, GcpError, page
from lab.faults import FaultKind
from lab.listing import InstanceType
from lab.pools import Pool
from lab.sold.gcp import sku_parts
from lab.world import World

SERVICE = "services/6F81-5844-456A"

# Machine family -> how the price list calls its cores and RAM, and its GPU.
_NAMES = {
    "a3-highgpu": ("A3", "Nvidia H100 80GB"),
    "a2-highgpu": ("A2", "Nvidia Tesla A100"),
    "g2-standard": ("G2", "Nvidia L4"),
}
_PLACES = {"us-central1": "Americas", "us-east4": "Virginia"}
_LONG_AGO_S = 1_735_689_600  # 2025-01-01
_UNITS = {"h": "hour", "GiBy.h": "gibibyte hour", "GiBy.mo": "gibibyte month"}


class Billing:
    """The price list over a world.

    Args:
        filler: SKUs of other machines; they lie before and after those that count.

    Attributes:
        operations: By method id.
    """

    def __init__(self, world: World, filler: int = 0) -> None:
        self._world = world
        self._filler = filler
        self.operations: Mapping[str, Callable[[Call], dict[str, Any]]] = {"skus.list": self.skus}

    def skus(self, call: Call) -> dict[str, Any]:
        """Every SKU, with the price in effect now."""
        if call.path["servicesId"] != SERVICE.rpartition("/")[2]:
            raise GcpError(404, "notFound", f"Service {call.path['servicesId']} was not found.")
        currency = "EUR" if call.fault is FaultKind.WRONG_CURRENCY else call.query.get("currencyCode", "USD")
        now_s = self._world.advance()
        sold: dict[tuple[str, str, str], Pool] = {}
        for pool in self._world.pools.values():
            listing = pool.listing
            if listing.zone.cloud == "gcp":
                sold.setdefault((listing.zone.region, listing.type.name, listing.market), pool)
        rows = [sku for (region, _, _), pool in sold.items() for sku in _skus(region, pool, now_s, currency)]
        for region in sorted({region for region, _, _ in sold}):
            text = f"SSD backed Local Storage attached to Spot Preemptible VMs in {_PLACES[region]}"
            since_s = self._world.start_s
            rows.append(
                _sku(
                    text,
                    "Storage",
                    "LocalSSD",
                    "Preemptible",
                    region,
                    "GiBy.mo",
                    48_000_000,
                    since_s,
                    currency,
                )
            )
        others = [_filler(number, currency) for number in range(self._filler)]
        rows = [*others[: self._filler // 2], *rows, *others[self._filler // 2 :]]
        part, token = page(call, rows, largest=5000, size_name="pageSize")
        return {"skus": part, "nextPageToken": token}


def _skus(region: str, pool: Pool, now_s: int, currency: str) -> Iterator[dict[str, Any]]:
    kind, spot, change = pool.listing.type, pool.listing.market == "spot", pool.at(now_s)
    name, gpu = _names(kind)
    prices = sku_parts(kind, change.price_micro_usd_h)
    usage, prefix = ("Preemptible", "Spot Preemptible ") if spot else ("OnDemand", "")
    attached = " attached to Spot Preemptible VMs" if spot else ""

    def sku(text: str, group: str, usage: str, nanos: int, unit: str = "h") -> dict[str, Any]:
        return _sku(
            f"{text} in {_PLACES[region]}",
            "Compute",
            group,
            usage,
            region,
            unit,
            nanos,
            change.at_s,
            currency,
        )

    yield sku(f"{prefix}{name} Instance Core running", "CPU", usage, prices.core_nano_usd_h)
    yield sku(f"{prefix}{name} Instance Ram running", "RAM", usage, prices.ram_nano_usd_gib_h, "GiBy.h")
    yield sku(f"{gpu} GPU{attached} running", "GPU", usage, prices.gpu_nano_usd_h)
    cheap = prices.gpu_nano_usd_h // 3
    if not spot:
        # By its usage type it looks like the one on demand.
        yield sku(f"{gpu} GPU attached to DWS Defined Duration VMs running", "GPU", usage, cheap)
        yield sku(f"{name} Sole Tenancy Instance Core running", "CPU", usage, prices.core_nano_usd_h // 2)
        yield sku(f"DWS Calendar Mode {gpu} GPU running", "GPU", usage, cheap)
        yield sku(f"Reserved {gpu} GPU running", "GPU", usage, cheap)
        yield sku(f"Commitment v1: {gpu} GPU running", "GPU", "Commit1Yr", cheap)


def _filler(number: int, currency: str) -> dict[str, Any]:
    """Cores and RAM of machines without a GPU, and what is no machine at all."""
    region = sorted(_PLACES)[number % len(_PLACES)]
    text, family, group, unit = (
        (f"N{number}D AMD Instance Core running", "Compute", "CPU", "h"),
        (f"N{number}D AMD Instance Ram running", "Compute", "RAM", "GiBy.h"),
        (f"Storage PD Capacity tier {number}", "Storage", "PDStandard", "GiBy.mo"),
    )[number % 3]
    usage = ("OnDemand", "Preemptible")[number % 2]
    nanos = 1_000_000 * (1 + number % 90)
    return _sku(
        f"{text} in {_PLACES[region]}", family, group, usage, region, unit, nanos, _LONG_AGO_S, currency
    )


def _sku(
    text: str,
    family: str,
    group: str,
    usage: str,
    region: str,
    unit: str,
    nanos: int,
    effective_s: int,
    currency: str,
) -> dict[str, Any]:
    digest = hashlib.sha256(f"{text}/{usage}/{region}".encode()).hexdigest().upper()
    sku_id = f"{digest[:4]}-{digest[4:8]}-{digest[8:12]}"
    whole, rest = divmod(nanos, 10**9)
    price = {"currencyCode": currency, "units": str(whole), "nanos": rest}
    expression = {
        "usageUnit": unit,
        "usageUnitDescription": _UNITS[unit],
        "displayQuantity": 1,
        "tieredRates": [{"startUsageAmount": 0, "unitPrice": price}],
        "baseUnit": "s" if unit == "h" else "By.s",
        "baseUnitDescription": "second" if unit == "h" else "byte second",
        "baseUnitConversionFactor": 3600,
    }
    return {
        "name": f"{SERVICE}/skus/{sku_id}",
        "skuId": sku_id,
        "description": text,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": family,
            "resourceGroup": group,
            "usageType": usage,
        },
        "serviceRegions": [region],
        "pricingInfo": [
            {
                "effectiveTime": to_iso(effective_s * 1000),
                "summary": "",
                "pricingExpression": expression,
                "currencyConversionRate": 1,
            }
        ],
        "serviceProviderName": "Google",
        "geoTaxonomy": {"type": "REGIONAL", "regions": [region]},
    }


def _names(kind: InstanceType) -> tuple[str, str]:
    return _NAMES[kind.name.rpartition("-")[0]]
