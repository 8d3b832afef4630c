"""What leaving a place costs, by how far it goes."""

from dataclasses import replace

import pytest

from broker.core.offer import Market, Offer
from broker.core.tariff import EgressPrices, EgressRule

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


FAR = replace(
    RULE,
    elsewhere={
        "ap-": EgressPrices(region=86_000, area=87_000, internet=110_000),
        "ap-south-": EgressPrices(area=100_000),
    },
)
TOKYO = replace(HERE, region="ap-northeast-1", zone="apne1-az1")
MUMBAI = replace(HERE, region="ap-south-1", zone="aps1-az1")


def test_the_price_is_that_of_the_region_that_is_left_and_never_of_the_one_that_is_reached() -> None:
    assert FAR.micro_usd_per_gib(TOKYO, HERE) == 87_000
    assert FAR.micro_usd_per_gib(HERE, TOKYO) == 80_000
    assert (
        FAR.micro_usd_per_gib(TOKYO, None)
        == FAR.micro_usd_per_gib(TOKYO, replace(HERE, cloud="gcp"))
        == 110_000
    )
    assert FAR.micro_usd_per_gib(TOKYO, replace(TOKYO, zone="apne1-az2")) == 20_000
    assert FAR.micro_usd_per_gib(TOKYO, TOKYO) == 0


def test_within_its_area_a_far_region_has_its_own_price_too() -> None:
    rule = replace(FAR, areas={"ap-": "asia"})
    osaka = replace(TOKYO, region="ap-northeast-3", zone="apne3-az1")
    assert rule.micro_usd_per_gib(TOKYO, osaka) == 86_000


def test_the_longest_start_counts_and_what_it_leaves_open_is_the_rules_own() -> None:
    assert FAR.micro_usd_per_gib(MUMBAI, HERE) == 100_000
    assert FAR.micro_usd_per_gib(MUMBAI, None) == 90_000
