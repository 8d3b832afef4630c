"""What only EC2's prices do: changes between two polls, ninety days of them, and rows that are not what they seem."""

import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import pytest

from broker.core.availability import Signal, Unanswered
from broker.core.errors import Denied, ProviderDown, ProviderError, Throttled
from broker.core.money import micro_usd
from broker.core.offer import Market
from broker.core.ports import Check
from broker.core.time import DAY_S, from_iso
from lab.faces import Reply, Request
from lab.faults import Fault, FaultKind
from lab.world import World
from tests.contract.conftest import Cloud, Opened

pytestmark = pytest.mark.process

SPOT = "aws/use1-az6/p5.4xlarge/spot"


@pytest.fixture
def aws(aws_cloud: Cloud) -> Cloud:
    """With a provider that has never polled."""
    aws_cloud.provider = aws_cloud.opened_with()
    return aws_cloud


def told(quotes: Any, key: str = SPOT) -> list[tuple[int, int | None]]:
    """Prices of one pool with their dates, as they came."""
    return [(micro_usd(q.price_text), q.effective_at_ms) for q in quotes if q.offer.key == key]


def test_the_first_poll_tells_the_price_now_and_nothing_else(aws: Cloud) -> None:
    keys = [quote.offer.key for quote in aws.provider.quotes()]
    assert len(keys) == len(set(keys))


