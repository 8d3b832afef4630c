"""AWS Pricing: ``GetProducts`` of AmazonEC2. Beside the rows that people want it sells the ones that trap them.

Traps, all real: Windows, dedicated hosts' tenancy, capacity reservations at zero dollars, capacity blocks at zero
dollars, and Reserved terms inside the very product that one wants.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from broker.core.time import to_iso
from lab.faces.aws_ec2 import beside
from lab.faces.aws_errors import AwsError, Call, page
from lab.faults import FaultKind
from lab.listing import InstanceType
from lab.pools import Pool, PriceChange
from lab.world import World

_LOCATIONS = {"us-east-1": "US East (N. Virginia)", "us-west-2": "US West (Oregon)"}
_USUAL = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
_A_YEAR = {"LeaseContractLength": "1yr", "OfferingClass": "standard", "PurchaseOption": "No Upfront"}
_FRACTION = "0.125"  # of a GPU, in a g6f.xlarge
# What differs from the usual row, and its price as a share of the usual one.
_ROWS: tuple[tuple[dict[str, str], float], ...] = (
    ({}, 1.0),
    ({"operatingSystem": "Windows", "licenseModel": "No License required"}, 1.4),
    ({"tenancy": "Dedicated"}, 1.1),
    ({"preInstalledSw": "SQL Std"}, 1.5),
    ({"capacitystatus": "AllocatedCapacityReservation"}, 0.0),
    ({"capacitystatus": "UnusedCapacityReservation"}, 1.0),
    ({"marketoption": "CapacityBlock"}, 0.0),
)


class Pricing:
    """The price list over a world.

    Attributes:
        operations: By API name.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.operations: Mapping[str, Callable[[Call], dict[str, Any]]] = {"GetProducts": self.get_products}

    def get_products(self, call: Call) -> dict[str, Any]:
        """``PriceList`` is a list of JSON *strings*, as AWS sends it."""
        if call.given.get("ServiceCode") != "AmazonEC2":
            raise AwsError("NotFoundException", "Service code not found")
        filters = call.given.get("Filters") or []
        if len(filters) > 50:
            raise AwsError("InvalidParameterException", "At most 50 filters are allowed")
        currency = "EUR" if call.fault is FaultKind.WRONG_CURRENCY else "USD"
        products = [
            product
            for product in self.products(currency)
            if all(_accepts(entry, product["product"]["attributes"]) for entry in filters)
        ]
        rows, token = page([json.dumps(product) for product in products], call, smallest=1, largest=100)
        answer: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": rows}
        return answer | ({"NextToken": token} if token else {})

    def products(self, currency: str = "USD") -> Iterator[dict[str, Any]]:
        """Every product with its terms, as of now."""
        now_s = self._world.advance()
        sold: dict[tuple[str, str], Pool] = {}
        for pool in (*self._world.pools.values(), *beside(self._world)):
            listing = pool.listing
            if listing.zone.cloud == "aws" and listing.market == "on_demand":
                sold.setdefault((listing.zone.region, listing.type.name), pool)
        for (region, _), pool in sold.items():
            for differs, share in _ROWS:
                yield _product(region, pool.listing.type, pool.at(now_s), differs, share, currency)


def _product(
    region: str,
    kind: InstanceType,
    change: PriceChange,
    differs: Mapping[str, str],
    share: float,
    currency: str,
) -> dict[str, Any]:
    usd = f"{round(change.price_micro_usd_h * share) / 1_000_000:.10f}"
    attributes = {**_attributes(region, kind), **_USUAL, **differs}
    sku = hashlib.sha256(json.dumps(attributes, sort_keys=True).encode()).hexdigest()[:16].upper()
    terms: dict[str, Any] = {"OnDemand": _term(sku, "JRTCKXETXF", "6YS6EN2CT7", change.at_s, usd, currency)}
    if not differs:
        reserved = f"{round(change.price_micro_usd_h * 0.63) / 1_000_000:.10f}"
        terms["Reserved"] = _term(sku, "4NA7Y494T4", "6YS6EN2CT7", change.at_s, reserved, currency, _A_YEAR)
    return {
        "product": {"productFamily": "Compute Instance", "sku": sku, "attributes": attributes},
        "serviceCode": "AmazonEC2",
        "terms": terms,
        "version": "20261130000000",
        "publicationDate": to_iso(change.at_s * 1000),
    }


def _attributes(region: str, kind: InstanceType) -> dict[str, str]:
    return {
        "servicecode": "AmazonEC2",
        "regionCode": region,
        "location": _LOCATIONS[region],
        "locationType": "AWS Region",
        "instanceType": kind.name,
        "instanceFamily": "GPU instance",
        "vcpu": str(kind.vcpus),
        "memory": f"{kind.memory_gib} GiB",
        "gpu": str(kind.gpus) if kind.gpus else _FRACTION,
        "gpuMemory": f"{kind.gpus * kind.gpu_mib // 1024} GB",
        "licenseModel": "No License required",
        "operation": "RunInstances",
        "usagetype": f"BoxUsage:{kind.name}",
        "currentGeneration": "Yes",
    }


def _term(
    sku: str,
    offer: str,
    rate: str,
    from_s: int,
    price: str,
    currency: str,
    attributes: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    dimension = {
        "rateCode": f"{sku}.{offer}.{rate}",
        "unit": "Hrs",
        "beginRange": "0",
        "endRange": "Inf",
        "description": f"{price} {currency} per hour",
        "appliesTo": [],
        "pricePerUnit": {currency: price},
    }
    return {
        f"{sku}.{offer}": {
            "sku": sku,
            "offerTermCode": offer,
            "effectiveDate": to_iso(from_s * 1000),
            "termAttributes": dict(attributes or {}),
            "priceDimensions": {dimension["rateCode"]: dimension},
        }
    }


def _accepts(entry: Mapping[str, str], attributes: Mapping[str, str]) -> bool:
    value, wanted = attributes.get(entry["Field"]), entry["Value"]
    several = [part.strip() for part in wanted.split(",")]
    match entry["Type"]:
        case "TERM_MATCH" | "EQUALS":
            return value is not None and value.lower() == wanted.lower()
        case "CONTAINS":
            return value is not None and wanted.lower() in value.lower()
        case "ANY_OF":
            return value in several
        case "NONE_OF":
            return value not in several
        case other:
            raise AwsError("InvalidParameterException", f"Unknown filter type {other}")
