"""What Azure charges beside a machine's price: how a run becomes money, what leaving costs. Data with its sources."""

from broker.core.money import micro_usd
from broker.core.tariff import BillingRule, EgressRule
from providers.azure.settings import AzureOptions

# Continents as azure.microsoft.com/pricing/details/bandwidth has them, by the start of a region's name.
_AREAS = {
    "north_america": (
        "canada",
        "centralus",
        "eastus",
        "mexico",
        "northcentralus",
        "southcentralus",
        "westcentralus",
        "westus",
    ),
    "europe": (
        "austria",
        "belgium",
        "denmark",
        "france",
        "germany",
        "italy",
        "northeurope",
        "norway",
        "poland",
        "spain",
        "sweden",
        "switzerland",
        "uk",
        "westeurope",
    ),
}


def egress_rule(options: AzureOptions) -> EgressRule:
    """By how far it goes. The defaults are those of North America and Europe.

    A region elsewhere is an area of its own. Leaving it costs more than the default, by how much differs: 0.08 and up.
    """
    return EgressRule(
        zone=0,
        region=micro_usd(options.egress_region_usd_gib),
        area=micro_usd(options.egress_area_usd_gib),
        internet=micro_usd(options.egress_internet_usd_gib),
        areas={start: area for area, starts in _AREAS.items() for start in starts},
        source="azure.microsoft.com/pricing/details/bandwidth, 2026-11; zones are free since 2024",
    )


def billing_rule(options: AzureOptions) -> BillingRule:
    """By the second; an evicted machine pays for what it ran."""
    return BillingRule(
        unit_s=1,
        minimum_s=options.billing_minimum,
        meter="allocated to deallocated; a machine that only its own system stopped is still billed",
        unconfirmed="shortest billed run: 60 s by a blog of 2025-12, 300 s since 2025-06-01 by a customer letter "
        "quoted in learn.microsoft.com Q&A 2259765; no refund after an eviction found",
        source="azure.microsoft.com/pricing/details/virtual-machines/linux, 2026-11",
    )
