"""What a cloud charges beside an offer's price: how a stretch becomes money, what leaving costs. Rules as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from broker.core.offer import Offer

Value = TypeVar("Value")


class Sampling(StrEnum):
    """Which price a moment of a segment is charged at, where prices move."""

    CONTINUOUS = "continuous"  # the price of that moment
    INSTANCE_HOUR = "instance_hour"  # the price at the start of the hour, counted from the segment's start


@dataclass(frozen=True)
class BillingRule:
    """How a cloud turns a segment into money.

    Attributes:
        unit_s: Granularity; a started unit is billed whole.
        minimum_s: Shortest billed duration of a segment.
        free_if_interrupted_within_s: Billed nothing when the *cloud* ends the segment before this (AWS Linux
            spot: 3600). 0 when there is no such rule.
        sampling: Which price counts while prices move.
        meter: From what to what the cloud counts, in its own words; a segment has these bounds.
        unconfirmed: What in this rule the sources do not agree on; empty when nothing.
        source: Where the rule is written down, with its date.
    """

    unit_s: int = 1
    minimum_s: int = 60
    free_if_interrupted_within_s: int = 0
    sampling: Sampling = Sampling.CONTINUOUS
    meter: str = ""
    unconfirmed: str = ""
    source: str = ""


@dataclass(frozen=True)
class EgressPrices:
    """One GiB that leaves regions where other prices hold, in micro-USD; None where the rule's own one does.

    Attributes:
        region: To another region of the same area.
        area: To a region of another area.
        internet: To another cloud, or to a store elsewhere.
    """

    region: int | None = None
    area: int | None = None
    internet: int | None = None


@dataclass(frozen=True)
class EgressRule:
    """Price of one GiB that leaves a place, in micro-USD, by how far it goes.

    Attributes:
        zone: To another zone of the region.
        region: To another region of the same area.
        area: To a region of another area.
        internet: To another cloud, or to a store elsewhere.
        areas: Area by the start of a region's name (``us-`` -> ``america``); the longest match counts. A region that
            matches none is an area of its own.
        elsewhere: Other prices by the start of the name of the region that is *left*; the longest match counts.
        source: Where it is written down, with its date.
    """

    zone: int
    region: int
    area: int
    internet: int
    areas: Mapping[str, str] = field(default_factory=dict)
    elsewhere: Mapping[str, EgressPrices] = field(default_factory=dict)
    source: str = ""

    def micro_usd_per_gib(self, from_offer: Offer, to_offer: Offer | None) -> int:
        """From a place to another one; None is a store elsewhere. Within one zone nothing is charged."""
        here = _of_start(self.elsewhere, from_offer.region) or EgressPrices()
        if to_offer is None or to_offer.cloud != from_offer.cloud:
            return self.internet if here.internet is None else here.internet
        if to_offer.region == from_offer.region:
            return 0 if to_offer.zone == from_offer.zone else self.zone
        if self.area_of(to_offer.region) == self.area_of(from_offer.region):
            return self.region if here.region is None else here.region
        return self.area if here.area is None else here.area

    def area_of(self, region: str) -> str:
        """The area that a region lies in."""
        return _of_start(self.areas, region) or region


def _of_start(by_start: Mapping[str, Value], name: str) -> Value | None:
    starts = [start for start in by_start if name.startswith(start)]
    return by_start[max(starts, key=len)] if starts else None
