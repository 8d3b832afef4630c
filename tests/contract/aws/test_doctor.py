"""What doctor says of EC2's prices."""

from typing import Any

import pytest

from broker.core.ports import Check
from lab.faults import FaultKind
from lab.world import World
from providers.registry import open_source
from tests.contract.conftest import INSTALLATION, Cloud

pytestmark = pytest.mark.process


def checks(provider: Any) -> dict[str, Check]:
    return {check.name: check for check in provider.check()}


def test_every_right_has_its_line_and_a_missing_one_is_named(aws: Cloud) -> None:
    fine = checks(aws.provider)
    assert not [check for check in fine.values() if check.ok is False]
    assert fine["aws: us-east-1: ec2:RunInstances"].detail.startswith("allowed: a dry run of g")
    for action in ("DescribeSpotPriceHistory", "DescribeInstanceTypes", "GetSpotPlacementScores"):
        aws.fault(FaultKind.DENIED, action)
        failed = {name: check.detail for name, check in checks(aws.provider).items() if check.ok is False}
        assert list(failed) == [f"aws: ec2:{action}"]
        assert "UnauthorizedOperation" in failed[f"aws: ec2:{action}"]
    for action, name in (("GetProducts", "pricing:GetProducts"), ("GetCallerIdentity", "credentials")):
        aws.fault(FaultKind.DENIED, action)
        assert [n for n, check in checks(aws.provider).items() if check.ok is False] == [f"aws: {name}"]


def test_doctor_asks_for_scores_only_while_they_are_used(aws: Cloud) -> None:
    assert "aws: ec2:GetSpotPlacementScores" not in checks(aws.opened_with(placement_scores=False))


def test_whether_we_may_launch_is_tried_and_nothing_is_launched(aws: Cloud, world: World) -> None:
    aws.fault(FaultKind.DENIED, "RunInstances", count=2)
    found = checks(aws.provider)
    for region in ("us-east-1", "us-west-2"):
        assert found[f"aws: {region}: ec2:RunInstances"].ok is False
    bad = checks(aws.opened_with(image_id="ami-nonsense"))
    assert "InvalidAMIID" in bad["aws: us-east-1: ec2:RunInstances"].detail
    none = checks(aws.opened_with(instance_types=["p6*"]))["aws: us-east-1: ec2:RunInstances"]
    assert (none.ok, "instance_types" in none.detail) == (False, True)
    assert world.machines() == []


def test_quotas_are_told_by_their_names_and_none_at_all_fails(aws: Cloud, world: World) -> None:
    provider = aws.opened_with(regions=["us-east-1"])
    line = checks(provider)["aws: us-east-1: quota of g types"]
    assert line.ok
    assert "All G and VT Spot Instance Requests: 768" in line.detail
    assert "unconfirmed" in line.detail
    aws.fault(FaultKind.QUOTA, "GetServiceQuota", count=None)
    found = checks(provider)
    assert {found[f"aws: us-east-1: quota of {letter} types"].ok for letter in "gp"} == {False}
    assert "instance_types" in found["aws: us-east-1: quota of g types"].detail
    world.faults.clear()
    aws.fault(FaultKind.DENIED, "GetServiceQuota", count=None)
    assert checks(provider)["aws: us-east-1: quota of g types"].ok is None


def test_a_quota_code_that_the_account_does_not_know_has_a_line_of_its_own(aws: Cloud) -> None:
    found = checks(aws.opened_with(regions=["us-east-1"]))
    assert found["aws: us-east-1: quota of p types"].ok
    assert "L-C4BD4855" not in found["aws: us-east-1: quota of p types"].detail
    assert found["aws: us-east-1: quotas that were not read"] == Check(
        "aws: us-east-1: quotas that were not read",
        None,
        "L-C4BD4855 of p types: no such quota code known to the account: unconfirmed",
    )
    assert "aws: us-east-1: quotas that were not read" not in checks(
        aws.opened_with(regions=["us-east-1"], instance_types=["g6.*"])
    )


def test_a_quota_that_is_not_told_now_is_not_taken_for_none(aws: Cloud) -> None:
    aws.fault(FaultKind.HTTP_500, "GetServiceQuota", count=None)
    found = checks(aws.opened_with(regions=["us-east-1"], instance_types=["g6.*"]))
    assert found["aws: us-east-1: quota of g types"].ok is None
    assert "L-DB2E81BA of g types" in found["aws: us-east-1: quotas that were not read"].detail


def test_doctor_stays_calm_when_a_reply_has_another_shape(aws: Cloud) -> None:
    aws.fault(FaultKind.WRONG_SHAPE, "*", count=None)
    assert "aws: us-east-1: ec2:RunInstances" in checks(aws.provider)


def test_doctor_stays_calm_when_nothing_answers(aws: Cloud) -> None:
    aws.fault(FaultKind.DOWN, "*", count=None)
    found = checks(aws.provider)
    assert {check.ok for name, check in found.items() if not name.endswith("image")} == {False}


def test_without_an_image_prices_are_the_same_and_no_right_to_machines_is_needed(
    aws: Cloud, world: World
) -> None:
    options = {key: value for key, value in aws.options.items() if key != "image_id"}
    source = open_source("aws", options, aws.clock, INSTALLATION)
    for action in ("DescribeInstances", "DescribeSpotInstanceRequests", "RunInstances", "GetServiceQuota"):
        aws.fault(FaultKind.DENIED, action, count=None)
    assert {quote.offer.key for quote in source.quotes()} == {
        quote.offer.key for quote in aws.provider.quotes()
    }
    found = checks(source)
    assert found["aws: launches"] == Check("aws: launches", None, "prices only: no image_id is set")
    assert sorted(name for name, check in found.items() if check.ok is not True) == ["aws: launches"]
    assert "aws: ec2:DescribeSpotPriceHistory" in found
    assert not [name for name in found if "Instances" in name or "image" in name or "quota" in name]
