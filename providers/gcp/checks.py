"""`broker doctor` for Compute Engine: a cheap call for each right, and the GPU quotas of each region.

There is no dry run of a launch, and rights as such are told by another API: so the rights to launch are not among these.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from google.cloud import billing_v1, compute_v1

from broker.core.errors import ProviderError
from broker.core.ports import Check
from providers.gcp.advice import CAPACITY, HISTORY, Advisor
from providers.gcp.clients import Clients
from providers.gcp.errors import translated
from providers.gcp.prices import COMPUTE_ENGINE, Prices
from providers.gcp.settings import GcpOptions

# `Quota.metric` of compute v1 knows these of our families, of the H100 only spot: all others are in the console.
_GPUS = re.compile(r"(PREEMPTIBLE_)?NVIDIA_(A100|A100_80GB|H100|L4|T4|V100)_GPUS")


class Checks:
    """Asks for one project. Nothing that it calls changes anything."""

    def __init__(self, options: GcpOptions, clients: Clients, advisor: Advisor, prices: Prices) -> None:
        self._options = options
        self._clients = clients
        self._advisor = advisor
        self._prices = prices

    def all(self, owned: Callable[[], int] | None) -> list[Check]:
        """Credentials, rights and advice; where something is launched, the rights to look after it and quotas. Never raises.

        Args:
            owned: Counts our instances; None where nothing is launched.
        """
        lines = [
            _one("gcp: credentials", self._clients.account),
            _one("gcp: price list", self._price_list),
        ]
        if owned is None:
            lines.append(Check("gcp: launches", None, "prices only: no image is set"))
        else:
            lines.append(_one("gcp: compute.instances.list", lambda: f"{owned()} of ours"))
        for region in self._options.regions:
            lines += _safely(f"gcp: {region}", partial(self._region, region, renting=owned is not None))
        if not self._options.capacity_advice:
            lines.append(Check("gcp: compute.advice", None, "switched off: clouds.gcp.capacity_advice"))
            return lines
        return lines + _safely("gcp: compute.advice", self._advice)

    def _price_list(self) -> str:
        asked = billing_v1.ListSkusRequest(parent=COMPUTE_ENGINE, page_size=1)
        with translated("reading the price list"):
            next(iter(self._clients.catalogue.list_skus(asked, **self._clients.call).pages))
        return "readable"

    def _region(self, region: str, *, renting: bool) -> list[Check]:
        name = f"gcp: {region}: compute.regions.get"
        asked = compute_v1.GetRegionRequest(project=self._options.project, region=region)
        try:
            with translated(f"reading region {region}"):
                answer = self._clients.regions.get(asked, **self._clients.call)
        except ProviderError as error:
            return [Check(name, False, str(error))]
        zones = [url.rpartition("/")[2] for url in answer.zones]
        asks = {"machineTypes.list": self._machine_types}
        if renting:
            asks["zoneOperations.list"] = self._operations
        return [
            Check(name, True, ", ".join(zones)),
            *(
                _one(f"gcp: {region}: compute.{right}", partial(ask, zones[0]))
                for right, ask in asks.items()
                if zones
            ),
            *([quotas(region, answer.quotas)] if renting else []),
        ]

    def _machine_types(self, zone: str) -> str:
        asked = compute_v1.ListMachineTypesRequest(project=self._options.project, zone=zone, max_results=1)
        with translated(f"listing machine types of {zone}"):
            next(iter(self._clients.machine_types.list(asked, **self._clients.call).pages))
        return "allowed"

    def _operations(self, zone: str) -> str:
        asked = compute_v1.ListZoneOperationsRequest(project=self._options.project, zone=zone, max_results=1)
        with translated(f"listing operations of {zone}"):
            next(iter(self._clients.zone_operations.list(asked, **self._clients.call).pages))
        return "allowed"

    def _advice(self) -> list[Check]:
        """Asked anew, so that a right that has been granted is used from now on."""
        try:
            offers = self._prices.spot_offers()
        except ProviderError as error:
            return [Check("gcp: compute.advice", False, str(error))]
        if not offers:
            return [Check("gcp: compute.advice", None, "nothing that is configured is sold in these regions")]
        offer = offers[0]
        kind = offer.instance_type
        return [
            self._advised(
                HISTORY,
                (offer.region, kind),
                lambda: bool(self._advisor.prices(offer.region, kind)),
                "spot prices come from the price list",
            ),
            self._advised(
                CAPACITY,
                (offer.zone, kind),
                lambda: self._advisor.obtainability(offer.zone, kind) is not None,
                "nothing is known of obtainability",
            ),
        ]

    def _advised(self, method: str, about: tuple[str, str], ask: Callable[[], bool], instead: str) -> Check:
        name = f"gcp: compute.{method}"
        self._advisor.forget(method)
        try:
            answered = ask()
        except ProviderError as error:
            return Check(name, None, f"{error}; until it answers, {instead}")
        if answered:
            lately = self._prices.spot.failure if method == HISTORY else ""
            return Check(name, True, f"allowed; but at the last poll: {lately}" if lately else "allowed")
        refusal = self._advisor.refusal(method) or self._advisor.refusal(method, *about)
        why = (
            f"refused for {' '.join(about)} ({refusal.text})"
            if refusal
            else f"no answer for {' '.join(about)}"
        )
        return Check(name, None, f"{why}: {instead}; clouds.gcp.capacity_advice = false stops the asking")


def quotas(region: str, listed: Any) -> Check:
    """Not known to be well where every quota of GPUs is zero: those of the newest are told elsewhere."""
    name = f"gcp: {region}: GPU quotas"
    told: dict[str, list[str]] = {}
    for quota in listed:
        if match := _GPUS.fullmatch(quota.metric):
            market = "spot" if match[1] else "on demand"
            told.setdefault(match[2], []).append(f"{quota.usage:g} of {quota.limit:g} {market}")
    if not told:
        return Check(name, None, "none are told for this region; see IAM & Admin, Quotas")
    limits = [quota.limit for quota in listed if _GPUS.fullmatch(quota.metric)]
    text = "; ".join(f"{family}: {', '.join(used)}" for family, used in sorted(told.items()))
    return Check(
        name,
        True if any(limits) else None,
        f"{text} (in use; families that are missing here are in the console only)",
    )


def _safely(name: str, ask: Callable[[], list[Check]]) -> list[Check]:
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - a check never raises
        return [Check(name, False, f"could not be checked: {error!r}")]


def _one(name: str, ask: Callable[[], str]) -> Check:
    try:
        return Check(name, True, ask())
    except ProviderError as error:
        return Check(name, False, str(error))
    except Exception as error:  # noqa: BLE001 - a check never raises
        return Check(name, False, f"could not be checked: {error!r}")
