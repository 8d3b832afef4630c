"""EC2 as a `Provider`; without an image, as a `PriceSource` alone."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from broker.core.availability import Availability, Unanswered
from broker.core.money import micro_usd
from broker.core.offer import Market, Offer, RawQuote
from broker.core.ports import Check, Clock, CloudNode, LaunchRequest
from broker.core.tariff import BillingRule
from providers.aws.catalogue import Catalogues
from providers.aws.checks import Checks
from providers.aws.clients import Clients
from providers.aws.errors import translated
from providers.aws.nodes import (
    BILLED_STATES,
    TAG_INSTALLATION,
    closing_times,
    launch_parameters,
    node_of,
    wants_end_time,
)
from providers.aws.placement import PlacementScores
from providers.aws.prices import Prices
from providers.aws.settings import AwsOptions, parse
from providers.aws.tariff import billing_rule, egress_rule


def open_provider(options: Mapping[str, Any], clock: Clock, installation_id: str) -> "AwsPrices":
    """See `providers.registry.open_source`."""
    parsed = parse(options)
    kind = AwsPrices if parsed.image_id is None else AwsProvider
    return kind(parsed, clock, installation_id)


class AwsPrices:
    """Prices of one AWS account."""

    cloud = "aws"

    def __init__(self, options: AwsOptions, clock: Clock, installation_id: str) -> None:
        self._options = options
        self._installation_id = installation_id
        self._clients = Clients(options)
        self._catalogues = Catalogues(options, self._clients, clock)
        self._prices = Prices(options, self._clients, self._catalogues, clock)
        self._checks = Checks(options, self._clients, self._catalogues, installation_id)
        self._egress = egress_rule(options)
        self._scores = PlacementScores(options, self._clients, self._catalogues, clock)

    def quotes(self) -> list[RawQuote]:
        """Spot and on-demand prices of every configured region; all or nothing."""
        return self._prices.quotes()

    def price_history(self, from_ms: int) -> Iterable[RawQuote]:
        """Changes of spot price of the last 90 days, page by page."""
        return self._prices.history(from_ms)

    def availability(self) -> Sequence[Availability | Unanswered]:
        """Spot placement scores of zones; asked every six hours, told with their date."""
        return self._scores.hints()

    def egress_micro_usd_per_gib(self, from_offer: Offer, to_offer: Offer | None) -> int:
        """By place: same zone free, other zone, other region, internet."""
        return self._egress.micro_usd_per_gib(from_offer, to_offer)

    def billing_rule(self, market: Market) -> BillingRule:
        """See `providers.aws.tariff`."""
        return billing_rule(market)

    def disk_micro_usd_per_gib_month(self, region: str) -> int:
        """Of the boot disk's type."""
        return micro_usd(self._options.disk_usd_gib_month)

    def check(self) -> Sequence[Check]:
        """Who we are, each right, and where something is launched, for each region image, launch and quotas."""
        return self._checks.all()


class AwsProvider(AwsPrices):
    """One AWS account."""

    def create(self, request: LaunchRequest) -> CloudNode:
        """One instance. ``ClientToken`` makes a resent request the same instance.

        Raises:
            OutOfCapacity, OutOfQuota, Throttled, Denied, Invalid, UnknownOutcome, ProviderDown: see `core.errors`.
        """
        offer = request.offer
        doing = f"renting {offer.instance_type} in {offer.zone}"
        parameters = launch_parameters(request, self._options)
        with translated(doing, creating=True):
            reply = self._clients.ec2(offer.region).run_instances(**parameters)
        return node_of(reply["Instances"][0], offer.region, {})

    def find(self, token: str, region: str, zone: str) -> CloudNode | None:
        """By client token; a terminated instance stays visible for about an hour."""
        found = self._describe(region, [{"Name": "client-token", "Values": [token]}])
        return found[0] if found else None

    def list_owned(self) -> Sequence[CloudNode]:
        """By our tag, in every configured region; terminated ones left out."""
        return self._list({"Name": f"tag:{TAG_INSTALLATION}", "Values": [self._installation_id]})

    def list_tagged(self) -> Sequence[CloudNode]:
        """By the tag's key, whatever its value."""
        return self._list({"Name": "tag-key", "Values": [TAG_INSTALLATION]})

    def delete(self, node: CloudNode) -> None:
        """Terminate; its disks and its interface go with it (``DeleteOnTermination``)."""
        doing = f"terminating {node.provider_id}"
        with translated(doing):
            try:
                self._clients.ec2(node.region).terminate_instances(InstanceIds=[node.provider_id])
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") != "InvalidInstanceID.NotFound":
                    raise

    def _list(self, tag: dict[str, Any]) -> list[CloudNode]:
        filters = [tag, {"Name": "instance-state-name", "Values": list(BILLED_STATES)}]
        return [node for region in self._options.regions for node in self._describe(region, filters)]

    def _describe(self, region: str, filters: list[dict[str, Any]]) -> list[CloudNode]:
        with translated(f"listing instances in {region}"):
            pages = self._clients.ec2(region).get_paginator("describe_instances").paginate(Filters=filters)
            found = [item for page in pages for group in page["Reservations"] for item in group["Instances"]]
        closed_ms = self._closed_ms(region, [item for item in found if wants_end_time(item)])
        return [node_of(instance, region, closed_ms) for instance in found]

    def _closed_ms(self, region: str, instances: list[dict[str, Any]]) -> dict[str, int]:
        """When Spot requests were closed, by request id: EC2 gives no time in the instance when it takes it back."""
        ids = [instance["SpotInstanceRequestId"] for instance in instances]
        if not ids:
            return {}
        asked = [{"Name": "spot-instance-request-id", "Values": ids}]
        with translated(f"reading Spot requests in {region}"):
            pages = (
                self._clients.ec2(region)
                .get_paginator("describe_spot_instance_requests")
                .paginate(Filters=asked)
            )
            return closing_times(request for page in pages for request in page["SpotInstanceRequests"])
