"""CoreWeave as a `PriceSource`: prices from a dated list, capacity from a cluster where there is one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

from broker.core.availability import Availability, Signal
from broker.core.errors import Invalid, ProviderError, SettingsError
from broker.core.offer import Market, Offer, RawQuote
from broker.core.ports import Check, Clock
from broker.core.tariff import BillingRule
from broker.core.time import DAY_S, MS, format_duration
from providers.coreweave.node_pools import NodePool, listed
from providers.coreweave.price_list import SHIPPED, PriceList, read_list
from providers.coreweave.settings import CoreWeaveOptions, parse
from providers.offers import offer_of

HINTS = "coreweave:node_pools"

# Zones whose name does not tell the region, from docs.coreweave.com/platform/regions.
_REGIONS = {"RNO2A": "US-WEST"}


# Before a list runs out, its operator has this share of its time to look for another.
_WARNED_SHARE = 1 / 3
_WHAT_TO_DO = "set price_file to a newer one, or max_list_age once you have compared it"


class Cluster(Protocol):
    """See `providers.coreweave.cluster`."""

    def node_pools(self) -> tuple[str | None, list[NodePool]]:
        """The cluster's zone, and its node pools."""

    def version(self) -> str:
        """What it is, and where."""

    def may_list(self) -> bool:
        """Whether we may list its node pools."""


def open_provider(options: Mapping[str, Any], clock: Clock, installation_id: str) -> "CoreWeavePrices":
    """The prices; no cluster is called yet.

    Raises:
        SettingsError: an option or the price list is wrong; or a cluster is to be asked, and there is no client for it.
    """
    parsed = parse(options)
    return CoreWeavePrices(parsed, clock, _cluster(parsed) if parsed.has_cluster else None)