def test_two_changes_between_two_polls_are_both_told_oldest_first(aws: Cloud, world: World) -> None:
    aws.clock.advance(4000)
    aws.provider.quotes()
    dates = []
    for price in (3_000_001, 2_900_002):
        dates.append(aws.clock.advance(200) // 1000 * 1000)
        world.set_price(SPOT, price)
    aws.clock.advance(200)
    changes = told(aws.provider.quotes())
    assert changes[-2:] == [(3_000_001, dates[0]), (2_900_002, dates[1])]
    assert changes == sorted(changes, key=lambda change: change[1] or 0)


def test_a_change_that_is_published_late_is_looked_for_an_hour_back(
    aws_opened: Opened, aws: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def noting(request: Request) -> Reply:
        form = dict(parse_qsl(request.body.decode()))
        asked.extend([form["StartTime"]] if form.get("Action") == "DescribeSpotPriceHistory" else [])
        return face(request)

    face = instead_of(aws_opened, noting, monkeypatch)
    first_ms = aws.clock.now_ms()
    aws.provider.quotes()
    assert {from_iso(start) for start in asked} == {first_ms}
    asked.clear()
    aws.clock.advance(300)
    aws.provider.quotes()
    assert {from_iso(start) for start in asked} == {first_ms - 3_600_000}


def test_a_poll_that_failed_is_made_good_by_the_next(aws: Cloud, world: World) -> None:
    """The feed stops for longer than the overlap; what changed meanwhile is not lost."""
    aws.provider.quotes()
    aws.clock.advance(5000)
    world.set_price(SPOT, 3_000_001)
    aws.fault(FaultKind.DOWN, "DescribeSpotPriceHistory", count=None)
    for _ in range(3):
        aws.clock.advance(5000)
        with pytest.raises(ProviderDown):
            aws.provider.quotes()
    world.set_price(SPOT, 2_900_002)
    world.faults.clear()
    aws.clock.advance(60)
    assert [price for price, _ in told(aws.provider.quotes())][-2:] == [3_000_001, 2_900_002]


def test_prices_that_were_read_before_a_price_list_failed_are_told_again(aws: Cloud, world: World) -> None:
    aws.provider.quotes()
    aws.clock.advance(5000)
    world.set_price(SPOT, 3_000_001)
    aws.clock.advance(60)
    world.set_price(SPOT, 2_900_002)
    aws.fault(FaultKind.HTTP_500, "GetProducts")
    with pytest.raises(ProviderDown):
        aws.provider.quotes()
    aws.clock.advance(5000)
    assert 3_000_001 in [price for price, _ in told(aws.provider.quotes())]


@pytest.mark.parametrize("region", ["us-east-1", "us-west-2"])
def test_one_region_that_fails_fails_the_poll(
    aws_opened: Opened, aws: Cloud, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(asked: Request) -> Reply:
        here = f"/{region}/ec2/" in asked.headers.get("authorization", "")
        return Reply(503, b"") if here and b"SpotPriceHistory" in asked.body else face(asked)

    face = instead_of(aws_opened, refusing, monkeypatch)
    with pytest.raises(ProviderError, match=region):
        aws.provider.quotes()


def test_regions_are_read_side_by_side(
    aws_opened: Opened, aws: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=20)

    def waiting(asked: Request) -> Reply:
        if b"SpotPriceHistory" in asked.body:
            both.wait()  # broken, and the poll with it, when one region waits for the other
        return face(asked)

    face = instead_of(aws_opened, waiting, monkeypatch)
    assert {quote.offer.region for quote in aws.provider.quotes()} == {"us-east-1", "us-west-2"}


@pytest.mark.timeout(60)
def test_four_thousand_series_in_pages_are_one_poll(
    aws_opened: Opened, aws: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = [series(range(number * 1000, number * 1000 + 1000)) for number in range(4)]

    def many(asked: Request) -> Reply:
        if b"SpotPriceHistory" not in asked.body:
            return face(asked)
        page = int(dict(parse_qsl(asked.body.decode())).get("NextToken", "0"))
        token = str(page + 1) if page < 3 else ""
        return Reply(200, SPOT_XML.format(rows=pages[page], token=token).encode())

    face = instead_of(aws_opened, many, monkeypatch)
    provider = aws.opened_with(regions=["us-east-1"])
    spot = [quote for quote in provider.quotes() if quote.offer.market is Market.SPOT]
    assert len({quote.offer.key for quote in spot}) == len(spot) == 4000


SPOT_XML = (
    "<DescribeSpotPriceHistoryResponse xmlns='http://ec2.amazonaws.com/doc/2016-11-15/'>"
    "<spotPriceHistorySet>{rows}</spotPriceHistorySet><nextToken>{token}</nextToken>"
    "</DescribeSpotPriceHistoryResponse>"
)


def series(zones: range) -> str:
    """Rows of one type in many zones."""
    return "".join(
        f"<item><availabilityZone>z{zone}</availabilityZone><availabilityZoneId>use1-az{zone}</availabilityZoneId>"
        "<instanceType>g6.xlarge</instanceType><productDescription>Linux/UNIX</productDescription>"
        f"<spotPrice>0.{zone + 1:05}</spotPrice><timestamp>2026-01-01T00:00:00.000Z</timestamp></item>"
        for zone in zones
    )


def test_history_is_every_change_once_oldest_first(aws: Cloud, world: World) -> None:
    for hours in range(5):
        aws.clock.advance(30 * 3600)
        world.set_price(SPOT, 3_000_000 + hours)
    aws.clock.advance(60)
    changes = list(aws.provider.price_history(aws.clock.now_ms() - 30 * DAY_S * 1000))
    dates = [quote.effective_at_ms or 0 for quote in changes]
    assert dates == sorted(dates)
    truth = [(change.price_micro_usd_h, change.at_s * 1000) for change in world.pools[SPOT].changes]
    assert told(changes) == truth
    assert {quote.offer.market for quote in changes} == {"spot"}
    assert {quote.offer.region for quote in changes} == {"us-east-1", "us-west-2"}


def test_history_is_asked_a_few_days_at_a_time_and_begins_with_the_price_then(
    aws_opened: Opened, aws: Cloud, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.clock.advance(10 * DAY_S)
    asked: list[bytes] = []

    def counting(request: Request) -> Reply:
        asked.extend([request.body] if b"SpotPriceHistory" in request.body else [])
        return face(request)

    face = instead_of(aws_opened, counting, monkeypatch)
    changes = iter(aws.provider.price_history(aws.clock.now_ms() - 7 * DAY_S * 1000))
    first = next(changes)
    early = len(asked)
    rest = [first, *changes]
    assert early * 2 < len(asked)
    assert told(rest)[-1][0] == world.price(SPOT)


def test_history_that_breaks_off_is_an_error(aws: Cloud) -> None:
    aws.fault(FaultKind.PARTIAL_PAGE, "DescribeSpotPriceHistory")
    with pytest.raises(ProviderDown):
        list(aws.provider.price_history(aws.clock.now_ms() - DAY_S * 1000))


def test_capacity_blocks_are_a_market_of_their_own_and_never_quoted(aws: Cloud, world: World) -> None:
    """The price list has a row of capacity blocks for every type, at zero dollars."""
    quotes = list(aws.provider.quotes())
    assert {quote.offer.market for quote in quotes} == {Market.SPOT, Market.ON_DEMAND}
    assert not [quote for quote in quotes if micro_usd(quote.price_text) == 0]
    key = "aws/use1-az6/p5.48xlarge/on_demand"
    assert told(quotes, key) == [(world.price(key), world.pools[key].changes[0].at_s * 1000)]


def test_a_fraction_of_a_gpu_is_never_quoted(aws: Cloud) -> None:
    provider = aws.opened_with(instance_types=["g6*", "p5*"])
    kinds = {quote.offer.instance_type for quote in provider.quotes()}
    assert kinds == {"g6.xlarge", "g6.2xlarge", "g6.4xlarge", "p5.4xlarge", "p5.48xlarge"}


# How likely a spot request is to succeed


SCORES = "GetSpotPlacementScores"
HOUR_S = 3600


def scores(aws: Cloud) -> dict[str, tuple[float, int]]:
    """Score and date by offer."""
    hints = list(aws.provider.availability())
    assert {hint.signal for hint in hints} <= {Signal.PLACEMENT_SCORE}
    assert len({hint.offer_key for hint in hints}) == len(hints)
    return {hint.offer_key: (hint.low, hint.observed_at_ms) for hint in hints}


def test_zones_are_scored_by_what_the_world_has(aws: Cloud, world: World) -> None:
    for kind in ("g6.xlarge", "g6.2xlarge", "g6.4xlarge"):
        world.set_stock(f"aws/use1-az6/{kind}/spot", 0)
    found = {key: score for key, (score, _) in scores(aws).items()}
    assert found == {
        "aws/use1-az6/g6.xlarge/spot": 1,
        "aws/use1-az6/g6.2xlarge/spot": 1,
        "aws/use1-az6/g6.4xlarge/spot": 1,
        "aws/use1-az1/g6.xlarge/spot": 9,
        "aws/use1-az1/g6.2xlarge/spot": 9,
        "aws/use1-az2/g6.xlarge/spot": 9,
        "aws/use1-az2/g6.2xlarge/spot": 9,
        "aws/use1-az2/g6.4xlarge/spot": 9,
    }


def test_scores_are_asked_every_six_hours_and_told_with_their_date(aws: Cloud, world: World) -> None:
    first = scores(aws)
    asked_ms = aws.clock.now_ms()
    world.set_stock("aws/use1-az1/g6.xlarge/spot", 0)
    world.set_stock("aws/use1-az1/g6.2xlarge/spot", 0)
    aws.clock.advance(6 * HOUR_S - 1)
    assert scores(aws) == first
    assert {date for _, date in first.values()} == {asked_ms}
    later_ms = aws.clock.advance(1)
    assert scores(aws)["aws/use1-az1/g6.xlarge/spot"] == (1, later_ms)


def test_scores_that_may_not_be_asked_anew_keep_their_date(aws: Cloud) -> None:
    first = scores(aws)
    aws.clock.advance(25 * HOUR_S)  # what was asked a day ago is a new request again
    aws.fault(FaultKind.QUOTA, SCORES, count=None)
    assert scores(aws) == first


def test_no_scores_at_all_while_no_request_may_be_made(aws: Cloud) -> None:
    aws.fault(FaultKind.QUOTA, SCORES)
    assert scores(aws) == {}


def test_only_real_throttling_is_throttling_and_the_next_poll_asks_again(aws: Cloud) -> None:
    aws.fault(FaultKind.THROTTLE, SCORES)
    with pytest.raises(Throttled):
        aws.provider.availability()
    assert scores(aws)


def test_that_scores_may_not_be_asked_is_told_once_in_six_hours(aws: Cloud, world: World) -> None:
    aws.fault(FaultKind.DENIED, SCORES, count=None)
    with pytest.raises(Denied):
        aws.provider.availability()
    assert scores(aws) == {}
    aws.clock.advance(6 * HOUR_S)
    with pytest.raises(Denied):
        aws.provider.availability()
    world.faults.clear()
    aws.clock.advance(6 * HOUR_S)
    assert scores(aws)


def test_scores_of_before_are_told_beside_the_call_that_failed(aws: Cloud) -> None:
    before = list(aws.provider.availability())
    aws.clock.advance(6 * HOUR_S)
    aws.fault(FaultKind.DOWN, SCORES)
    *again, failed = aws.provider.availability()
    assert again == before
    assert isinstance(failed, Unanswered)
    assert "us-east-1" in failed.error
    assert {hint.observed_at_ms for hint in aws.provider.availability()} == {aws.clock.now_ms()}


def test_scores_can_be_switched_off(aws: Cloud) -> None:
    aws.fault(FaultKind.DENIED, SCORES)
    assert list(aws.opened_with(placement_scores=False).availability()) == []


# What doctor says


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


# What goes wrong on the way


@pytest.mark.parametrize("action", ["DescribeSpotPriceHistory", "GetProducts", "DescribeInstanceTypes"])
def test_a_reply_of_another_shape_fails_the_poll(aws: Cloud, action: str) -> None:
    aws.fault(FaultKind.WRONG_SHAPE, action)
    with pytest.raises(ProviderDown):
        aws.provider.quotes()


def test_throttling_says_when_to_come_back(aws: Cloud, world: World) -> None:
    world.faults.add(Fault("aws", "DescribeSpotPriceHistory", FaultKind.THROTTLE, seconds=7))
    with pytest.raises(Throttled) as caught:
        aws.provider.quotes()
    assert caught.value.retry_after_s == 7


def test_credentials_that_have_expired_stop_the_poll(aws: Cloud) -> None:
    aws.fault(FaultKind.EXPIRED, "GetProducts")
    with pytest.raises(Denied):
        aws.provider.quotes()


def instead_of(
    opened: Opened, handler: Callable[[Request], Reply], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Request], Reply]:
    """Put a handler before the face; returns the face."""
    face = opened.face.handler
    assert face is not None
    monkeypatch.setattr(opened.face, "handler", handler)
    return face
