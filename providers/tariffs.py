"""What clouds charge beside a price, for whoever only reckons: each cloud's list prices, without an account or an SDK.

A configured cloud answers from its own options (`broker.core.ports.PriceSource`); this is what those options start from.
"""

from functools import cache

from broker.core.offer import Market, Offer
from broker.core.ports import Clock
from broker.core.tariff import BillingRule, EgressRule
from providers.registry import open_source

# Nothing of an account is needed for a tariff: these stand where an option has no default.
_NONE = "none"


def billing_rule(cloud: str, market: Market) -> BillingRule:
    """How a cloud turns a segment into money; by the second for your own machines and for a cloud that we do not know."""
    match cloud:
        case "aws":
            from providers.aws import tariff as aws

            return aws.billing_rule(market)
        case "gcp":
            from providers.gcp import tariff as gcp

            return gcp.billing_rule(market)
        case "azure":
            from providers.azure import tariff as azure
            from providers.azure.settings import AzureOptions

            return azure.billing_rule(AzureOptions(regions=("eastus",)))
        case "lambda" | "coreweave":
            return open_source(cloud, {}, _Standing(), _NONE).billing_rule(market)
    return BillingRule(unit_s=1, minimum_s=0, source="your own machine")


def egress_micro_usd_per_gib(from_offer: Offer, to_offer: Offer | None) -> int:
    """Price of one GiB from a place to another one; None is a store elsewhere. 0 where traffic is not charged."""
    rule = _egress_rule(from_offer.cloud)
    return 0 if rule is None else rule.micro_usd_per_gib(from_offer, to_offer)


@cache
def _egress_rule(cloud: str) -> EgressRule | None:
    match cloud:
        case "aws":
            from providers.aws.settings import AwsOptions
            from providers.aws.tariff import egress_rule as aws

            return aws(AwsOptions(regions=(_NONE,), image_id=_NONE))
        case "gcp":
            from providers.gcp.settings import GcpOptions
            from providers.gcp.tariff import egress_rule as gcp

            return gcp(GcpOptions(project=_NONE, regions=(_NONE,), image=_NONE))
        case "azure":
            from providers.azure.settings import AzureOptions
            from providers.azure.tariff import egress_rule as azure

            return azure(AzureOptions(regions=("eastus",)))
    return None


class _Standing(Clock):
    """A clock that nobody reads: a tariff is the same at any time."""

    @property
    def rate(self) -> float:
        return 1.0

    def now_ms(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits for a tariff")
