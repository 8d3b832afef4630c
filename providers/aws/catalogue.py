"""What each region sells: instance types with GPUs, the zones they are sold in, and those zones' ids."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from broker.core.offer import Market, Offer
from broker.core.ports import Clock
from broker.core.time import DAY_S, MS
from providers.aws.clients import Clients
from providers.aws.errors import translated
from providers.aws.settings import AwsOptions
from providers.aws.types import TypeFacts, facts
from providers.offers import offer_of

# Types and zones change by the month; reading them costs a dozen calls.
_AGE_MS = DAY_S * MS


@dataclass(frozen=True)
class Catalogue:
    """What one region sells. Zones are zone *ids*: zone names are shuffled between accounts.

    Attributes:
        types: By instance type.
        zones: Zone ids by instance type, where it can be launched.
        zone_ids: Zone id by this account's zone name.
    """

    region: str
    read_at_ms: int
    types: Mapping[str, TypeFacts]
    zones: Mapping[str, Sequence[str]]
    zone_ids: Mapping[str, str]

    def offer(self, name: str, zone: str, market: Market) -> Offer:
        """One of its types in one of its zones."""
        return offer_of("aws", self.region, zone, self.types[name], market)


class Catalogues:
    """Reads catalogues, and keeps each for a day. Threads may ask for different regions at once."""

    def __init__(self, options: AwsOptions, clients: Clients, clock: Clock) -> None:
        self._options = options
        self._clients = clients
        self._clock = clock
        self._known: dict[str, Catalogue] = {}

    def of(self, region: str) -> Catalogue:
        """The catalogue of a region.

        Raises:
            ProviderError: a call failed.
        """
        known, now_ms = self._known.get(region), self._clock.now_ms()
        if known is None or now_ms - known.read_at_ms > _AGE_MS:
            known = self._known[region] = self._read(region, now_ms)
        return known

    def _read(self, region: str, now_ms: int) -> Catalogue:
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
        return Catalogue(region, now_ms, types, zones, zone_ids)


def chunks(names: Sequence[str], size: int) -> Iterator[list[str]]:
    """Parts of at most that many names."""
    for start in range(0, len(names), size):
        yield list(names[start : start + size])
