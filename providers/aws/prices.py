"""Quotes of EC2: spot from the price history, on demand from the price list; regions are read side by side."""

from collections.abc import Iterator
from functools import partial

from broker.core.errors import ProviderDown
from broker.core.offer import RawQuote
from broker.core.ports import Clock
from broker.core.time import HOUR_S, MS
from providers.aws import price_list, spot
from providers.aws.catalogue import Catalogues
from providers.aws.clients import Clients
from providers.aws.settings import AwsOptions
from providers.parallel import in_parallel

# EC2's history is asked from this long before the last poll: a change may be published a while after it took effect.
_OVERLAP_MS = HOUR_S * MS
_REGIONS_AT_ONCE = 6


class Prices:
    """Reads the quotes of the configured regions. One thread at a time calls it."""

    def __init__(self, options: AwsOptions, clients: Clients, catalogues: Catalogues, clock: Clock) -> None:
        self._options = options
        self._clients = clients
        self._catalogues = catalogues
        self._clock = clock
        self._polled_at_ms: int | None = None

    def quotes(self) -> list[RawQuote]:
        """Every price; all or nothing. Of spot also what changed since the last whole poll, oldest first.

        Raises:
            ProviderError: a call failed; nothing is returned then, for half a market looks like a stock-out.
        """
        now_ms = self._clock.now_ms()
        since_ms = now_ms if self._polled_at_ms is None else min(self._polled_at_ms - _OVERLAP_MS, now_ms)
        found = in_parallel(
            [partial(self._region, region, since_ms, now_ms) for region in self._options.regions],
            _REGIONS_AT_ONCE,
        )
        self._polled_at_ms = now_ms
        return [quote for quotes in found for quote in quotes]

    def history(self, from_ms: int) -> Iterator[RawQuote]:
        """Every change of spot price since then, at most 90 days, oldest first.

        Raises:
            ProviderError: a call failed.
        """
        catalogues = [self._catalogues.of(region) for region in self._options.regions]
        yield from spot.history(self._clients, catalogues, from_ms, self._clock.now_ms())

    def _region(self, region: str, since_ms: int, now_ms: int) -> list[RawQuote]:
        catalogue = self._catalogues.of(region)
        changes = spot.changes(self._clients, catalogue, max(since_ms, now_ms - spot.KEPT_MS), now_ms)
        found = changes + price_list.on_demand(self._clients, catalogue, now_ms)
        if not found and (sold := catalogue.types.keys() & catalogue.zones.keys()):
            raise ProviderDown(f"aws: {region} sells {len(sold)} types and has no price of any")
        return found
