"""What only EC2's prices do: changes between two polls, ninety days of them, and rows that are not what they seem."""

import threading
from typing import Any
from urllib.parse import parse_qsl

import pytest

from broker.core.errors import Denied, ProviderDown, ProviderError, Throttled
from broker.core.money import micro_usd
from broker.core.offer import Market
from broker.core.time import DAY_S, from_iso
from lab.faces import Reply, Request
from lab.faults import Fault, FaultKind
from lab.world import World
from tests.contract.aws.conftest import SPOT, instead_of
from tests.contract.aws.many_series import many_series, prices_micro_usd_h
from tests.contract.conftest import Cloud, Opened

pytestmark = pytest.mark.process


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
    face = aws_opened.face.handler
    assert face is not None
    monkeypatch.setattr(aws_opened.face, "handler", many_series(face))
    provider = aws.opened_with(regions=["us-east-1"])
    spot = [quote for quote in provider.quotes() if quote.offer.market is Market.SPOT]
    assert len(spot) == 4000
    assert {q.offer.key: micro_usd(q.price_text) for q in spot} == prices_micro_usd_h()


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


def test_a_region_that_sells_and_prices_nothing_is_a_failed_poll_and_no_news(
    aws: Cloud, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert aws.provider.quotes()
    monkeypatch.setattr(world, "pools", {})
    with pytest.raises(ProviderDown, match=r"us-east-1 sells .* and has no price of any"):
        aws.provider.quotes()
