"""Why gpuhunt 0.1.34 has other offers than we have, cloud by cloud: the rules that `compare` takes.

What a rule needs to be exact it reads from the market itself, not from either of the two. Names are those of the table in
``docs/internals/gpuhunt.md``.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from broker.core.gpu import GPUS
from broker.core.offer import Offer
from broker.core.time import from_iso
from lab.faces.azure_meters import Meters
from lab.faces.gcp_billing import SERVICE, Billing
from lab.faces.gcp_errors import Call
from lab.listing import InstanceType
from lab.sold.lambda_cloud import PLACES
from lab.world import World
from tests.process.gpuhunt.compare import FactRule, Facts, Price, Rule

# gpuhunt counts Lambda's GiB as so many GB.
_GB_A_GIB = 1.074


@dataclass(frozen=True)
class Reasons:
    """Rules of one cloud, by name. Those of facts also say which fact."""

    ours_only: Mapping[str, Rule] = field(default_factory=dict)
    theirs_only: Mapping[str, Rule] = field(default_factory=dict)
    facts: Mapping[str, tuple[str, FactRule]] = field(default_factory=dict)


def reasons(cloud: str, world: World, mine: Mapping[Price, list[Offer]], log: str) -> Reasons:
    """Of one cloud.

    Args:
        mine: Our offers by price.
        log: What gpuhunt printed.
    """
    of_cloud: Mapping[str, Callable[[], Reasons]] = {
        "aws": lambda: _aws(mine),
        "lambda": _lambda,
        "azure": lambda: _azure(world, mine, log),
        "gcp": lambda: _gcp(world),
    }
    return of_cloud[cloud]()


def _aws(mine: Mapping[Price, list[Offer]]) -> Reasons:
    def dearer(price: Price) -> bool:
        spot = [
            other.micro_usd_h
            for other in mine
            if (other.place, other.instance_type, other.market) == (price.place, price.instance_type, "spot")
        ]
        return price.market == "spot" and price.micro_usd_h > min(spot)

    def as_reported(offer: Offer, told: Facts) -> bool:
        return offer.gpu == "A10G-24GB" and told.gpu_gib == 22888 / 1024

    return Reasons(
        {"zones dearer than the cheapest": dearer}, {}, {"memory of an A10G": ("gpu_gib", as_reported)}
    )


def _lambda() -> Reasons:
    def in_gb(offer: Offer, told: Facts) -> bool:
        return told.memory_gib == float(offer.memory_gib) * _GB_A_GIB

    return Reasons(
        {"regions that no image names": lambda price: price.place not in PLACES},
        {},
        {"memory of the machine": ("memory_gib", in_gb)},
    )


def _azure(world: World, mine: Mapping[Price, list[Offer]], log: str) -> Reasons:
    now_ms = world.clock.now_ms()
    rows = list(Meters(world).rows(world.advance()))
    begun: dict[str, str] = {}  # meter -> the newest date of its prices that have begun
    for row in rows:
        if from_iso(row["effectiveStartDate"]) <= now_ms and row["type"] == "Consumption":
            begun[row["meterId"]] = max(begun.get(row["meterId"], ""), row["effectiveStartDate"])

    def every(test: Callable[[Mapping[str, Any]], bool]) -> Rule:
        """A test of each row that gpuhunt may have the price from."""

        def rule(price: Price) -> bool:
            found = [row for row in rows if row["type"] == "Consumption" and _is_of(row, price)]
            return bool(found) and all(test(row) for row in found)

        return rule

    def unknown(price: Price) -> bool:
        return any(offer.gpu not in GPUS for offer in mine[price])

    def unparsed(price: Price) -> bool:
        return not unknown(price) and f"Can't parse VM name: {price.instance_type}\n" in log

    return Reasons(
        {"sizes it cannot parse": unparsed, "GPUs in quarantine": unknown},
        {
            "meters of other regions": every(lambda row: not row["isPrimaryMeterRegion"]),
            "Cloud Services": every(lambda row: row["productName"].endswith("Cloud Services")),
            "spot by the meter's name alone": every(
                lambda row: "Spot" in row["meterName"] and "Spot" not in row["skuName"]
            ),
            "prices of other dates": every(
                lambda row: row["isPrimaryMeterRegion"] and row["effectiveStartDate"] != begun[row["meterId"]]
            ),
            "parts of a GPU": every(lambda row: row["armSkuName"] == "Standard_NV6ads_A10_v5"),
        },
    )


def _is_of(row: Mapping[str, Any], price: Price) -> bool:
    """Whether a row is what gpuhunt takes a price from."""
    market = "spot" if "Spot" in row["meterName"] else "on_demand"
    unwanted = "Windows" in row["productName"] or "Low Priority" in row["meterName"]
    return not unwanted and price == Price(
        row["armRegionName"], row["armSkuName"], market, Decimal(str(row["retailPrice"])) * 10**6
    )


def _gcp(world: World) -> Reasons:
    skus = Billing(world).skus(Call("skus.list", {"servicesId": SERVICE.rpartition("/")[2]}, {}, None, ""))[
        "skus"
    ]
    kinds = {
        (pool.listing.zone.id, pool.listing.type.name): (pool.listing.zone.region, pool.listing.type)
        for pool in world.pools.values()
        if pool.listing.zone.cloud == "gcp"
    }

    def flex(price: Price) -> bool:
        region, kind = kinds[price.place, price.instance_type]
        return price.market == "on_demand" and price.micro_usd_h == _with_flex_gpu(skus, region, kind)

    def pair(price: Price) -> bool:
        """Ours, where gpuhunt has that other price: what the market takes on demand."""
        key = f"gcp/{price.place}/{price.instance_type}/on_demand"
        return price.market == "on_demand" and price.micro_usd_h == world.price(key)

    return Reasons({"a GPU at the price of DWS": pair}, {"a GPU at the price of DWS": flex})


def _with_flex_gpu(skus: Iterable[Mapping[str, Any]], region: str, kind: InstanceType) -> Decimal:
    """Core and RAM on demand, and the GPU of the SKU for machines that Google starts when it has room."""
    family = kind.name.partition("-")[0].upper()
    gpu = {"A2": "Nvidia Tesla A100", "A3": "Nvidia H100 80GB", "G2": "Nvidia L4"}[family]
    counts = {
        f"{family} Instance Core running": kind.vcpus,
        f"{family} Instance Ram running": kind.memory_gib,
        f"{gpu} GPU attached to DWS Defined Duration VMs running": kind.gpus,
    }
    nanos = 0
    for sku in skus:
        count = counts.get(sku["description"].partition(" in ")[0])
        if count and sku["serviceRegions"] == [region]:
            price = sku["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"]
            nanos += count * (int(price["units"]) * 10**9 + price["nanos"])
    return round(Decimal(nanos) / 1000)
