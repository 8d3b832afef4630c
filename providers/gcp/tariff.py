"""What Google charges beside a machine's price, as rules."""

from broker.core.money import micro_usd
from broker.core.offer import Market
from broker.core.tariff import BillingRule, EgressRule
from providers.gcp.settings import GcpOptions

_AREAS = {
    "us-": "north america",
    "northamerica-": "north america",
    "southamerica-": "south america",
    "europe-": "europe",
    "asia-": "asia",
    "australia-": "oceania",
    "me-": "middle east",
    "africa-": "africa",
}


def billing_rule(market: Market) -> BillingRule:
    """By the second, a minute at least; a preempted machine pays for what it ran."""
    minute = "whether spot that is preempted within its first minute is free, as it is documented for TPUs"
    return BillingRule(
        unit_s=1,
        minimum_s=60,
        meter="from RUNNING to TERMINATED, each SKU by itself",
        unconfirmed=minute if market is Market.SPOT else "",
        source="cloud.google.com/compute/vm-instance-pricing, 2026-11",
    )


def egress_rule(options: GcpOptions) -> EgressRule:
    """From the options.

    Between continents Google's price goes by the pair: 0.05 between North America and Europe, 0.08 for most others, up to
    0.14 from South America (unconfirmed). The default is the one of most pairs. Within Europe and North America a GiB to
    another region costs 0.02, to another zone 0.01; the internet (Premium Tier) 0.12 for the first TiB of a month.
    Source: cloud.google.com/vpc/network-pricing, 2026-11.
    """
    return EgressRule(
        zone=micro_usd(options.egress_zone_usd_gib),
        region=micro_usd(options.egress_region_usd_gib),
        area=micro_usd(options.egress_area_usd_gib),
        internet=micro_usd(options.egress_internet_usd_gib),
        areas=_AREAS,
        source="clouds.gcp.egress_*_usd_gib; defaults: cloud.google.com/vpc/network-pricing, 2026-11",
    )
