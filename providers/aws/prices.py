"""Quotes of EC2: spot from the price history, on demand from the price list, GPUs from the instance types.

Zones are zone *ids* everywhere: zone names are shuffled between accounts.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.core.offer import Market, Offer, RawQuote
from broker.core.ports import Clock
from broker.core.time import DAY_S, MS, from_datetime, from_iso, to_datetime
from providers.aws.clients import Clients
from providers.aws.errors import translated
from providers.aws.settings import AwsOptions
from providers.aws.types import TypeFacts, facts

SPOT_SOURCE = "aws:spot_history"
ON_DEMAND_SOURCE = "aws:price_list"

# Types and zones change by the month; reading them costs a dozen calls.
_CATALOGUE_AGE_MS = DAY_S * MS
_TYPES_A_CALL = 100
_VALUES_A_FILTER = 40


@dataclass(frozen=True)
class Catalogue:
    """What one region sells.

    Attributes:
        types: By instance type.
        zones: Zone ids by instance type, where it can be launched.
        zone_ids: Zone id by this account's zone name.
    """

    read_at_ms: int
    types: Mapping[str, TypeFacts]
    zones: Mapping[str, Sequence[str]]
    zone_ids: Mapping[str, str]


@dataclass(frozen=True)
class ListPrice:
    """One on-demand price as the list has it. `effective_at_ms` is the price list's own date."""

    text: str
    currency: str
    effective_at_ms: int | None


class Prices:
    """Reads the quotes of the configured regions."""

    def __init__(self, options: AwsOptions, clients: Clients, clock: Clock) -> None:
        self._options = options
        self._clients = clients
        self._clock = clock
        self._catalogues: dict[str, Catalogue] = {}

    def quotes(self) -> list[RawQuote]:
        """Every price; all or nothing.

        Raises:
            ProviderError: a call failed; nothing is returned then, for half a market looks like a stock-out.
        """
        found: list[RawQuote] = []
        for region in self._options.regions:
            catalogue = self._catalogue(region)
            found += self._spot(region, catalogue)
            found += self._on_demand(region, catalogue)
        return found

    def _spot(self, region: str, catalogue: Catalogue) -> Iterator[RawQuote]:
        """The price now of each pool: with start and end at one moment EC2 answers the change in effect then."""
        now = to_datetime(self._clock.now_ms())
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        with translated(f"reading spot prices in {region}"):
            pages = self._clients.ec2(region).get_paginator("describe_spot_price_history")
            for names in _chunks(sorted(catalogue.types), _TYPES_A_CALL):
                asked = {
                    "InstanceTypes": names,
                    "ProductDescriptions": ["Linux/UNIX"],
                    "StartTime": now,
                    "EndTime": now,
                }
                for page in pages.paginate(**asked):
                    for row in page["SpotPriceHistory"]:
                        zone = row.get("AvailabilityZoneId") or catalogue.zone_ids.get(
                            row["AvailabilityZone"], ""
                        )
                        known = rows.get((row["InstanceType"], zone))
                        if zone and (known is None or known["Timestamp"] < row["Timestamp"]):
                            rows[row["InstanceType"], zone] = row
        for (name, zone), row in rows.items():
            if name in catalogue.types:
                offer = _offer(region, zone, catalogue.types[name], Market.SPOT)
                effective = from_datetime(row["Timestamp"])
                yield RawQuote(offer, row["SpotPrice"], "USD", effective, SPOT_SOURCE)

    def _on_demand(self, region: str, catalogue: Catalogue) -> Iterator[RawQuote]:
        prices: dict[str, ListPrice] = {}
        filters = {
            "regionCode": region,
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
            "marketoption": "OnDemand",
        }
        with translated(f"reading the price list of {region}"):
            pages = self._clients.pricing().get_paginator("get_products")
            for names in _chunks(sorted(catalogue.types), _VALUES_A_FILTER):
                asked = [
                    {"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in filters.items()
                ]
                asked.append({"Type": "ANY_OF", "Field": "instanceType", "Value": ",".join(names)})
                for page in pages.paginate(ServiceCode="AmazonEC2", Filters=asked):
                    for text in page["PriceList"]:
                        _take(prices, json.loads(text))
        for name, price in prices.items():
            for zone in catalogue.zones.get(name, ()):
                offer = _offer(region, zone, catalogue.types[name], Market.ON_DEMAND)
                yield RawQuote(offer, price.text, price.currency, price.effective_at_ms, ON_DEMAND_SOURCE)

    def _catalogue(self, region: str) -> Catalogue:
        known = self._catalogues.get(region)
        now_ms = self._clock.now_ms()
        if known is None or now_ms - known.read_at_ms > _CATALOGUE_AGE_MS:
            known = self._catalogues[region] = self._read_catalogue(region, now_ms)
        return known

    def _read_catalogue(self, region: str, now_ms: int) -> Catalogue:
        ec2 = self._clients.ec2(region)
        asked = [{"Name": "instance-type", "Values": list(self._options.instance_types)}]
        types: dict[str, TypeFacts] = {}
        zones: dict[str, list[str]] = {}
        with translated(f"reading the instance types of {region}"):
            for page in ec2.get_paginator("describe_instance_types").paginate(Filters=asked):
                types |= {kind.name: kind for entry in page["InstanceTypes"] if (kind := facts(entry))}
            offerings = ec2.get_paginator("describe_instance_type_offerings")
            for page in offerings.paginate(LocationType="availability-zone-id", Filters=asked):
                for row in page["InstanceTypeOfferings"]:
                    zones.setdefault(row["InstanceType"], []).append(row["Location"])
            answer = ec2.describe_availability_zones()
        zone_ids = {zone["ZoneName"]: zone["ZoneId"] for zone in answer["AvailabilityZones"]}
        return Catalogue(now_ms, types, zones, zone_ids)


def _take(prices: dict[str, ListPrice], product: dict[str, Any]) -> None:
    """Keep a product's hourly price, the newest where several are listed; zero rows are reservations in disguise."""
    name = product["product"]["attributes"]["instanceType"]
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        effective = from_iso(term["effectiveDate"]) if term.get("effectiveDate") else None
        for dimension in term.get("priceDimensions", {}).values():
            # One entry a currency; another than the dollar is passed on, for the market to put in quarantine.
            for currency, text in dimension.get("pricePerUnit", {}).items():
                known = prices.get(name)
                newer = known is None or (known.effective_at_ms or 0) < (effective or 0)
                if dimension.get("unit") == "Hrs" and text.strip("0.") and newer:
                    prices[name] = ListPrice(text, currency, effective)


def _offer(region: str, zone: str, kind: TypeFacts, market: Market) -> Offer:
    return Offer(
        cloud="aws",
        region=region,
        zone=zone,
        instance_type=kind.name,
        market=market,
        gpu=kind.gpu,
        gpus=kind.gpus,
        vcpus=kind.vcpus,
        memory_gib=kind.memory_gib,
        interconnect=kind.interconnect,
        fabric=kind.fabric,
    )


def _chunks(names: Sequence[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(names), size):
        yield list(names[start : start + size])
