"""The retail price list: one query a region, page by page. It asks for no credentials.

Documented at learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices. A link to the next page is
followed as it was given, for its offsets belong to one walk; and only to the host that was asked, for it is data.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from broker.core.errors import Invalid, ProviderDown
from providers.azure.clients import Clients
from providers.azure.errors import from_status, translated_http
from providers.azure.settings import AzureOptions
from providers.bounded_get import Bounds, bounded_get
from providers.strict_json import loads

_PATH = "/api/retail/prices"
_VERSION = "2023-01-01-preview"
_PAGE_ROWS = 1000
# A region has some 12,000 rows of virtual machines; a list that goes on for ever is a fault.
_MAX_PAGES = 100
_MAX_PAGE_BYTES = 16 << 20
_PORTS = {"http": 80, "https": 443}


class RetailPrices:
    """Reads rows."""

    def __init__(self, options: AzureOptions, clients: Clients) -> None:
        self._base = options.endpoint_retail
        self._clients = clients
        self._bounds = Bounds(options.connect_timeout_s, options.read_timeout_s, _MAX_PAGE_BYTES)

    def rows(self, region: str) -> Iterator[Mapping[str, Any]]:
        """Every pay-as-you-go row of virtual machines in a region; one page at a time is held.

        Numbers come as their own text, so that no price goes through a float.

        Raises:
            Throttled: too many calls.
            Invalid: the list has nothing for this region.
            ProviderDown: no answer, or one that is no whole page.
        """
        doing = f"reading the price list of {region}"
        url: httpx.URL | str = self._query(region)
        seen, count = {str(url)}, 0
        for _ in range(_MAX_PAGES):
            items, link = self._page(url, doing)
            yield from items
            count += len(items)
            if link is None:
                self._whole(region, items, count, doing)
                return
            url = self._checked(link, doing)
            if url in seen:
                raise ProviderDown(f"azure: {doing}: a page links to one that was read before")
            seen.add(url)
        raise ProviderDown(f"azure: {doing}: more than {_MAX_PAGES} pages")

    def _query(self, region: str, skip: int = 0) -> httpx.URL:
        # The currency is a parameter of its own: inside the filter it matches nothing, and says so nowhere.
        asked = {
            "api-version": _VERSION,
            "currencyCode": "'USD'",
            "$filter": "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' "
            f"and armRegionName eq '{region}'",
        }
        if skip:
            asked["$skip"] = str(skip)
        return httpx.URL(self._base + _PATH, params=asked)

    def _whole(self, region: str, items: list[Mapping[str, Any]], count: int, doing: str) -> None:
        """That the last page was the last. A full one without a link may have lost it, so what follows is asked for."""
        if count == 0:
            raise Invalid(f"azure: {doing}: it has no rows; is the region's name right, in lower case?")
        if len(items) >= _PAGE_ROWS:
            further, _ = self._page(self._query(region, skip=count), doing)
            if further:
                raise ProviderDown(f"azure: {doing}: it ends after {count} rows, and there are more")

    def _page(self, url: httpx.URL | str, doing: str) -> tuple[list[Mapping[str, Any]], str | None]:
        body = self._body(url, doing)
        try:
            document = loads(body, parse_float=str, parse_int=str, parse_constant=str)
            items, link, count = document["Items"], document["NextPageLink"], document["Count"]
        except (ValueError, KeyError, TypeError) as error:
            raise ProviderDown(f"azure: {doing}: unreadable page: {type(error).__name__}: {error}") from error
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise ProviderDown(f"azure: {doing}: unreadable page: Items is no list of rows")
        if count != str(len(items)):
            raise ProviderDown(f"azure: {doing}: a page says {count} rows and has {len(items)}")
        if link is not None and not isinstance(link, str):
            raise ProviderDown(f"azure: {doing}: unreadable page: NextPageLink is no link")
        return items, link or None

    def _body(self, url: httpx.URL | str, doing: str) -> bytes:
        with translated_http(doing, self._clients.retail_host):
            reply = bounded_get(url, self._clients.trusted, self._bounds)
        if reply.status != 200:
            raise from_status(reply, doing)
        return reply.body

    def _checked(self, link: str, doing: str) -> str:
        """The link as given, if it leads to where we were sent in the first place."""
        if _origin(link) != _origin(self._base):
            raise ProviderDown(
                f"azure: {doing}: a page links to another host, which is not followed: {link[:200]}"
            )
        return link


def _origin(url: str) -> tuple[str, str, int] | None:
    """Scheme, host and port; None for what has none, or carries credentials. The list writes ``:443`` into its links."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    if not parts.hostname or port is None or "@" in parts.netloc:
        return None
    return parts.scheme, parts.hostname, port
