"""What Amazon charges beside an instance's price, as rules."""

from broker.core.money import micro_usd
from broker.core.offer import Market
from broker.core.tariff import BillingRule, EgressPrices, EgressRule, Sampling
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

# To any other region, USD a GB, by the start of the region that is left; from the rest it is 0.02. Amazon's list as
# github.com/andylizf/skynomad-artifact has it for 1,122 pairs (research/data/aws_egress_pricing.csv, 2026-08): one price
# holds for nearly all ways out of a region. Left out: dearer ways to Israel, the Gulf and Africa from a few of these, to
# Canada West and Mexico from Europe (0.05), to Thailand (0.08); cheaper between Virginia and Ohio (0.01).
_ELSEWHERE = {
    "ap-": "0.09",
    "ap-east-2": "0.08",
    "ap-northeast-2": "0.08",
    "ap-south-": "0.086",
    "ap-southeast-2": "0.098",
    "ap-southeast-3": "0.10",
    "ap-southeast-4": "0.10",
    "ap-southeast-5": "0.08",
    "ap-southeast-6": "0.098",
    "ap-southeast-7": "0.08",
    "sa-": "0.138",
    "me-central-": "0.085",
    "me-south-": "0.1105",
    "il-": "0.08",
    "af-": "0.147",
}
# Two regions that pay 0.02 within North America alone: to Europe 0.05, to Asia 0.08, to the Gulf and Africa 0.14.
_FAR = {"ca-west-": "0.08", "mx-": "0.08"}


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
    """From the options; one that is left out is Amazon's list price, which goes by the region that is left.

    Between zones a GB costs 0.01 on both ends. The internet costs 0.09 from the US and Europe for the first 10 TB of a
    month, and more elsewhere, by how much is not in here: where another region costs more than that, so does the
    internet. Source: aws.amazon.com/ec2/pricing/on-demand, "Data Transfer", 2026-11, with a GB taken for a GiB.
    """
    internet = micro_usd(options.egress_internet_usd_gib)
    elsewhere = {start: EgressPrices(area=micro_usd(usd)) for start, usd in _FAR.items()}
    for start, usd in _ELSEWHERE.items():
        price = micro_usd(usd)
        elsewhere[start] = EgressPrices(price, price, max(price, internet))
    return EgressRule(
        zone=micro_usd(options.egress_zone_usd_gib),
        region=micro_usd(options.egress_region_usd_gib),
        area=micro_usd(options.egress_area_usd_gib),
        internet=internet,
        areas=_AREAS,
        elsewhere={start: options.unless_given(prices) for start, prices in elsewhere.items()},
        source="clouds.aws.egress_*_usd_gib; defaults: aws.amazon.com/ec2/pricing/on-demand, 2026-11",
    )
