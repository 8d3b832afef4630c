"""The AWS face through boto3, over HTTPS: what the SDK sends is parsed, and what it reads is right."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

from lab.catalog import Scenario
from lab.faces import aws
from lab.faults import Fault, FaultKind
from lab.serving import HttpServer
from lab.tls import Authority
from lab.world import World
from tests.clocks import ManualClock

pytestmark = pytest.mark.filterwarnings("ignore:Exception.AwsError")

SPOT = "aws/use1-az6/p5.4xlarge/spot"
L4S = ("g6.xlarge", "g6.2xlarge", "g6.4xlarge")
RUN = {
    "ImageId": "ami-0123456789abcdef0",
    "InstanceType": "p5.4xlarge",
    "MinCount": 1,
    "MaxCount": 1,
    "Placement": {"AvailabilityZoneId": "use1-az6"},
    "InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "one-time"}},
    "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "broker:token", "Value": "bk-a-0"}]}],
    "UserData": "#!/bin/bash\necho hi\n",
}


class Lab:
    """A world behind HTTPS, and boto3 clients that trust it."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.world = World(self.clock, Scenario.of({"prices": {SPOT: "3.10"}}))
        authority = Authority(folder)
        face = aws.create(self.world, aws.Keys("AKIALAB", "secret"))
        self.server = HttpServer(face, authority.server_context()).start()
        self._ca = str(authority.ca_file)
        self.ec2 = self.client("ec2")
        self.pricing = self.client("pricing")

    def client(
        self, service: str, region: str = "us-east-1", key: str = "AKIALAB", secret: str = "secret"
    ) -> Any:
        make: Any = boto3.session.Session().client
        return make(
            service,
            region_name=region,
            endpoint_url=self.server.url,
            verify=self._ca,
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            config=Config(retries={"total_max_attempts": 1}),
        )

    def run(self, **more: Any) -> str:
        answer = self.ec2.run_instances(**(RUN | more))
        return str(answer["Instances"][0]["InstanceId"])

    def instance(self, instance_id: str) -> dict[str, Any]:
        found = self.ec2.describe_instances(InstanceIds=[instance_id])
        return dict(found["Reservations"][0]["Instances"][0])

    def fault(self, kind: FaultKind, operation: str, count: int | None = 1) -> None:
        self.world.faults.add(Fault("aws", operation, kind, count))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("lab"))
    yield lab
    lab.server.stop()


@pytest.fixture
def lab(shared: Lab) -> Lab:
    """The shared server over a fresh world would need a new face; a calm one does."""
    shared.world.faults.clear()
    shared.world.set_stock(SPOT, None)
    shared.world.set_price(SPOT, 3_100_000)
    return shared


