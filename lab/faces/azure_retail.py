"""The retail price list over HTTP: no credentials, pages of a thousand, a link to the next."""

from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from lab.faces import Reply, Request
from lab.faces.azure_errors import RetailError
from lab.faces.azure_filter import BadFilter, parse
from lab.faces.azure_meters import Meters
from lab.faults import FaultKind

PATH = "/api/retail/prices"
PAGE_ROWS = 1000
_WITH_CASE = "2023-01-01-preview"
_BROKEN = "half"
_RATES = {"USD": 1.0, "EUR": 0.92}
_KNOWN = {"api-version", "currencyCode", "$filter", "$skip", "$top", "meterRegion", "$skiptoken"}


class Retail:
    """Answers over a list of meters."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters

    def answer(self, request: Request, fault: FaultKind | None) -> Reply:
        """One page.

        Acts out `FaultKind.PARTIAL_PAGE` (a short first page whose link fails), ``link_lost`` (the first page says
        that it is the last), ``stale`` (the list of the day the lab began) and ``wrong_currency``.

        Raises:
            RetailError: refused.
        """
        query = dict(request.query)
        if unknown := set(query) - _KNOWN:
            raise RetailError(400, f"The query parameter '{min(unknown)}' is not supported.")
        if query.get("$skiptoken") == _BROKEN:
            raise RetailError(500, "An error has occurred.")
        asked = query.get("currencyCode", "USD").strip("'")
        currency = "EUR" if fault is FaultKind.WRONG_CURRENCY else asked
        if currency not in _RATES:
            raise RetailError(400, f"'{currency}' is not a supported currency.")
        found = self._rows(query, currency, fault is FaultKind.STALE)
        skip, size = _number(query, "$skip", 0), min(PAGE_ROWS, _number(query, "$top", PAGE_ROWS))
        part = list(islice(found, skip, skip + size + 1))
        page, more = part[:size], len(part) > size
        link = _link(request, {"$skip": str(skip + size)}) if more and "$top" not in query else None
        if fault is FaultKind.PARTIAL_PAGE:
            page, link = page[: max(1, len(page) // 2)], _link(request, {"$skiptoken": _BROKEN})
        if fault is FaultKind.LINK_LOST:
            link = None
        return Reply.of_json(
            {
                "BillingCurrency": currency,
                "CustomerEntityId": "Default",
                "CustomerEntityType": "Retail",
                "Items": page,
                "NextPageLink": link,
                "Count": len(page),
            }
        )

    def _rows(self, query: dict[str, str], currency: str, stale: bool) -> Iterator[dict[str, Any]]:
        try:
            accepts = parse(query.get("$filter", ""), query.get("api-version") == _WITH_CASE)
        except BadFilter as error:
            raise RetailError(400, f"Invalid OData parameters supplied: {error}") from None
        now_s = self._meters.world.advance()
        primary = query.get("meterRegion", "").strip("'") == "primary"
        for row in self._meters.rows(self._meters.world.start_s if stale else now_s):
            if accepts(row) and (row["isPrimaryMeterRegion"] or not primary):
                if currency != "USD":
                    price = round(row["retailPrice"] * _RATES[currency], 6)
                    row |= {"currencyCode": currency, "retailPrice": price, "unitPrice": price}
                yield row


def _number(query: dict[str, str], name: str, otherwise: int) -> int:
    text = query.get(name)
    if text is None:
        return otherwise
    if not text.isdecimal():
        raise RetailError(400, f"Invalid OData parameters supplied: {name}")
    return int(text)


def _link(request: Request, changed: dict[str, str]) -> str:
    """The same question further on. Its parameters are spelt as the list spells them, not as they were asked."""
    query = urlencode(dict(request.query) | changed, safe="$'")
    return f"https://{request.headers.get('host', '')}{PATH}?{query}"
