"""EC2's catalogue and prices: zones, subnets, instance types and where they are sold, spot price history.

Instance types are AWS's own descriptions, as recorded in moto's data; only those of `lab.catalog` are sold, and beside
them a fraction of a GPU, as a trap.
"""

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import moto.ec2

from lab.catalog import ZONES
from lab.faces.aws_errors import BEGINNING, AwsError, Call, matches, page
from lab.faces.aws_instances import Instances
from lab.faces.aws_scores import Scores
from lab.listing import Zone
from lab.pools import Pool, opened
from lab.sold import aws as sold
from lab.world import World

HISTORY_DAYS = 90
# Products of one pool, their price as a share of Linux's. Asking for none of them returns them all.
_PRODUCTS = {"Linux/UNIX": 1.0, "Windows": 1.45}
_SAME_PRODUCT = {"Linux/UNIX (Amazon VPC)": "Linux/UNIX", "Windows (Amazon VPC)": "Windows"}


class Ec2:
    """EC2 over a world.

    Attributes:
        operations: By API name; those of instances are `lab.faces.aws_instances`.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.operations: Mapping[str, Callable[[Call], dict[str, Any]]] = {
            "DescribeRegions": self.describe_regions,
            "DescribeAvailabilityZones": self.describe_availability_zones,
            "DescribeSubnets": self.describe_subnets,
            "DescribeInstanceTypes": self.describe_instance_types,
            "DescribeInstanceTypeOfferings": self.describe_instance_type_offerings,
            "DescribeSpotPriceHistory": self.describe_spot_price_history,
            "GetSpotPlacementScores": Scores(world).get,
            **Instances(world).operations,
        }

    def describe_regions(self, call: Call) -> dict[str, Any]:
        """Regions with at least one zone here."""
        names = sorted({zone.region for zone in ZONES.values() if zone.cloud == "aws"})
        rows = [
            {"RegionName": n, "Endpoint": f"ec2.{n}.amazonaws.com", "OptInStatus": "opt-in-not-required"}
            for n in names
        ]
        return {"Regions": rows}

    def describe_availability_zones(self, call: Call) -> dict[str, Any]:
        """Zones with id and with this account's name for them."""
        rows = [
            {
                "ZoneName": zone.name,
                "ZoneId": zone.id,
                "RegionName": zone.region,
                "GroupName": zone.region,
                "NetworkBorderGroup": zone.region,
                "ZoneType": "availability-zone",
                "State": "available",
                "OptInStatus": "opt-in-not-required",
            }
            for zone in zones(call.region)
        ]
        fields = {"zone-name": "ZoneName", "zone-id": "ZoneId", "region-name": "RegionName", "state": "State"}
        fields["zone-type"] = "ZoneType"
        return {"AvailabilityZones": [row for row in rows if _passes(call, row, fields)]}

    def describe_subnets(self, call: Call) -> dict[str, Any]:
        """The default VPC's subnet of each zone."""
        rows = [
            {
                "SubnetId": subnet_id(zone),
                "VpcId": "vpc-1ab0ab1ab0ab1ab0a",
                "AvailabilityZone": zone.name,
                "AvailabilityZoneId": zone.id,
                "State": "available",
                "DefaultForAz": True,
                "CidrBlock": f"10.0.{16 * number}.0/20",
            }
            for number, zone in enumerate(zones(call.region))
        ]
        fields = {"availability-zone-id": "AvailabilityZoneId", "availability-zone": "AvailabilityZone"}
        return {"Subnets": [row for row in rows if _passes(call, row, fields | {"subnet-id": "SubnetId"})]}

    def describe_instance_types(self, call: Call) -> dict[str, Any]:
        """AWS's own descriptions, GPUs and their memory included."""
        sold = {pool.listing.type.name for pool in self._pools(call)}
        wanted = call.given.get("InstanceTypes") or []
        if unknown := [name for name in wanted if name not in sold]:
            text = ", ".join(unknown)
            raise AwsError(
                "InvalidInstanceType", f"The following supplied instance types do not exist: [{text}]"
            )
        rows = [instance_types()[name] for name in sorted(sold) if not wanted or name in wanted]
        rows = [row for row in rows if _passes(call, row, {"instance-type": "InstanceType"})]
        found, token = page(rows, call, largest=100)
        return {"InstanceTypes": found} | _next(token)

    def describe_instance_type_offerings(self, call: Call) -> dict[str, Any]:
        """Which types are sold where, by region, zone name or zone id."""
        kind = call.given.get("LocationType") or "region"
        where: dict[str, Callable[[Zone], str]] = {
            "region": lambda zone: zone.region,
            "availability-zone": lambda zone: zone.name,
            "availability-zone-id": lambda zone: zone.id,
        }
        if kind not in where:
            raise AwsError("InvalidParameterValue", f"Invalid value '{kind}' for locationType.")
        pairs = sorted(
            {(pool.listing.type.name, where[kind](pool.listing.zone)) for pool in self._pools(call)}
        )
        rows = [{"InstanceType": name, "LocationType": kind, "Location": place} for name, place in pairs]
        rows = [
            row
            for row in rows
            if _passes(call, row, {"instance-type": "InstanceType", "location": "Location"})
        ]
        found, token = page(rows, call)
        return {"InstanceTypeOfferings": found} | _next(token)

    def describe_spot_price_history(self, call: Call) -> dict[str, Any]:
        """Change points of the range, and the one in force at its start; newest first.

        The first page of a range is empty and has a token, as EC2's pages may be.
        """
        rows = sorted(
            self._history(call), key=lambda row: (row["Timestamp"], row["InstanceType"]), reverse=True
        )
        span = call.given.get("StartTime") != call.given.get("EndTime")
        if span and not call.given.get("NextToken") and call.fault is None:
            return {"SpotPriceHistory": [], "NextToken": BEGINNING}
        found, token = page(rows, call, smallest=1)
        return {"SpotPriceHistory": found, "NextToken": token}

    def _history(self, call: Call) -> Iterator[dict[str, Any]]:
        given, filters = call.given, call.filters()
        if given.get("AvailabilityZone") and given.get("AvailabilityZoneId"):
            raise AwsError(
                "InvalidParameterCombination", "AvailabilityZone and AvailabilityZoneId cannot be both given"
            )
        now = datetime.fromtimestamp(self._world.advance(), UTC)
        end = _utc(given.get("EndTime")) or now
        start = max(_utc(given.get("StartTime")) or now, now - timedelta(days=HISTORY_DAYS))
        if start > end:
            raise AwsError("InvalidParameterValue", "StartTime must not be after EndTime")
        asked = given.get("ProductDescriptions") or filters.get("product-description")
        products = [p for p in (*_PRODUCTS, *_SAME_PRODUCT) if asked is not None and p in asked] or (
            [] if asked else list(_PRODUCTS)
        )
        fields = {"availability-zone": "AvailabilityZone", "availability-zone-id": "AvailabilityZoneId"}
        fields |= {"instance-type": "InstanceType", "product-description": "ProductDescription"}
        for pool in self._pools(call):
            zone, name = pool.listing.zone, pool.listing.type.name
            unwanted = (
                pool.listing.market != "spot"
                or (given.get("InstanceTypes") and name not in given["InstanceTypes"])
                or given.get("AvailabilityZone") not in (None, "", zone.name)
                or given.get("AvailabilityZoneId") not in (None, "", zone.id)
            )
            if unwanted:
                continue
            first = pool.at(int(start.timestamp()))
            for change in pool.changes:
                at = datetime.fromtimestamp(change.at_s, UTC)
                if at > end or (at <= start and change is not first):
                    continue
                for product in products:
                    share = _PRODUCTS[_SAME_PRODUCT.get(product, product)]
                    row = {
                        "AvailabilityZone": zone.name,
                        "AvailabilityZoneId": zone.id,
                        "InstanceType": name,
                        "ProductDescription": product,
                        "SpotPrice": f"{round(change.price_micro_usd_h * share) / 1_000_000:.6f}",
                        "Timestamp": at,
                    }
                    if _passes(call, row, fields):
                        yield row

    def _pools(self, call: Call) -> list[Pool]:
        self._world.advance()
        return [
            pool
            for pool in (*self._world.pools.values(), *beside(self._world))
            if pool.listing.zone.cloud == "aws" and pool.listing.zone.region == call.region
        ]


