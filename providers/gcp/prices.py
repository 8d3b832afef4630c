"""Quotes of Compute Engine: the SKUs of the price list added up for each machine type, in each zone that has it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from google.cloud import billing_v1, compute_v1

from broker.core.offer import Market, Offer, RawQuote
from broker.core.ports import Clock
from broker.core.time import DAY_S, MS
from providers.gcp.clients import Clients
from providers.gcp.errors import translated
from providers.gcp.machines import MachineFacts, facts
from providers.gcp.settings import GcpOptions
from providers.gcp.skus import machine_price, parts

SOURCE = "gcp:skus"
COMPUTE_ENGINE = "services/6F81-5844-456A"

# Zones and machine types change by the month.
_CATALOGUE_AGE_MS = DAY_S * MS


@dataclass(frozen=True)
class Catalogue:
    """What one region sells: facts by machine type, by zone."""

    read_at_ms: int
    zones: Mapping[str, Sequence[MachineFacts]]


class Prices:
    """Reads the quotes of the configured regions."""

    def __init__(self, options: GcpOptions, clients: Clients, clock: Clock) -> None:
        self._options = options
        self._clients = clients
        self._clock = clock
        self._catalogues: dict[str, Catalogue] = {}

    def quotes(self) -> list[RawQuote]:
        """Every price; all or nothing.

        Raises:
            ProviderError: a call failed; nothing is returned then, for half a market looks like a stock-out.
        """
        catalogues = {region: self._catalogue(region) for region in self._options.regions}
        asked = billing_v1.ListSkusRequest(parent=COMPUTE_ENGINE, currency_code="USD", page_size=5000)
        with translated("reading the price list"):
            skus = list(self._clients.catalogue.list_skus(asked, **self._clients.call))
        priced = parts(skus, self._clock.now_ms())
        found: list[RawQuote] = []
        for region, catalogue in catalogues.items():
            for zone, machines in catalogue.zones.items():
                for machine in machines:
                    for market in (Market.SPOT, Market.ON_DEMAND):
                        price = machine_price(priced, machine, region, market)
                        if price is not None:
                            offer = _offer(region, zone, machine, market)
                            text = f"{price.amount:f}"
                            found.append(RawQuote(offer, text, price.currency, price.effective_at_ms, SOURCE))
        return found

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


def _offer(region: str, zone: str, machine: MachineFacts, market: Market) -> Offer:
    return Offer(
        cloud="gcp",
        region=region,
        zone=zone,
        instance_type=machine.name,
        market=market,
        gpu=machine.gpu,
        gpus=machine.gpus,
        vcpus=machine.vcpus,
        memory_gib=machine.memory_mib // 1024,
        interconnect=machine.interconnect,
        fabric=machine.fabric,
    )
