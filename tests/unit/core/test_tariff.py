"""What leaving a place costs, by how far it goes."""

from dataclasses import replace

import pytest

from broker.core.offer import Market, Offer
from broker.core.tariff import EgressRule

HERE = Offer("aws", "us-east-1", "use1-az6", "p5.4xlarge", Market.SPOT, "H100-SXM5-80GB", 1)
RULE = EgressRule(
    zone=20_000,
    region=20_001,
    area=80_000,
    internet=90_000,
    areas={"us-": "america", "us-gov-": "gov", "eu-": "europe"},
)


@pytest.mark.parametrize(
    ("region", "zone", "micro_usd"),
    [
        ("us-east-1", "use1-az6", 0),
        ("us-east-1", "use1-az2", 20_000),
        ("us-west-2", "usw2-az1", 20_001),
        ("eu-west-1", "euw1-az1", 80_000),
        ("us-gov-west-1", "usgw1-az1", 80_000),  # the longest start counts
        ("mx-central-1", "mxc1-az1", 80_000),  # an area of its own
    ],
)
def test_a_gib_costs_by_how_far_it_goes(region: str, zone: str, micro_usd: int) -> None:
    assert RULE.micro_usd_per_gib(HERE, replace(HERE, region=region, zone=zone)) == micro_usd


def test_another_cloud_and_a_store_elsewhere_are_the_internet() -> None:
    assert RULE.micro_usd_per_gib(HERE, replace(HERE, cloud="gcp")) == 90_000
    assert RULE.micro_usd_per_gib(HERE, None) == 90_000
