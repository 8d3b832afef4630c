"""Spot prices from EC2's history of them, which holds every change of the last 90 days.

A request for a span is answered with the changes within it and, for each pool, the change in effect at its start. So
a span of no length is the price at one moment. Pages come in no order that helps, some of them empty with a token for
the next; the token after the last is an empty text. botocore's paginator copes with both.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from broker.core.offer import Market, RawQuote
from broker.core.time import DAY_S, MS, from_datetime, to_datetime
from providers.aws.catalogue import Catalogue, chunks
from providers.aws.clients import Clients
from providers.aws.errors import translated

SOURCE = "aws:spot_history"
KEPT_MS = 90 * DAY_S * MS  # "up to the past 90 days", DescribeSpotPriceHistory

# Linux is sold under two names, by the network that an account once had; asking for both doubles every row.
_ASKED = "Linux/UNIX"
_LINUX = (_ASKED, "Linux/UNIX (Amazon VPC)")
_TYPES_A_CALL = 100
_WINDOW_MS = 3 * DAY_S * MS


def changes(clients: Clients, catalogue: Catalogue, from_ms: int, to_ms: int) -> list[RawQuote]:
    """Changes of price of a region within a span, and the ones in effect at its start; oldest first.

    Raises:
        ProviderError: a page failed.
    """
    with translated(f"reading spot prices in {catalogue.region}"):
        found = list(quotes_of(_rows(clients, catalogue, from_ms, to_ms), catalogue))
    return sorted(found, key=lambda quote: quote.effective_at_ms or 0)


def history(
    clients: Clients, catalogues: Iterable[Catalogue], from_ms: int, now_ms: int
) -> Iterator[RawQuote]:
    """All changes since then, oldest first: a few days at a time, so that no more than these are ever in memory.

    Raises:
        ProviderError: a page failed; what came before is no whole history.
    """
    regions = tuple(catalogues)
    begin_ms = start_ms = max(from_ms, now_ms - KEPT_MS)
    while start_ms < now_ms:
        end_ms = min(start_ms + _WINDOW_MS, now_ms)
        found = [q for catalogue in regions for q in changes(clients, catalogue, start_ms, end_ms)]
        # What is in effect at the start of a later window was told with the window before.
        fresh = [q for q in found if start_ms == begin_ms or (q.effective_at_ms or 0) > start_ms]
        yield from sorted(fresh, key=lambda quote: quote.effective_at_ms or 0)
        start_ms = end_ms


def quotes_of(rows: Iterable[Mapping[str, Any]], catalogue: Catalogue) -> Iterator[RawQuote]:
    """Rows of EC2 as quotes: each change once, under both names of Linux; other systems and types left out."""
    told: set[tuple[str, str, Any, str]] = set()
    for row in rows:
        name, zone = row["InstanceType"], _zone_id(row, catalogue)
        change = (name, zone, row["Timestamp"], row["SpotPrice"])
        known = name in catalogue.types and row.get("ProductDescription", _ASKED) in _LINUX
        if not zone or not known or change in told:
            continue
        told.add(change)
        offer = catalogue.offer(name, zone, Market.SPOT)
        yield RawQuote(offer, row["SpotPrice"], "USD", from_datetime(row["Timestamp"]), SOURCE)


def _rows(clients: Clients, catalogue: Catalogue, from_ms: int, to_ms: int) -> Iterator[dict[str, Any]]:
    span = {"StartTime": to_datetime(from_ms), "EndTime": to_datetime(to_ms)}
    pages = clients.ec2(catalogue.region).get_paginator("describe_spot_price_history")
    for names in chunks(sorted(catalogue.types), _TYPES_A_CALL):
        for page in pages.paginate(InstanceTypes=names, ProductDescriptions=[_ASKED], **span):
            yield from page["SpotPriceHistory"]


def _zone_id(row: Mapping[str, Any], catalogue: Catalogue) -> str:
    """By id where EC2 gives it; else by this account's name for the zone. Never the name itself."""
    return str(row.get("AvailabilityZoneId") or catalogue.zone_ids.get(row["AvailabilityZone"], ""))
