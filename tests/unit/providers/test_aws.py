"""EC2's words into ours: types, errors, requests and instances."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from broker.core.errors import (
    Denied,
    Invalid,
    OutOfCapacity,
    OutOfQuota,
    ProviderDown,
    ProviderError,
    Scoped,
    Throttled,
    UnknownOutcome,
)
from broker.core.model import EndedBy
from broker.core.offer import Market, Offer
from broker.core.ports import CloudState, LaunchRequest
from broker.core.tariff import Sampling
from providers.aws.errors import translated
from providers.aws.nodes import closing_times, launch_parameters, node_of, wants_end_time
from providers.aws.provider import AwsProvider
from providers.aws.settings import AwsOptions, vendor_endpoints
from providers.aws.tariff import billing_rule, egress_rule
from providers.aws.types import facts
from tests.clocks import ManualClock

OFFER = Offer("aws", "us-east-1", "use1-az6", "p5.4xlarge", Market.SPOT, "H100-SXM5-80GB", 1)
REQUEST = LaunchRequest("bk-aaaaaaaaaaaaaaaaaaaaaaaaaa-0", OFFER, "#!/bin/sh\n", "inst", 7)
OPTIONS = AwsOptions(regions=("us-east-1",), image_id={"us-east-1": "ami-1"})


def instance_type(name: str, mib: int, count: int = 1, **gpu: Any) -> dict[str, Any]:
    device = {"Name": name, "Manufacturer": "NVIDIA", "Count": count, "MemoryInfo": {"SizeInMiB": mib}, **gpu}
    return {
        "InstanceType": "x1.large",
        "GpuInfo": {"Gpus": [device]},
        "VCpuInfo": {"DefaultVCpus": 96},
        "MemoryInfo": {"SizeInMiB": 1152 * 1024},
        "NetworkInfo": {"EfaSupported": True},
    }


# Names and sizes as EC2 has given them, among them both spellings of 24 GB.
@pytest.mark.parametrize(
    ("name", "mib", "sku"),
    [
        ("T4", 16384, "T4-16GB"),
        ("V100", 16384, "V100-SXM2-16GB"),
        ("V100", 32768, "V100-SXM2-32GB"),
        ("A10G", 24576, "A10G-24GB"),
        ("A10G", 22888, "A10G-24GB"),
        ("L4", 22888, "L4-24GB"),
        ("L40S", 45776, "L40S-48GB"),
        ("A100", 40960, "A100-SXM4-40GB"),
        ("A100", 81920, "A100-SXM4-80GB"),
        ("H100", 81920, "H100-SXM5-80GB"),
        ("H200", 144384, "H200-SXM-141GB"),
        ("B200", 183359, "B200-SXM-180GB"),
        ("B300", 275040, "B300-SXM-288GB"),
        ("RTX PRO 4500", 32768, "NVIDIA RTX PRO 4500 32768MiB"),
        ("A100", 20480, "NVIDIA A100 20480MiB"),
    ],
)
def test_a_gpu_is_an_exact_sku_or_the_clouds_own_text(name: str, mib: int, sku: str) -> None:
    found = facts(instance_type(name, mib, count=8))
    assert found is not None
    assert (found.gpu, found.gpus, found.vcpus, found.memory_gib, found.fabric) == (sku, 8, 96, 1152, "efa")


def test_types_without_a_whole_gpu_are_dropped() -> None:
    assert facts(instance_type("L4", 5722, count=0)) is None
    assert facts(instance_type("L4", 11444, count=1, GpuPartitionSize=0.5)) is None
    assert facts({"InstanceType": "m5.large"}) is None


def test_the_interconnect_follows_the_board() -> None:
    def interconnect(name: str, mib: int, count: int) -> str:
        found = facts(instance_type(name, mib, count))
        assert found is not None
        return found.interconnect

    assert interconnect("H100", 81920, 8) == "nvlink"
    assert interconnect("H100", 81920, 1) == "none"
    assert interconnect("L4", 22888, 4) == "pcie"


def refused(code: str, status: int) -> boto.ClientError:
    answer = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return boto.ClientError(answer, "RunInstances")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "status", "kind", "scope"),
    [
        ("InsufficientInstanceCapacity", 500, OutOfCapacity, "zone"),
        ("UnfulfillableCapacity", 400, OutOfCapacity, "zone"),
        ("Unsupported", 400, OutOfCapacity, "zone"),
        ("SpotMaxPriceTooLow", 400, OutOfCapacity, "zone"),
        ("MaxSpotInstanceCountExceeded", 400, OutOfQuota, "region"),
        ("VcpuLimitExceeded", 400, OutOfQuota, "region"),
        ("RequestLimitExceeded", 503, Throttled, None),
        ("UnauthorizedOperation", 403, Denied, None),
        ("ExpiredToken", 400, Denied, None),
        ("IdempotentParameterMismatch", 400, UnknownOutcome, None),
        ("InvalidAMIID.NotFound", 400, Invalid, None),
        ("InternalError", 500, UnknownOutcome, None),
        ("Unavailable", 503, UnknownOutcome, None),
    ],
)
def test_every_refusal_of_a_create_has_its_error(
    code: str, status: int, kind: type[ProviderError], scope: str | None
) -> None:
    with pytest.raises(kind) as caught, translated("renting", creating=True):
        raise refused(code, status)
    assert code in str(caught.value)
    if isinstance(caught.value, Scoped):
        assert caught.value.scope == scope


def test_missing_credentials_name_the_ways_to_give_them() -> None:
    with pytest.raises(Denied) as caught, translated("asking who we are"):
        raise boto.NoCredentialsError
    for way in (
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        "clouds.aws.profile",
        "an instance with a role",
    ):
        assert way in str(caught.value)


@pytest.mark.parametrize(
    ("error", "creating", "kind"),
    [
        (boto.EndpointConnectionError(endpoint_url="u"), True, ProviderDown),
        (boto.ConnectTimeoutError(endpoint_url="u"), True, ProviderDown),
        (boto.ReadTimeoutError(endpoint_url="u"), True, UnknownOutcome),
        (boto.ReadTimeoutError(endpoint_url="u"), False, ProviderDown),
        (boto.ConnectionClosedError(endpoint_url="u"), True, UnknownOutcome),
        (ResponseParserError("half a reply"), True, UnknownOutcome),
        (boto.SSLError(endpoint_url="u", error=Exception("CERTIFICATE_VERIFY_FAILED")), True, ProviderDown),
        (boto.SSLError(endpoint_url="u", error=Exception("UNEXPECTED_EOF")), True, UnknownOutcome),
        (boto.NoCredentialsError(), True, Denied),
        (boto.ProfileNotFound(profile="p"), False, Denied),
        (boto.ParamValidationError(report="r"), True, Invalid),
        (refused("InternalError", 500), False, ProviderDown),
        (KeyError("SpotPriceHistory"), False, ProviderDown),
        (json.JSONDecodeError("no JSON", "", 0), False, ProviderDown),
    ],
)
def test_what_was_sent_decides(error: Exception, creating: bool, kind: type[ProviderError]) -> None:
    with pytest.raises(kind), translated("asking", creating=creating):
        raise error


def test_a_launch_is_the_same_for_the_same_request_and_leaves_nothing_behind() -> None:
    parameters = launch_parameters(REQUEST, OPTIONS)
    assert json.dumps(parameters) == json.dumps(launch_parameters(REQUEST, OPTIONS))
    assert parameters["ClientToken"] == REQUEST.token
    assert parameters["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert parameters["MetadataOptions"]["HttpTokens"] == "required"
    assert parameters["BlockDeviceMappings"][0]["Ebs"]["DeleteOnTermination"] is True
    assert parameters["InstanceMarketOptions"]["SpotOptions"] == {
        "SpotInstanceType": "one-time",
        "InstanceInterruptionBehavior": "terminate",
    }
    tagged = {spec["ResourceType"] for spec in parameters["TagSpecifications"]}
    assert tagged == {"instance", "volume", "network-interface", "spot-instances-request"}


def test_an_on_demand_launch_has_no_spot_in_it() -> None:
    offer = Offer("aws", "us-east-1", "use1-az6", "p5.4xlarge", Market.ON_DEMAND, "H100-SXM5-80GB", 1)
    request = LaunchRequest(REQUEST.token, offer, "#!/bin/sh\n", "inst", 7)
    assert "spot" not in json.dumps(launch_parameters(request, OPTIONS)).lower()


def test_a_launch_that_cannot_be_is_refused_before_it_is_sent() -> None:
    long = LaunchRequest(REQUEST.token, OFFER, "x" * 20_000, "inst", 7)
    with pytest.raises(Invalid, match="16384"):
        launch_parameters(long, OPTIONS)
    with pytest.raises(Invalid, match=r"clouds\.aws\.image_id"):
        launch_parameters(REQUEST, AwsOptions(regions=("us-east-1",), image_id={"eu-west-1": "ami-1"}))


LAUNCHED = datetime(2026, 11, 30, 10, 0, 0, tzinfo=UTC)
LAUNCHED_MS = 1_796_032_800_000


def instance(state: str, reason: str = "", transition: str = "", **more: Any) -> dict[str, Any]:
    return {
        "InstanceId": "i-1",
        "State": {"Name": state},
        "StateReason": {"Code": reason},
        "StateTransitionReason": transition,
        "LaunchTime": LAUNCHED,
        "Placement": {"AvailabilityZoneId": "use1-az6"},
        "ClientToken": REQUEST.token,
        **more,
    }


@pytest.mark.parametrize(
    ("reason", "by"),
    [
        ("Client.UserInitiatedShutdown", EndedBy.US),
        ("Client.InstanceInitiatedShutdown", EndedBy.NODE),
        ("Server.SpotInstanceTermination", EndedBy.CLOUD),
        ("Server.SpotInstanceShutdown", EndedBy.CLOUD),
    ],
)
def test_who_ended_it(reason: str, by: EndedBy) -> None:
    node = node_of(instance("terminated", reason), "us-east-1", {})
    assert (node.state, node.ended_by, node.billed_from_ms) == (CloudState.TERMINATED, by, LAUNCHED_MS)


def test_when_it_ended_is_in_the_transition_or_in_the_spot_request() -> None:
    user = instance("terminated", "Client.UserInitiatedShutdown", "User initiated (2026-11-30 11:00:00 GMT)")
    assert node_of(user, "us-east-1", {}).ended_at_ms == LAUNCHED_MS + 3_600_000
    assert not wants_end_time(user)
    taken = instance("terminated", "Server.SpotInstanceTermination", SpotInstanceRequestId="sir-1")
    assert wants_end_time(taken)
    status = {"Code": "instance-terminated-no-capacity", "UpdateTime": LAUNCHED}
    closed = closing_times([{"SpotInstanceRequestId": "sir-1", "Status": status}])
    assert node_of(taken, "us-east-1", closed).ended_at_ms == LAUNCHED_MS


def test_a_stopped_instance_is_not_over_and_one_that_never_ran_was_never_billed() -> None:
    assert node_of(instance("stopped"), "us-east-1", {}).state is CloudState.STOPPING
    assert node_of(instance("terminated", "Server.InternalError"), "us-east-1", {}).billed_from_ms is None
    assert node_of(instance("pending"), "us-east-1", {}).billed_from_ms is None


def test_an_image_is_not_looked_up_and_a_missing_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    dead = "https://127.0.0.1:9"
    options = OPTIONS.model_copy(
        update={"regions": ("us-east-1", "eu-west-1"), "endpoint_ec2": dead, "endpoint_sts": dead}
    )
    found = {check.name: check for check in AwsProvider(options, ManualClock(), "broker-lab1").check()}
    assert found["aws: credentials"].ok is False
    assert found["aws: us-east-1: image"].ok is None
    assert found["aws: us-east-1: image"].detail == "ami-1, not looked up"
    assert found["aws: eu-west-1: image"].ok is False


def test_a_line_of_check_stands_for_each_right_and_nothing_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    found = {check.name: check.ok for check in AwsProvider(OPTIONS, ManualClock(), "broker-lab1").check()}
    assert found == {
        "aws: credentials": False,
        "aws: pricing:GetProducts": False,
        "aws: ec2:DescribeInstances": False,
        "aws: ec2:DescribeInstanceTypes": False,
        "aws: ec2:DescribeInstanceTypeOfferings": False,
        "aws: ec2:DescribeAvailabilityZones": False,
        "aws: ec2:DescribeSpotPriceHistory": False,
        "aws: ec2:DescribeSpotInstanceRequests": False,
        "aws: ec2:GetSpotPlacementScores": False,
        "aws: us-east-1: image": None,
        "aws: us-east-1: ec2:RunInstances": False,
    }


def test_a_lab_without_quotas_never_asks_amazon_for_them() -> None:
    options = {"regions": ["us-east-1"], "image_id": "ami-1", "endpoint_ec2": "https://127.0.0.1:1"}
    assert not any("servicequotas" in url for url in vendor_endpoints(options))
    assert any(
        "servicequotas" in url for url in vendor_endpoints({"regions": ["us-east-1"], "image_id": "a"})
    )


def test_spot_that_is_taken_back_in_its_first_hour_is_free_and_each_hour_has_the_price_of_its_start() -> None:
    spot, on_demand = billing_rule(Market.SPOT), billing_rule(Market.ON_DEMAND)
    assert (spot.free_if_interrupted_within_s, spot.sampling) == (3600, Sampling.INSTANCE_HOUR)
    assert (on_demand.free_if_interrupted_within_s, on_demand.sampling) == (0, Sampling.CONTINUOUS)
    for rule in (spot, on_demand):
        assert (rule.unit_s, rule.minimum_s) == (1, 60)
        assert "running" in rule.meter


def test_egress_goes_by_place_and_takes_its_prices_from_the_options() -> None:
    options = OPTIONS.model_copy(update={"egress_area_usd_gib": Decimal("0.09")})
    rule = egress_rule(options)

    def cost(region: str, zone: str) -> int:
        return rule.micro_usd_per_gib(OFFER, replace(OFFER, region=region, zone=zone))

    assert cost("us-east-1", "use1-az6") == 0
    assert cost("us-east-1", "use1-az1") == 20_000
    assert cost("us-west-2", "usw2-az1") == cost("ca-central-1", "cac1-az1") == 20_000
    assert cost("ap-south-1", "aps1-az1") == 90_000
    assert rule.micro_usd_per_gib(OFFER, None) == 90_000


@pytest.mark.parametrize(
    ("region", "to_region", "micro_usd"),
    [
        ("ap-south-1", "ap-northeast-1", 86_000),
        ("ap-south-1", "us-east-1", 86_000),
        ("ap-northeast-1", "us-east-1", 90_000),
        ("sa-east-1", "us-east-1", 138_000),
        ("us-east-1", "sa-east-1", 20_000),
        ("eu-west-1", "us-east-1", 20_000),
        ("mx-central-1", "us-east-1", 20_000),
        ("mx-central-1", "ap-south-1", 80_000),
    ],
)
def test_egress_costs_what_the_region_costs_that_is_left(region: str, to_region: str, micro_usd: int) -> None:
    left, reached = (replace(OFFER, region=name, zone=name) for name in (region, to_region))
    assert egress_rule(OPTIONS).micro_usd_per_gib(left, reached) == micro_usd


def test_another_cloud_is_never_cheaper_than_another_region_and_a_contract_holds_everywhere() -> None:
    brazil = replace(OFFER, region="sa-east-1", zone="sae1-az1")
    assert egress_rule(OPTIONS).micro_usd_per_gib(brazil, None) == 138_000
    contract = OPTIONS.model_copy(
        update={"egress_internet_usd_gib": Decimal("0.05"), "egress_area_usd_gib": Decimal("0.03")}
    )
    assert egress_rule(contract).micro_usd_per_gib(brazil, None) == 50_000
    assert egress_rule(contract).micro_usd_per_gib(brazil, OFFER) == 30_000
