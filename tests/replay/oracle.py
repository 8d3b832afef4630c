"""What was true, by looking ahead. Shares nothing with the market's own rules but the price of the licence.

The prices of a series are walked with the one that held last. Another one is

- `LICENCE`: false, an on-demand price of Azure that is dearer by $0.046 a vCPU, to the tenth of a cent;
- `REVERTS`: false, it goes back to exactly the old price within three polls;
- `STEP`: real; on Azure spot it must hold for four polls to be that;
- `BRIEF`: neither, a spot price of Azure that holds for less and goes elsewhere.

A cloud that dates its prices itself has charged them, however soon they went back: there `REVERTS` is only counted.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from broker.core.offer import Market
from tests.replay.recording import Recording, Series

LICENCE_USD_PER_VCPU = Decimal("0.046")
REVERTS_WITHIN = 3
HOLDS = 4


class Kind(StrEnum):
    LICENCE = "licence"
    REVERTS = "reverts"
    STEP = "step"
    BRIEF = "brief"


@dataclass(frozen=True)
class Change:
    """A series read another price than the one that held.

    Attributes:
        poll, until: First poll that read it, and the first one after that which read something else.
        readings: How many polls read it.
    """

    key: str
    kind: Kind
    poll: int
    until: int
    readings: int
    was: Decimal
    price: Decimal

    @property
    def is_false(self) -> bool:
        return self.kind in (Kind.LICENCE, Kind.REVERTS)


def changes(recording: Recording) -> list[Change]:
    """All changes of all series."""
    return [change for series in recording.series.values() for change in _changes(recording, series)]


def _changes(recording: Recording, series: Series) -> Iterator[Change]:
    runs = _runs(series, len(recording.polls_ms))
    if not runs:
        return
    held = _first(series, runs)
    for index, (price, poll, until, readings) in enumerate(runs):
        if price == held:
            continue
        kind = _kind(series, held, price, poll, readings, runs[index + 1 :])
        yield Change(series.offer.key, kind, poll, until, readings, held, price)
        if kind is Kind.STEP or (kind is Kind.REVERTS and series.since_ms):
            held = price


Run = tuple[Decimal, int, int, int]


def _runs(series: Series, polls: int) -> list[Run]:
    """Price, first poll, first poll of the next run, readings; polls that lost the row interrupt nothing."""
    found: list[list] = []
    for poll, price in series.readings():
        if found and found[-1][0] == price:
            found[-1][2] += 1
        else:
            found.append([price, poll, 1])
    ends = [*(run[1] for run in found[1:]), polls][: len(found)]
    return [(price, poll, end, readings) for (price, poll, readings), end in zip(found, ends, strict=True)]


def _first(series: Series, runs: list[Run]) -> Decimal:
    """The first price; that without the licence if it was read with it."""
    first = runs[0][0]
    later = {price for price, *_ in runs}
    without = next((price for price in later if _is_licence(series, price, first)), None)
    return first if without is None else without


def _kind(series: Series, held: Decimal, price: Decimal, poll: int, readings: int, rest: list[Run]) -> Kind:
    if _is_licence(series, held, price):
        return Kind.LICENCE
    if any(later == held and at <= poll + REVERTS_WITHIN for later, at, _, _ in rest):
        return Kind.REVERTS
    offer = series.offer
    if offer.cloud == "azure" and offer.market is Market.SPOT and readings < HOLDS:
        return Kind.BRIEF
    return Kind.STEP


def _is_licence(series: Series, held: Decimal, price: Decimal) -> bool:
    offer = series.offer
    if offer.cloud != "azure" or offer.market is not Market.ON_DEMAND or not offer.vcpus:
        return False
    return abs(price - held - LICENCE_USD_PER_VCPU * offer.vcpus) <= Decimal("0.001")