def beside(world: World) -> Iterator[Pool]:
    """What is listed and is no pool of the world."""
    for listing in sold.beside():
        yield opened(listing, world.start_s, listing.price_micro_usd_h, None, world.scenario.seed)


def zones(region: str) -> list[Zone]:
    """Zones of a region, in the order of their names."""
    found = [zone for zone in ZONES.values() if zone.cloud == "aws" and zone.region == region]
    return sorted(found, key=lambda zone: zone.name)


def subnet_id(zone: Zone) -> str:
    """The default subnet of a zone."""
    return f"subnet-{zone.id.replace('-', '')}"


@cache
def instance_types() -> dict[str, dict[str, Any]]:
    """AWS's descriptions of the types that the lab sells."""
    path = Path(moto.ec2.__file__).parent / "resources" / "instance_types.json.gz"
    everything = json.loads(gzip.decompress(path.read_bytes()))
    return {kind.name: everything[kind.name] for kind in (*sold.TYPES, sold.FRACTION)}


def _next(token: str) -> dict[str, str]:
    return {"NextToken": token} if token else {}


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(tzinfo=UTC)


def _passes(call: Call, row: Mapping[str, Any], fields: Mapping[str, str]) -> bool:
    for name, values in call.filters().items():
        if name not in fields:
            raise AwsError("InvalidParameterValue", f"The filter '{name}' is invalid")
        if not matches(values, str(row[fields[name]])):
            return False
    return True