class CoreWeavePrices:
    """Prices of the list, which is read anew at each poll, so that an edit needs no restart."""

    cloud = "coreweave"

    def __init__(self, options: CoreWeaveOptions, clock: Clock, cluster: Cluster | None) -> None:
        self._options = options
        self._clock = clock
        self._cluster = cluster

    def quotes(self) -> Sequence[RawQuote]:
        """Every price of the list, dated by the list.

        Raises:
            Invalid: the list has a mistake, or is so old that it is believed no more.
        """
        prices = self._list()
        age_s = self._age_s(prices)
        if age_s > self._options.max_list_age:
            raise Invalid(f"coreweave: {self._too_old(prices, age_s)}")
        source = f"coreweave:price_list:{prices.date}"
        return [
            RawQuote(offer, text, "USD", prices.date_ms, source)
            for offer, text in _offers(prices, self._options)
        ]

    def price_history(self, from_ms: int) -> Sequence[RawQuote]:
        """Nothing: there is one list."""
        return ()

    def availability(self) -> Sequence[Availability]:
        """What the cluster's node pools tell of its own zone; nothing without a cluster, or where its zone is unknown.

        Raises:
            ProviderError: the cluster did not answer.
        """
        if self._cluster is None:
            return ()
        zone, pools = self._cluster.node_pools()
        told, now_ms = listed(pools), self._clock.now_ms()
        return [
            Availability(offer.key, Signal.LISTED, value, value, now_ms, HINTS)
            for offer, _ in _offers(self._list(), self._options)
            if offer.zone == zone and (can := told.get((offer.instance_type, offer.market))) is not None
            for value in (float(can),)
        ]

    def egress_micro_usd_per_gib(self, from_offer: Offer, to_offer: Offer | None) -> int:
        """Traffic is not charged."""
        return 0

    def billing_rule(self, market: Market) -> BillingRule:
        """By the node-hour. Nothing is rented here, so no bill has been compared with this."""
        return BillingRule(
            unit_s=1,
            minimum_s=0,
            meter="from a node's joining its pool to its leaving it",
            unconfirmed="the granularity is not published, nor what the minutes before a preemption cost",
            source="www.coreweave.com/pricing, prices by the hour; docs.coreweave.com, 2026-11",
        )

    def disk_micro_usd_per_gib_month(self, region: str) -> int:
        """The local disks are part of the node's price."""
        return 0

    def check(self) -> Sequence[Check]:
        """The list and its age; the cluster's reach, our right to list node pools, and its zone."""
        found = [self._check_list()]
        if found[0].ok is not False and (strange := self._strange_zones()):
            detail = f"{', '.join(strange)}: in no row of the price list; nothing is priced there"
            found.append(Check("coreweave: zones", None, detail))
        if self._cluster is None:
            detail = "none is configured, so nothing is known of capacity; set kubeconfig or api_server"
            return [*found, Check("coreweave: cluster", None, detail)]
        found.append(_checked("coreweave: cluster", self._cluster.version))
        if found[-1].ok:
            found += self._check_rights(self._cluster)
        return found

    def _check_list(self) -> Check:
        name = "coreweave: price list"
        try:
            prices = self._list()
        except ProviderError as error:
            return Check(name, False, str(error))
        age_s = self._age_s(prices)
        if age_s > self._options.max_list_age:
            return Check(name, False, self._too_old(prices, age_s))
        if age_s < -DAY_S:
            return Check(name, False, f"of {prices.date}, which is yet to come: its prices are not believed")
        racks = ", ".join(
            f"{i.name} ({i.nodes_per_rack} nodes)" for i in prices.instances if i.nodes_per_rack
        )
        beside = f"; sold by the rack, and no offer: {racks}" if racks else ""
        age = f"of {prices.date}, {format_duration(max(0, age_s))} old"
        rest = f"from {prices.source}; {len(prices.instances)} instance types{beside}"
        left_s = self._options.max_list_age - age_s
        if left_s < _WARNED_SHARE * self._options.max_list_age:
            left = format_duration(left_s)
            return Check(name, None, f"{age}, and not read any more in {left}: {_WHAT_TO_DO}; {rest}")
        return Check(name, True, f"{age}, {rest}")

    def _strange_zones(self) -> list[str]:
        known = {zone for instance in self._list().instances for zone in instance.zones}
        return sorted(set(self._options.zones or ()) - known)

    def _check_rights(self, cluster: Cluster) -> Iterator[Check]:
        name = "coreweave: node pools"
        try:
            if not cluster.may_list():
                yield Check(
                    name, False, "we may not list nodepools.compute.coreweave.com; see the page's role"
                )
                return
            zone, pools = cluster.node_pools()
        except ProviderError as error:
            yield Check(name, False, str(error))
            return
        if zone is None:
            yield Check(name, None, "the cluster's address does not tell its zone; set cluster_zone")
            return
        yield Check(
            name, True, f"{len(pools)} in {zone}, of which {len(listed(pools))} types tell of capacity"
        )

    def _list(self) -> PriceList:
        try:
            return read_list(self._options.price_file or SHIPPED)
        except SettingsError as error:
            raise Invalid(f"coreweave: {error}") from error

    def _age_s(self, prices: PriceList) -> float:
        return (self._clock.now_ms() - prices.date_ms) / MS

    def _too_old(self, prices: PriceList, age_s: float) -> str:
        return (
            f"the price list of {prices.date} is {format_duration(age_s)} old, more than "
            f"{format_duration(self._options.max_list_age)}: its prices are not read any more; {_WHAT_TO_DO}"
        )


def region_of(zone: str) -> str:
    """``US-EAST-04A`` -> ``US-EAST``."""
    return _REGIONS.get(zone) or "-".join(part for part in zone.split("-") if not part[:1].isdigit()) or zone


def _offers(prices: PriceList, options: CoreWeaveOptions) -> Iterator[tuple[Offer, str]]:
    for instance in prices.instances:
        for zone in instance.zones:
            if options.zones is not None and zone not in options.zones:
                continue
            for market, text in instance.prices.items():
                yield offer_of("coreweave", region_of(zone), zone, instance, market), text


def _cluster(options: CoreWeaveOptions) -> Cluster:
    try:
        module = import_module("providers.coreweave.cluster")
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"clouds.coreweave: asking a cluster needs {error.name}, which is not installed",
            hint="install the extra `coreweave`: pip install --constraint requirements.lock '.[coreweave]'",
        ) from error
    return cast(Cluster, module.Cluster(options))


def _checked(name: str, ask: Callable[[], str]) -> Check:
    try:
        return Check(name, True, ask())
    except ProviderError as error:
        return Check(name, False, str(error))
