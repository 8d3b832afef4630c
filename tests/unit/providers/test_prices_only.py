"""A cloud without settings for launches: its prices are read, and nothing is ever rented there."""

from typing import Any

import pytest

from broker import assembly
from broker.core.errors import SettingsError
from broker.settings import Settings
from providers.registry import open_provider, open_source, rents, vendor_endpoints
from tests.clocks import ManualClock

AWS = {"regions": ["us-east-1"]}
GCP = {"project": "p", "regions": ["us-central1"]}
BOTH = """
[clouds.aws]
regions = ["us-east-1"]
{image_id}
[clouds.gcp]
project = "p"
regions = ["us-central1"]
{image}
[clouds.lambda]
[clouds.local]
dir = "/var/lib/broker-nodes"
gpu = "L4-24GB"
price_usd_h = 0.12
"""


@pytest.mark.parametrize(
    ("image_id", "image", "renting"),
    [
        ("", "", {"local"}),
        ('image_id = "ami-1"', "", {"aws", "local"}),
        ("", 'image = "projects/p/global/images/i"', {"gcp", "local"}),
    ],
)
def test_what_is_rented_from_goes_by_each_clouds_settings(
    image_id: str, image: str, renting: set[str]
) -> None:
    settings = Settings.parse(BOTH.format(image_id=image_id, image=image))
    opened, closed = assembly.open_clouds(settings, ManualClock(), "broker-lab1")
    assert (set(opened), closed) == ({"aws", "gcp", "lambda", "local"}, {})
    assert assembly.that_rent(opened).keys() == renting


@pytest.mark.parametrize(("cloud", "options"), [("aws", AWS), ("gcp", GCP)])
def test_it_is_opened_for_its_prices_and_never_for_renting(cloud: str, options: dict[str, Any]) -> None:
    source = open_source(cloud, options, ManualClock(), "broker-lab1")
    assert (source.cloud, rents(source)) == (cloud, False)
    assert not hasattr(source, "create")
    with pytest.raises(SettingsError, match=rf"clouds\.{cloud}: only the prices"):
        open_provider(cloud, options, ManualClock(), "broker-lab1")


@pytest.mark.parametrize(
    ("cloud", "options", "given", "missing"),
    [
        *(
            ("aws", AWS, given, "image_id")
            for given in (
                {"subnet_ids": {"use1-az6": "subnet-1"}},
                {"security_group_ids": {"us-east-1": ["sg-1"]}},
                {"root_device": "/dev/xvda"},
                {"iam_instance_profile": "nodes"},
                {"key_name": "mine"},
            )
        ),
        *(
            ("gcp", GCP, given, "image")
            for given in (
                {"disk_type": "pd-ssd"},
                {"network": "global/networks/other"},
                {"subnetworks": {"us-central1": "x"}},
                {"external_ip": True},
                {"network_tags": ["x"]},
                {"service_account": "x@p.iam.gserviceaccount.com"},
                {"create_wait_s": 60},
            )
        ),
    ],
)
def test_half_of_what_a_launch_needs_is_an_error_that_names_the_rest(
    cloud: str, options: dict[str, Any], given: dict[str, Any], missing: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        open_source(cloud, options | given, ManualClock(), "broker-lab1")
    assert (
        caught.value.message
        == f"clouds.{cloud}.{missing}: missing, and {next(iter(given))} is of use for launches alone"
    )
    assert "leave both out" in str(caught.value.hint)


def test_an_image_map_without_an_image_is_no_way_to_say_so() -> None:
    with pytest.raises(SettingsError, match=r"clouds\.aws\.image_id"):
        open_source("aws", AWS | {"image_id": {}}, ManualClock(), "broker-lab1")


def test_nobody_asks_for_quotas_of_what_is_never_launched() -> None:
    assert vendor_endpoints("aws", AWS) == [
        "https://ec2.us-east-1.amazonaws.com",
        "https://api.pricing.us-east-1.amazonaws.com",
        "https://sts.us-east-1.amazonaws.com",
    ]
