"""Quotes of Compute Engine: the SKUs of the price list added up for each machine type, in each zone that has it.

Spot prices come from the Capacity Advisor where it gives them: it knows the machine type itself, and since when.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from google.cloud import billing_v1, compute_v1

from broker.core.errors import ProviderDown
from broker.core.offer import Market, Offer, RawQuote
from broker.core.ports import Clock
from broker.core.time import DAY_S, MS
from providers.gcp.advice import Advisor, SpotPrice
from providers.gcp.clients import Clients
from providers.gcp.errors import translated
from providers.gcp.machines import MachineFacts, facts
from providers.gcp.settings import GcpOptions
from providers.gcp.skus import MachinePrice, machine_price, parts
from providers.gcp.spot import SOURCE as SPOT_SOURCE
from providers.gcp.spot import SpotPrices
from providers.offers import offer_of

SOURCE = "gcp:skus"
COMPUTE_ENGINE = "services/6F81-5844-456A"

# Zones and machine types change by the month.
_CATALOGUE_AGE_MS = DAY_S * MS
_MOST_HISTORIES = 400


@dataclass(frozen=True)
class Catalogue:
    """What one region sells: facts by machine type, by zone."""

    read_at_ms: int
    zones: Mapping[str, Sequence[MachineFacts]]


class Prices:
    """Reads the quotes of the configured regions."""

    def __init__(self, options: GcpOptions, clients: Clients, advisor: Advisor, clock: Clock) -> None:
        self._options = options
        self._clients = clients
        self._advisor = advisor
        self._clock = clock
        self._catalogues: dict[str, Catalogue] = {}
        self.spot = SpotPrices(advisor, clock)

    def quotes(self) -> list[RawQuote]:
        """Every price; all or nothing. Spot by the Capacity Advisor, and by the price list where it says nothing.

        Raises:
            ProviderError: a call failed; nothing is returned then, for half a market looks like a stock-out.
        """
        machines = list(self._machines())
        asked = billing_v1.ListSkusRequest(parent=COMPUTE_ENGINE, currency_code="USD", page_size=5000)
        with translated("reading the price list"):
            # Page by page: of each one only the parts of machines are kept.
            priced = parts(
                self._clients.catalogue.list_skus(asked, **self._clients.call), self._clock.now_ms()
            )
        if machines and not priced:
            raise ProviderDown("gcp: the price list has no part of any machine")
        listed = {
            (region, machine.name): machine_price(priced, machine, region, Market.SPOT)
            for region, _, machine in machines
        }
        advised = self.spot.newest(listed) if self._options.capacity_advice else {}
        found: list[RawQuote] = []
        for region, zone, machine in machines:
            place = (region, machine.name)
            if place in advised:
                found.append(_spot_quote(_offer(region, zone, machine, Market.SPOT), advised[place]))
            elif (price := listed[place]) is not None:
                found.append(_listed_quote(_offer(region, zone, machine, Market.SPOT), price))
            price = machine_price(priced, machine, region, Market.ON_DEMAND)
            if price is not None and machine.on_demand:
                found.append(_listed_quote(_offer(region, zone, machine, Market.ON_DEMAND), price))
        return found

    def history(self, from_ms: int) -> Iterator[RawQuote]:
        """Changes of spot price since then, oldest first; nothing where the advisor may not be asked.

        Raises:
            ProviderError: a call failed.
        """
        if not self._options.capacity_advice:
            return
        zones: dict[tuple[str, str], list[Offer]] = {}
        for region, zone, machine in self._machines():
            zones.setdefault((region, machine.name), []).append(_offer(region, zone, machine, Market.SPOT))
        found: list[RawQuote] = []
        for place, offers in list(zones.items())[:_MOST_HISTORIES]:
            for price in self._advisor.prices(*place) or ():
                if (price.to_ms is None or price.to_ms > from_ms) and price.from_ms <= self._clock.now_ms():
                    found += [_spot_quote(offer, price) for offer in offers]
        yield from sorted(found, key=lambda quote: quote.effective_at_ms or 0)

    def spot_offers(self) -> list[Offer]:
        """Every spot offer, whether it has a price or not."""
        return [_offer(region, zone, machine, Market.SPOT) for region, zone, machine in self._machines()]

    def _machines(self) -> Iterator[tuple[str, str, MachineFacts]]:
        """Region, zone and machine type of everything that is sold."""
        for region in self._options.regions:
            for zone, machines in self._catalogue(region).zones.items():
                for machine in machines:
                    yield region, zone, machine

    def _catalogue(self, region: str) -> Catalogue:
        known = self._catalogues.get(region)
        now_ms = self._clock.now_ms()
        if known is None or now_ms - known.read_at_ms > _CATALOGUE_AGE_MS:
            known = self._catalogues[region] = self._read_catalogue(region, now_ms)
        return known

    def _read_catalogue(self, region: str, now_ms: int) -> Catalogue:
        project, call = self._options.project, self._clients.call
        patterns = self._options.machine_types
        # Compute Engine takes one RE2 expression that must match the whole name.
        expression = "|".join(
            re.escape(pattern).replace(r"\*", ".*").replace(r"\-", "-") for pattern in patterns
        )
        zones: dict[str, list[MachineFacts]] = {}
        with translated(f"reading the zones and machine types of {region}"):
            answer = self._clients.regions.get(
                compute_v1.GetRegionRequest(project=project, region=region), **call
            )
            for zone in (url.rpartition("/")[2] for url in answer.zones):
                asked = compute_v1.ListMachineTypesRequest(
                    project=project, zone=zone, filter=f'name eq "{expression}"', max_results=500
                )
                listed = self._clients.machine_types.list(asked, **call)
                kinds = [kind for item in listed if (kind := facts(item))]
                zones[zone] = [kind for kind in kinds if any(fnmatchcase(kind.name, p) for p in patterns)]
        return Catalogue(now_ms, zones)


def _spot_quote(offer: Offer, price: SpotPrice) -> RawQuote:
    return RawQuote(offer, f"{price.amount:f}", price.currency, price.from_ms, SPOT_SOURCE)


def _listed_quote(offer: Offer, price: MachinePrice) -> RawQuote:
    return RawQuote(offer, f"{price.amount:f}", price.currency, price.effective_at_ms, SOURCE)


def _offer(region: str, zone: str, machine: MachineFacts, market: Market) -> Offer:
    return offer_of("gcp", region, zone, machine, market)
