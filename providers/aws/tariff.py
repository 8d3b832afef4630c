"""What Amazon charges beside an instance's price, as rules."""

from broker.core.money import micro_usd
from broker.core.offer import Market
from broker.core.tariff import BillingRule, EgressRule, Sampling
from providers.aws.settings import AwsOptions

_AREAS = {
    "us-": "north america",
    "ca-": "north america",
    "mx-": "north america",
    "sa-": "south america",
    "eu-": "europe",
    "ap-": "asia pacific",
    "me-": "middle east",
    "il-": "middle east",
    "af-": "africa",
}


def billing_rule(market: Market) -> BillingRule:
    """Linux: by the second, a minute at least. Spot: free when EC2 takes it back within the first hour, and each
    instance-hour costs what the price was when it began.
    """
    spot = market is Market.SPOT
    interrupted = ["billing-for-interrupted-spot-instances.html"] if spot else []
    pages = ["instance-lifecycle.html", *interrupted]
    return BillingRule(
        unit_s=1,
        minimum_s=60,
        free_if_interrupted_within_s=3600 if spot else 0,
        sampling=Sampling.INSTANCE_HOUR if spot else Sampling.CONTINUOUS,
        meter="from running to shutting-down",
        source=f"docs.aws.amazon.com/AWSEC2/latest/UserGuide: {', '.join(pages)}; 2026-11",
    )


def egress_rule(options: AwsOptions) -> EgressRule:
    """From the options. Their defaults hold for regions of the US and of Europe.

    Amazon's price goes by the region that is left and hardly by the one that is reached: from the US and Europe 0.02 to
    every region, from others up to 0.14. Between zones a GB costs 0.01 on both ends. Beyond 10 TB a month the internet
    costs less. Source: aws.amazon.com/ec2/pricing/on-demand, "Data Transfer", 2026-11, with a GB taken for a GiB.
    """
    return EgressRule(
        zone=micro_usd(options.egress_zone_usd_gib),
        region=micro_usd(options.egress_region_usd_gib),
        area=micro_usd(options.egress_area_usd_gib),
        internet=micro_usd(options.egress_internet_usd_gib),
        areas=_AREAS,
        source="clouds.aws.egress_*_usd_gib; defaults: aws.amazon.com/ec2/pricing/on-demand, 2026-11",
    )
