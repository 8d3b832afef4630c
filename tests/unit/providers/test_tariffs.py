"""List tariffs without an account: the same that a configured cloud charges by default."""

import subprocess
import sys
from dataclasses import replace

import pytest

from broker.core.offer import Market, Offer
from broker.core.tariff import Sampling
from providers.registry import CLOUDS
from providers.tariffs import billing_rule, egress_micro_usd_per_gib

AWS = Offer("aws", "us-east-1", "use1-az6", "p5.4xlarge", Market.SPOT, "H100-SXM5-80GB", 1)
GCP = Offer("gcp", "us-central1", "us-central1-a", "a3-highgpu-1g", Market.SPOT, "H100-SXM5-80GB", 1)


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("market", [Market.SPOT, Market.ON_DEMAND])
def test_every_cloud_has_a_rule_with_its_source(cloud: str, market: Market) -> None:
    assert billing_rule(cloud, market).source


def test_spot_of_amazon_is_charged_by_the_hour_s_price_and_free_when_taken_back_early() -> None:
    rule = billing_rule("aws", Market.SPOT)
    assert (rule.sampling, rule.free_if_interrupted_within_s) == (Sampling.INSTANCE_HOUR, 3600)
    assert billing_rule("aws", Market.ON_DEMAND).free_if_interrupted_within_s == 0


def test_leaving_costs_by_how_far_it_goes() -> None:
    assert egress_micro_usd_per_gib(AWS, AWS) == 0
    assert egress_micro_usd_per_gib(AWS, replace(AWS, region="us-west-2", zone="usw2-az1")) == 20_000
    assert egress_micro_usd_per_gib(AWS, GCP) == 90_000
    assert egress_micro_usd_per_gib(GCP, None) == 120_000
    assert egress_micro_usd_per_gib(replace(AWS, cloud="lambda"), GCP) == 0


def test_tariffs_bring_no_sdk_along() -> None:
    program = (
        "import sys; from providers import tariffs as t; from broker.core.offer import Market\n"
        "for cloud in ('aws', 'gcp', 'azure', 'lambda', 'coreweave'): t.billing_rule(cloud, Market.SPOT)\n"
        "heavy = {'boto3', 'botocore', 'google.cloud', 'azure.identity', 'kubernetes'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
