"""Compute Engine as a `Provider`; without an image, as a `PriceSource` alone."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.api_core import exceptions as api
from google.cloud import compute_v1

from broker.core.availability import Availability, Unanswered
from broker.core.errors import (
    Denied,
    Invalid,
    ProviderDown,
    SettingsError,
    Throttled,
    UnknownOutcome,
)
from broker.core.ids import request_id
from broker.core.money import micro_usd
from broker.core.offer import Market, Offer, RawQuote
from broker.core.ports import Check, Clock, CloudNode, LaunchRequest
from broker.core.tariff import BillingRule
from providers.gcp.advice import Advisor
from providers.gcp.checks import Checks
from providers.gcp.clients import Clients
from providers.gcp.errors import Refusal, from_operation, translated
from providers.gcp.hints import Hints
from providers.gcp.nodes import (
    LABEL_INSTALLATION,
    LABEL_REQUEST,
    instance_of,
    node_from_operations,
    node_of,
    request_label,
)
from providers.gcp.prices import Prices
from providers.gcp.settings import GcpOptions, parse
from providers.gcp.tariff import billing_rule, egress_rule

_FIRST_POLL_S = 0.2
_SLOWEST_POLL_S = 2.0


def open_provider(options: Mapping[str, Any], clock: Clock, installation_id: str) -> "GcpPrices":
    """See `providers.registry.open_source`."""
    parsed = parse(options)
    return GcpPrices(parsed, clock) if parsed.image is None else GcpProvider(parsed, clock, installation_id)


class GcpPrices:
    """Prices of one Google Cloud project."""

    cloud = "gcp"

    def __init__(self, options: GcpOptions, clock: Clock) -> None:
        self._options = options
        self._clients = Clients(options)
        self._advisor = Advisor(options, self._clients, clock)
        self._prices = Prices(options, self._clients, self._advisor, clock)
        self._hints = Hints(self._advisor, clock)
        self._checks = Checks(options, self._clients, self._advisor, self._prices)
        self._egress = egress_rule(options)

    def quotes(self) -> list[RawQuote]:
        """Spot and on-demand prices of every configured region; all or nothing."""
        return self._prices.quotes()

    def price_history(self, from_ms: int) -> Iterable[RawQuote]:
        """Changes of spot price, where the project may read them: Google keeps those of a year."""
        return self._prices.history(from_ms)

    def availability(self) -> Sequence[Availability | Unanswered]:
        """How likely spot machines can be had, and how many of them are preempted, by zone."""
        if not self._options.capacity_advice:
            return []
        offers = self._prices.spot_offers()
        return self._hints.of((offer.key, offer.zone, offer.instance_type) for offer in offers)

    def egress_micro_usd_per_gib(self, from_offer: Offer, to_offer: Offer | None) -> int:
        """By place: same zone free, other zone, other region, other continent, internet."""
        return self._egress.micro_usd_per_gib(from_offer, to_offer)

    def billing_rule(self, market: Market) -> BillingRule:
        """See `providers.gcp.tariff`."""
        return billing_rule(market)

    def disk_micro_usd_per_gib_month(self, region: str) -> int:
        """Of the boot disk's type."""
        return micro_usd(self._options.disk_usd_gib_month)

    def check(self) -> Sequence[Check]:
        """Credentials, rights, advice."""
        return self._checks.all(owned=None)


