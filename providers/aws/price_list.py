"""On-demand prices from the price list, which has many rows for each instance type; one of them is the price.

The others are sold to other people or under other terms: other systems and tenancies, software on top, reservations
used or not, capacity blocks (a market of its own, priced here at zero), and Reserved terms inside the right product.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from broker.core.offer import Market, RawQuote
from broker.core.time import from_iso
from providers.aws.catalogue import Catalogue, chunks
from providers.aws.clients import Clients
from providers.aws.errors import translated
from providers.strict_json import loads

SOURCE = "aws:price_list"

# What the one row has; asked for, and looked at again in each reply.
_WANTED = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
_VALUES_A_FILTER = 40


@dataclass(frozen=True)
class ListPrice:
    """One hourly price as the list has it. `effective_at_ms` is the price list's own date."""

    text: str
    currency: str
    effective_at_ms: int | None


def on_demand(clients: Clients, catalogue: Catalogue, now_ms: int) -> list[RawQuote]:
    """The on-demand price of every type of a region, in every zone that sells it.

    Raises:
        ProviderError: a page failed.
    """
    quotes: list[RawQuote] = []
    with translated(f"reading the price list of {catalogue.region}"):
        prices = listed(_pages(clients, catalogue), now_ms)
    for name in sorted(prices.keys() & catalogue.types.keys()):
        for price in prices[name]:
            for zone in catalogue.zones.get(name, ()):
                offer = catalogue.offer(name, zone, Market.ON_DEMAND)
                quotes.append(RawQuote(offer, price.text, price.currency, price.effective_at_ms, SOURCE))
    return quotes


def listed(pages: Iterable[Mapping[str, Any]], now_ms: int) -> dict[str, list[ListPrice]]:
    """Prices by instance type; of each page only these are kept.

    A type with two prices since the same moment has both of them: the market doubts such a pair, which is better than
    to choose.
    """
    found: dict[str, list[ListPrice]] = {}
    for page in pages:
        for text in page["PriceList"]:  # JSON in texts, as the service sends it
            product = loads(text)
            attributes = product["product"]["attributes"]
            if any(attributes.get(key, value) != value for key, value in _WANTED.items()):
                continue
            known = found.setdefault(attributes["instanceType"], [])
            for price in _prices(product, now_ms):
                if known and (price.effective_at_ms or 0) > (known[0].effective_at_ms or 0):
                    known.clear()
                if not known or (price not in known and price.effective_at_ms == known[0].effective_at_ms):
                    known.append(price)
    return {name: prices for name, prices in found.items() if prices}


def _pages(clients: Clients, catalogue: Catalogue) -> Iterator[Mapping[str, Any]]:
    wanted = {"regionCode": catalogue.region, **_WANTED}
    pages = clients.pricing().get_paginator("get_products")
    for names in chunks(sorted(catalogue.types), _VALUES_A_FILTER):
        filters = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in wanted.items()]
        filters.append({"Type": "ANY_OF", "Field": "instanceType", "Value": ",".join(names)})
        yield from pages.paginate(ServiceCode="AmazonEC2", Filters=filters)


def _prices(product: Mapping[str, Any], now_ms: int) -> Iterator[ListPrice]:
    """Hourly prices of a product that have begun. Zero is a reservation in disguise."""
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        effective = from_iso(term["effectiveDate"]) if term.get("effectiveDate") else None
        if effective is not None and effective > now_ms:
            continue
        for dimension in term.get("priceDimensions", {}).values():
            # One entry a currency; another than the dollar is passed on, for the market to put in quarantine.
            for currency, text in dimension.get("pricePerUnit", {}).items():
                if dimension.get("unit") == "Hrs" and not _is_zero(text):
                    yield ListPrice(text, currency, effective)


def _is_zero(text: str) -> bool:
    try:
        return Decimal(text) == 0
    except InvalidOperation:  # no number: the market says so
        return False