def refused(call: Any, **parameters: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    response = caught.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


def test_types_carry_their_gpus(lab: Lab) -> None:
    pages = lab.ec2.get_paginator("describe_instance_types").paginate(
        Filters=[{"Name": "instance-type", "Values": ["p5*", "g6.*"]}]
    )
    found = {kind["InstanceType"]: kind for page in pages for kind in page["InstanceTypes"]}
    assert set(found) == {"p5.4xlarge", "p5.48xlarge", *L4S}
    device = found["p5.48xlarge"]["GpuInfo"]["Gpus"][0]
    assert (device["Name"], device["Count"], device["MemoryInfo"]["SizeInMiB"]) == ("H100", 8, 81920)
    assert refused(lab.ec2.describe_instance_types, InstanceTypes=["x9.large"]) == (
        "InvalidInstanceType",
        400,
    )


def test_zones_have_ids_and_offerings_name_them(lab: Lab) -> None:
    zones = {z["ZoneName"]: z["ZoneId"] for z in lab.ec2.describe_availability_zones()["AvailabilityZones"]}
    assert zones["us-east-1a"] == "use1-az6"
    offerings = lab.ec2.describe_instance_type_offerings(
        LocationType="availability-zone-id", Filters=[{"Name": "instance-type", "Values": ["p5.48xlarge"]}]
    )["InstanceTypeOfferings"]
    assert [row["Location"] for row in offerings] == ["use1-az6"]


def history(lab: Lab, from_s: int, to_s: int, **asked: Any) -> list[list[dict[str, Any]]]:
    """Pages of rows."""
    span = {"StartTime": datetime.fromtimestamp(from_s, UTC), "EndTime": datetime.fromtimestamp(to_s, UTC)}
    pages = lab.ec2.get_paginator("describe_spot_price_history").paginate(**span, **asked)
    return [page["SpotPriceHistory"] for page in pages]


ONE_POOL = {
    "InstanceTypes": ["p5.4xlarge"],
    "ProductDescriptions": ["Linux/UNIX"],
    "AvailabilityZoneId": "use1-az6",
}


def test_one_moment_of_history_is_the_price_now(lab: Lab) -> None:
    lab.clock.advance(100)
    lab.world.set_price(SPOT, 2_500_000)
    changed_s = lab.world.now_s()
    lab.clock.advance(100)
    now_s = lab.world.now_s()
    ((row,),) = history(lab, now_s, now_s, **ONE_POOL)
    assert (row["SpotPrice"], row["Timestamp"]) == ("2.500000", datetime.fromtimestamp(changed_s, UTC))


def test_a_range_of_history_begins_with_the_change_in_effect_and_with_an_empty_page(lab: Lab) -> None:
    lab.clock.advance(100)
    lab.world.set_price(SPOT, 2_500_000)
    changed_s = lab.world.now_s()
    lab.clock.advance(100)
    now_s = lab.world.now_s()
    for from_s, prices in ((changed_s, ["2.500000"]), (changed_s - 50, ["2.500000", "3.100000"])):
        empty, rows = history(lab, from_s, now_s, **ONE_POOL)
        assert empty == []
        assert [row["SpotPrice"] for row in rows] == prices


def test_history_pages_and_products(lab: Lab) -> None:
    now_s = lab.world.now_s()
    few = {"ProductDescriptions": ["Linux/UNIX"], "PaginationConfig": {"PageSize": 5}}
    pages = history(lab, now_s, now_s, **few)
    rows = [row for page in pages for row in page]
    assert [len(page) for page in pages] == [5, 5, 5, 5, 1]
    assert len({(row["InstanceType"], row["AvailabilityZoneId"]) for row in rows}) == len(rows)
    (everything,) = history(lab, now_s, now_s)
    assert {row["ProductDescription"] for row in everything} == {"Linux/UNIX", "Windows"}
    both = {"ProductDescriptions": ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"]}
    assert len(history(lab, now_s, now_s, **both)[0]) == 2 * len(rows)


def scored(lab: Lab, *types: str, **more: Any) -> dict[str, int]:
    asked = {"TargetCapacity": 1, "SingleAvailabilityZone": True, "RegionNames": ["us-east-1"]}
    answer = lab.ec2.get_spot_placement_scores(InstanceTypes=list(types), **(asked | more))
    return {row["AvailabilityZoneId"]: row["Score"] for row in answer["SpotPlacementScores"]}


def test_a_request_for_fewer_than_three_types_is_scored_low(lab: Lab) -> None:
    assert set(scored(lab, *L4S).values()) == {9}
    assert set(scored(lab, "g6.xlarge", "g6.2xlarge", "g6.xlarge").values()) == {3}


def test_a_score_follows_the_stock(lab: Lab) -> None:
    keys = [f"aws/use1-az6/{name}/spot" for name in L4S]
    for machines, capacity, score in ((0, 1, 1), (1, 1, 5), (1, 4, 1), (2, 1, 8), (None, 1, 9)):
        for key in keys:
            lab.world.set_stock(key, machines)
        assert scored(lab, *L4S, TargetCapacity=capacity)["use1-az6"] == score


def test_new_requests_for_scores_are_limited_and_old_ones_are_not(lab: Lab) -> None:
    lab.clock.advance(86_400)
    for capacity in range(1, 51):
        scored(lab, *L4S, TargetCapacity=capacity)
    with pytest.raises(ClientError, match="MaxConfigLimitExceeded"):
        scored(lab, *L4S, TargetCapacity=51)
    scored(lab, *L4S, TargetCapacity=7)
    lab.clock.advance(86_400)
    scored(lab, *L4S, TargetCapacity=51)


def test_a_dry_run_says_whether_it_would_be_let_through_and_does_nothing(lab: Lab) -> None:
    lab.clock.advance(86_400)
    asked = {"InstanceTypes": list(L4S), "TargetCapacity": 1, "DryRun": True}
    assert refused(lab.ec2.get_spot_placement_scores, **asked) == ("DryRunOperation", 412)
    lab.fault(FaultKind.DENIED, "DescribeInstanceTypes")
    assert refused(lab.ec2.describe_instance_types, DryRun=True) == ("UnauthorizedOperation", 403)


def test_a_partial_listing_fails_on_its_second_page(lab: Lab) -> None:
    lab.fault(FaultKind.PARTIAL_PAGE, "DescribeSpotPriceHistory")
    pages = iter(lab.ec2.get_paginator("describe_spot_price_history").paginate(InstanceTypes=["p5.4xlarge"]))
    assert next(pages)["SpotPriceHistory"]
    with pytest.raises(ClientError):
        next(pages)


def test_the_price_list_has_one_right_row_among_the_traps(lab: Lab) -> None:
    usual = {
        "regionCode": "us-east-1",
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
    }
    usual |= {"capacitystatus": "Used", "marketoption": "OnDemand"}
    filters = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in usual.items()]
    filters.append({"Type": "ANY_OF", "Field": "instanceType", "Value": "p5.48xlarge,g6.xlarge"})
    rows = [
        json.loads(text)
        for text in lab.pricing.get_products(ServiceCode="AmazonEC2", Filters=filters)["PriceList"]
    ]
    prices = {}
    for row in rows:
        (term,) = row["terms"]["OnDemand"].values()
        (dimension,) = term["priceDimensions"].values()
        prices[row["product"]["attributes"]["instanceType"]] = dimension["pricePerUnit"]["USD"]
    assert prices == {"p5.48xlarge": "55.0400000000", "g6.xlarge": "0.8048000000"}
    loose = lab.pricing.get_products(
        ServiceCode="AmazonEC2", Filters=[{"Type": "EQUALS", "Field": "instanceType", "Value": "p5.48xlarge"}]
    )["PriceList"]
    assert len(loose) == 14


def test_the_same_client_token_is_the_same_instance(lab: Lab) -> None:
    first = lab.run(ClientToken="bk-same-0")
    assert lab.run(ClientToken="bk-same-0") == first
    code = refused(lab.ec2.run_instances, **(RUN | {"ClientToken": "bk-same-0", "InstanceType": "g6.xlarge"}))
    assert code == ("IdempotentParameterMismatch", 400)
    found = lab.ec2.describe_instances(Filters=[{"Name": "client-token", "Values": ["bk-same-0"]}])
    assert [r["Instances"][0]["InstanceId"] for r in found["Reservations"]] == [first]


def test_a_life(lab: Lab) -> None:
    instance_id = lab.run(ClientToken="bk-life-0")
    assert lab.instance(instance_id)["State"]["Name"] == "pending"
    lab.clock.advance(5)
    instance = lab.instance(instance_id)
    assert (instance["State"]["Name"], instance["InstanceLifecycle"]) == ("running", "spot")
    assert instance["Placement"]["AvailabilityZoneId"] == "use1-az6"
    assert lab.world.machine(instance_id).request.user_data == RUN["UserData"]
    tagged = [
        {"Name": "tag:broker:token", "Values": ["bk-a-*"]},
        {"Name": "instance-state-name", "Values": ["running"]},
    ]
    listed = [
        r["Instances"][0]["InstanceId"] for r in lab.ec2.describe_instances(Filters=tagged)["Reservations"]
    ]
    assert instance_id in listed
    lab.ec2.terminate_instances(InstanceIds=[instance_id])
    lab.ec2.terminate_instances(InstanceIds=[instance_id])
    ended = datetime.fromtimestamp(lab.world.now_s(), UTC)
    lab.clock.advance(10)
    instance = lab.instance(instance_id)
    assert instance["State"]["Name"] == "terminated"
    assert instance["StateTransitionReason"] == f"User initiated ({ended:%Y-%m-%d %H:%M:%S} GMT)"
    lab.clock.advance(3600)
    assert refused(lab.ec2.describe_instances, InstanceIds=[instance_id])[0] == "InvalidInstanceID.NotFound"


def test_an_interruption_is_told_with_its_time(lab: Lab) -> None:
    instance_id = lab.run()
    lab.clock.advance(10)
    lab.world.interrupt(instance_id)
    spot_id = lab.instance(instance_id)["SpotInstanceRequestId"]
    asked = {"SpotInstanceRequestIds": [spot_id]}
    (request,) = lab.ec2.describe_spot_instance_requests(**asked)["SpotInstanceRequests"]
    assert request["Status"]["Code"] == "marked-for-termination"
    lab.clock.advance(120)
    ended = datetime.fromtimestamp(lab.world.now_s(), UTC)
    lab.clock.advance(60)
    assert lab.instance(instance_id)["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    (request,) = lab.ec2.describe_spot_instance_requests(**asked)["SpotInstanceRequests"]
    assert (request["Status"]["Code"], request["Status"]["UpdateTime"]) == (
        "instance-terminated-no-capacity",
        ended,
    )


def test_refusals_are_worded_as_ec2_words_them(lab: Lab) -> None:
    lab.world.set_stock(SPOT, 0)
    assert refused(lab.ec2.run_instances, **RUN) == ("InsufficientInstanceCapacity", 500)
    lab.world.set_stock(SPOT, None)
    cheap = {"MarketType": "spot", "SpotOptions": {"MaxPrice": "1.0"}}
    assert (
        refused(lab.ec2.run_instances, **(RUN | {"InstanceMarketOptions": cheap}))[0] == "SpotMaxPriceTooLow"
    )
    elsewhere = {"InstanceType": "p5.48xlarge", "Placement": {"AvailabilityZone": "us-east-1b"}}
    assert refused(lab.ec2.run_instances, **(RUN | elsewhere))[0] == "Unsupported"
    assert refused(lab.ec2.run_instances, **(RUN | {"DryRun": True})) == ("DryRunOperation", 412)
    assert refused(lab.ec2.run_instances, **(RUN | {"UserData": "x" * 16385}))[0] == "InvalidParameterValue"
    assert refused(lab.ec2.describe_vpcs)[0] == "InvalidAction"


def test_a_lost_reply_leaves_an_instance_and_a_lost_request_none(lab: Lab) -> None:
    def count(token: str) -> int:
        asked = [{"Name": "client-token", "Values": [token]}]
        return len(lab.ec2.describe_instances(Filters=asked)["Reservations"])

    lab.fault(FaultKind.REPLY_LOST, "RunInstances")
    with pytest.raises((ConnectionError, HTTPClientError)):
        lab.run(ClientToken="bk-lost-0")
    assert count("bk-lost-0") == 1
    lab.run(ClientToken="bk-lost-0")
    assert count("bk-lost-0") == 1
    lab.fault(FaultKind.REQUEST_LOST, "RunInstances")
    with pytest.raises((ConnectionError, HTTPClientError)):
        lab.run(ClientToken="bk-lost-1")
    assert count("bk-lost-1") == 0


def test_faults_are_worded_by_service(lab: Lab) -> None:
    lab.fault(FaultKind.THROTTLE, "*")
    assert refused(lab.ec2.describe_instances) == ("RequestLimitExceeded", 503)
    lab.fault(FaultKind.EXPIRED, "*")
    assert refused(lab.pricing.get_products, ServiceCode="AmazonEC2") == ("ExpiredTokenException", 400)
    lab.fault(FaultKind.QUOTA, "RunInstances")
    assert refused(lab.ec2.run_instances, **RUN)[0] == "MaxSpotInstanceCountExceeded"


def test_signatures_are_checked(lab: Lab) -> None:
    assert lab.client("sts").get_caller_identity()["Account"] == "123456789012"
    assert refused(lab.client("ec2", key="AKIAOTHER").describe_instances) == ("AuthFailure", 401)
    assert refused(lab.client("ec2", secret="wrong").describe_instances) == ("AuthFailure", 401)
    assert refused(lab.client("sts", secret="wrong").get_caller_identity) == ("InvalidClientTokenId", 403)


def test_regions_are_apart(lab: Lab) -> None:
    instance_id = lab.run()
    west = lab.client("ec2", region="us-west-2")
    assert refused(west.terminate_instances, InstanceIds=[instance_id])[0] == "InvalidInstanceID.NotFound"
    zones = {z["ZoneId"] for z in west.describe_availability_zones()["AvailabilityZones"]}
    assert zones == {"usw2-az1", "usw2-az2"}