class GcpProvider(GcpPrices):
    """One Google Cloud project."""

    def __init__(self, options: GcpOptions, clock: Clock, installation_id: str) -> None:
        if not installation_id.replace("-", "").isalnum() or installation_id != installation_id.lower():
            raise SettingsError(
                f"installation id {installation_id!r} cannot be a label",
                hint="lower-case letters, digits and dashes only",
            )
        super().__init__(options, clock)
        self._installation_id = installation_id

    def create(self, request: LaunchRequest) -> CloudNode:
        """One instance, named by the token; ``requestId`` is derived from it. Waits until it is decided.

        Raises:
            OutOfCapacity, OutOfQuota, Throttled, Denied, Invalid, UnknownOutcome, ProviderDown: see `core.errors`.
        """
        offer = request.offer
        doing = f"renting {offer.instance_type} in {offer.zone}"
        asked = compute_v1.InsertInstanceRequest(
            project=self._options.project,
            zone=offer.zone,
            request_id=request_id(request.token),
            instance_resource=instance_of(request, self._options),
        )
        operation: Any = None
        with translated(doing, creating=True):
            try:
                operation = self._clients.instances.insert_unary(asked, **self._clients.call)
            except api.Conflict:
                pass  # The name is taken. Names are our tokens: an earlier send of this request took it.
        try:
            if operation is not None:
                self._await(operation, offer.zone, doing)
            return self._made(request, doing)
        except (ProviderDown, Throttled, Denied) as error:
            # The insert has been sent; that we may not look at its outcome does not make it undone.
            raise UnknownOutcome(str(error)) from error

    def find(self, token: str, region: str, zone: str) -> CloudNode | None:
        """By name; when there is none, by the operations on it, which Google keeps for about two weeks."""
        instance = self._get(token, zone)
        if instance is not None:
            return node_of(instance, region, zone)
        # targetLink is compared as a whole, and always names this host, whichever end point is called.
        target = f"https://www.googleapis.com/compute/v1/projects/{self._options.project}/zones/{zone}/instances/{token}"
        asked = compute_v1.ListZoneOperationsRequest(
            project=self._options.project, zone=zone, filter=f'targetLink = "{target}"', max_results=500
        )
        with translated(f"reading the operations on {token}"):
            operations = list(self._clients.zone_operations.list(asked, **self._clients.call))
        return node_from_operations(operations, token, region, zone)

    def list_owned(self) -> Sequence[CloudNode]:
        """By our label, in every zone of the project."""
        return self._list(f"labels.{LABEL_INSTALLATION} = {self._installation_id}")

    def list_tagged(self) -> Sequence[CloudNode]:
        """By the label, whatever its value."""
        return self._list(f"labels.{LABEL_INSTALLATION}:*")

    def delete(self, node: CloudNode) -> None:
        """Ask for the deletion and return; the boot disk goes with it (``autoDelete``).

        By id where we know it: a name could by now be another machine's.
        """
        asked = compute_v1.DeleteInstanceRequest(
            project=self._options.project, zone=node.zone, instance=node.provider_id or node.token
        )
        with translated(f"deleting {node.token}"):
            try:
                self._clients.instances.delete_unary(asked, **self._clients.call)
            except api.NotFound:
                return
            except api.GoogleAPICallError as error:
                if not _is_under_way(error):
                    raise

    def check(self) -> Sequence[Check]:
        """Credentials, rights, advice, quotas."""
        return self._checks.all(lambda: len(self.list_owned()))

    def _list(self, accepted: str) -> list[CloudNode]:
        asked = compute_v1.AggregatedListInstancesRequest(
            project=self._options.project, filter=accepted, max_results=500
        )
        found: list[CloudNode] = []
        with translated("listing instances"):
            for scope, listed in self._clients.instances.aggregated_list(asked, **self._clients.call):
                if listed.warning.code not in ("", "NO_RESULTS_ON_PAGE"):
                    # A zone that could not be asked is not a zone without machines of ours.
                    raise ProviderDown(f"gcp: listing instances: {scope}: {listed.warning.message}")
                zone = scope.rpartition("/")[2]
                region = zone.rpartition("-")[0]
                found += [node_of(instance, region, zone) for instance in listed.instances]
        return found

    def _await(self, operation: Any, zone: str, doing: str) -> None:
        """Wait until the operation has ended, or our patience has.

        Raises:
            ProviderError: it ended in an error.
        """
        asked = compute_v1.GetZoneOperationRequest(
            project=self._options.project, zone=zone, operation=operation.name
        )
        started, pause_s = time.monotonic(), _FIRST_POLL_S
        while operation.status != compute_v1.Operation.Status.DONE:
            if time.monotonic() - started > self._options.create_wait_s:
                return
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _SLOWEST_POLL_S)
            with translated(doing, creating=True):
                operation = self._clients.zone_operations.get(asked, **self._clients.call)
        if operation.error.errors:
            refusals = [Refusal(entry.code, entry.message) for entry in operation.error.errors]
            raise from_operation(refusals, doing)

    def _made(self, request: LaunchRequest, doing: str) -> CloudNode:
        """The instance that the request has made, after the insert was answered."""
        offer = request.offer
        instance = self._get(request.token, offer.zone)
        if instance is None:
            past = self.find(request.token, offer.region, offer.zone)
            if past is None:
                raise UnknownOutcome(f"gcp: {doing}: accepted, but there is no {request.token}")
            return past
        if instance.labels.get(LABEL_REQUEST) != request_label(request):
            raise Invalid(f"gcp: {doing}: {request.token} was made by a different request")
        return node_of(instance, offer.region, offer.zone)

    def _get(self, token: str, zone: str) -> Any | None:
        asked = compute_v1.GetInstanceRequest(project=self._options.project, zone=zone, instance=token)
        with translated(f"reading {token}"):
            try:
                return self._clients.instances.get(asked, **self._clients.call)
            except api.NotFound:
                return None


def _is_under_way(error: api.GoogleAPICallError) -> bool:
    """Whether a delete was refused because one is at work already."""
    return any(
        isinstance(entry, dict) and entry.get("reason") == "resourceNotReady" for entry in error.errors
    )
