"""What Azure says about obtaining spot machines, and what they cost before: Resource Graph and placement scores.

``SpotResources`` keeps eviction rates of 28 days as ranges, and prices of 90 days. Documented at
learn.microsoft.com/azure/virtual-machines/spot-vms; of a past price only ``priceUSD`` is, its date is ``effectiveDate``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.core.errors import ProviderDown
from broker.core.time import from_iso
from providers.azure.clients import Clients
from providers.azure.errors import translated

_PAGE_ROWS = 1000
_MAX_PAGES = 100
_EVICTIONS = """SpotResources
| where type =~ 'microsoft.compute/skuspotevictionrate/location'
| where sku.name in~ ({sizes}) and location in~ ({regions})
| project skuName = tostring(sku.name), location, evictionRate = tostring(properties.evictionRate)
| order by skuName asc, location asc"""
_PAST = """SpotResources
| where type =~ 'microsoft.compute/skuspotpricehistory/ostype/location'
| where sku.name in~ ({sizes}) and location in~ ({regions}) and properties.osType =~ 'linux'
| project skuName = tostring(sku.name), location, spotPrices = properties.spotPrices
| order by skuName asc, location asc"""

_RANGE = re.compile(r"(\d{1,3})(?:-(\d{1,3})|(\+))")
_RANKS = {"Low": 1, "Medium": 2, "High": 3}
# Bounds of one call.
_SCORE_REGIONS, _SCORE_SIZES = 8, 5


@dataclass(frozen=True)
class Eviction:
    """Share of a size's spot machines that is evicted in an hour. `size` is in lower case."""

    size: str
    region: str
    low: float
    high: float


@dataclass(frozen=True)
class PastPrice:
    """A past price of a Linux spot machine, in dollars as written. `size` is in lower case."""

    size: str
    region: str
    text: str
    effective_at_ms: int


@dataclass(frozen=True)
class Score:
    """How likely one more spot machine is: 1 (low) to 3 (high)."""

    size: str
    region: str
    rank: int


def evictions(
    clients: Clients, subscription: str, sizes: Sequence[str], regions: Sequence[str]
) -> list[Eviction]:
    """Rates of these sizes; a range that cannot be read is left out.

    Raises:
        ProviderError: the call failed.
    """
    found = []
    for row in _rows(clients, subscription, _EVICTIONS, sizes, regions):
        bounds = share(str(row.get("evictionRate") or ""))
        if bounds is not None:
            found.append(Eviction(str(row["skuName"]).lower(), str(row["location"]).lower(), *bounds))
    return found


def past_prices(
    clients: Clients, subscription: str, sizes: Sequence[str], regions: Sequence[str], from_ms: int
) -> list[PastPrice]:
    """Prices since then, oldest first; one without a date is left out.

    Raises:
        ProviderError: the call failed.
    """
    found = [
        PastPrice(str(row["skuName"]).lower(), str(row["location"]).lower(), text, at_ms)
        for row in _rows(clients, subscription, _PAST, sizes, regions)
        for text, at_ms in _dated(row.get("spotPrices"))
        if at_ms >= from_ms
    ]
    return sorted(found, key=lambda price: (price.effective_at_ms, price.size, price.region))


def scores(clients: Clients, sizes: Sequence[str], regions: Sequence[str]) -> list[Score]:
    """Placement scores for one machine, by region; sizes that Azure has no score for are left out.

    Raises:
        ProviderError: a call failed.
    """
    found = []
    for some_regions in _chunks(regions, _SCORE_REGIONS):
        for some_sizes in _chunks(sizes, _SCORE_SIZES):
            asked = {
                "desiredLocations": some_regions,
                "desiredSizes": [{"sku": size} for size in some_sizes],
                "desiredCount": 1,
                "availabilityZones": False,
            }
            with translated("reading spot placement scores", clients.arm_host):
                answer = clients.recommender.spot_placement_scores.post(some_regions[0], asked)
            found += [
                Score(entry.sku, entry.region.lower(), _RANKS[entry.score])
                for entry in answer.placement_scores or ()
                if entry.sku and entry.region and entry.score in _RANKS
            ]
    return found


def share(text: str) -> tuple[float, float] | None:
    """``5-10`` to 0.05 and 0.10, ``20+`` to 0.20 and 1; None for what is neither."""
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        return None
    low = int(match.group(1)) / 100
    high = 1.0 if match.group(3) else int(match.group(2)) / 100
    return (low, high) if low <= high <= 1 else None


def _rows(
    clients: Clients, subscription: str, query: str, sizes: Sequence[str], regions: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
    from azure.mgmt.resourcegraph.models import QueryRequest, QueryRequestOptions

    # Both come from our own table and checked options: names of letters, digits and underscores.
    text = query.format(sizes=_quoted(size.lower() for size in sizes), regions=_quoted(regions))
    token: str | None = None
    for _ in range(_MAX_PAGES):
        options = QueryRequestOptions(result_format="objectArray", top=_PAGE_ROWS, skip_token=token)
        with translated("asking Resource Graph", clients.arm_host):
            answer = clients.graph.resources(
                QueryRequest(query=text, subscriptions=[subscription], options=options)
            )
        if not isinstance(answer.data, list):
            raise ProviderDown("azure: asking Resource Graph: the answer is no list of rows")
        yield from answer.data
        token = answer.skip_token
        if not token:
            return
    raise ProviderDown(f"azure: asking Resource Graph: more than {_MAX_PAGES} pages")


def _dated(prices: Any) -> Iterator[tuple[str, int]]:
    for entry in prices if isinstance(prices, list) else ():
        price, date = entry.get("priceUSD"), entry.get("effectiveDate")
        if price is None or date is None:
            continue
        try:
            yield str(price), from_iso(str(date))
        except ValueError:
            continue


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _chunks(names: Sequence[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(names), size):
        yield list(names[start : start + size])
