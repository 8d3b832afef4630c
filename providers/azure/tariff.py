"""What Azure charges beside a machine's price: how a run becomes money, what leaving costs. Data with its sources."""

from broker.core.money import micro_usd
from broker.core.tariff import BillingRule, EgressPrices, EgressRule
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
    "asia": (
        "centralindia",
        "eastasia",
        "indonesia",
        "japan",
        "jioindia",
        "korea",
        "malaysia",
        "southeastasia",
        "southindia",
        "taiwan",
        "westindia",
    ),
    "oceania": ("australia", "newzealand"),
    "middle_east_and_africa": ("israel", "qatar", "saudi", "southafrica", "uae"),
    "south_america": ("brazil", "chile"),
}

# USD a GB out of these to any other region; from North America and Europe it is the options' defaults.
_ELSEWHERE = {"asia": "0.08", "oceania": "0.08", "middle_east_and_africa": "0.08", "south_america": "0.16"}


def egress_rule(options: AzureOptions) -> EgressRule:
    """From the options; one that is left out is Microsoft's list price, which goes by the continent that is left.

    The internet costs 0.087 from North America and Europe and more elsewhere, up to 0.181; by how much is not in here:
    where another region costs more than that, so does the internet. A region of no continent that is known here is an
    area of its own and pays as North America does (unconfirmed).
    """
    internet = micro_usd(options.egress_internet_usd_gib)
    elsewhere: dict[str, EgressPrices] = {}
    for area, usd in _ELSEWHERE.items():
        price = micro_usd(usd)
        elsewhere |= dict.fromkeys(_AREAS[area], EgressPrices(price, price, max(price, internet)))
    return EgressRule(
        zone=0,
        region=micro_usd(options.egress_region_usd_gib),
        area=micro_usd(options.egress_area_usd_gib),
        internet=internet,
        areas={start: area for area, starts in _AREAS.items() for start in starts},
        elsewhere={start: options.unless_given(prices) for start, prices in elsewhere.items()},
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
