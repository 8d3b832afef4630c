"""A spot price of Google has two sources: the advisor, and the sum of its parts in the price list."""

from collections.abc import Callable

import pytest

from broker.core.errors import Denied, ProviderDown, Throttled
from broker.core.money import micro_usd
from broker.core.offer import Market
from broker.core.time import DAY_S, HOUR_S, MINUTE_S
from lab.faces import Reply, Request
from lab.faces import gcp as face
from lab.faults import Fault, FaultKind
from lab.tls import ServiceAccount
from lab.world import World
from tests.contract.conftest import PROJECT, Cloud, Opened
from tests.contract.gcp.conftest import (
    ADVISED,
    CAPACITY,
    HISTORY,
    L4,
    LISTED,
    SPOT,
    Calls,
    checks,
    refusing,
    spot_sources,
)

pytestmark = pytest.mark.process


def test_spot_is_the_advisors_price_and_equal_to_the_sum_of_the_parts(gcp: Cloud, world: World) -> None:
    world.set_price(SPOT, 2_950_001)
    advised = {q.offer.key: q for q in gcp.provider.quotes()}
    listed = {q.offer.key: q for q in gcp.opened_with(capacity_advice=False).quotes()}
    assert advised.keys() == listed.keys()
    for key, quote in advised.items():
        assert micro_usd(quote.price_text) == micro_usd(listed[key].price_text) == world.price(key)
        assert quote.effective_at_ms == listed[key].effective_at_ms
        assert quote.source == (ADVISED if quote.offer.market is Market.SPOT else LISTED)
        assert listed[key].source == LISTED


def test_three_thousand_skus_are_read_for_the_same_prices(
    gcp_opened: Opened, gcp: Cloud, world: World, account: ServiceAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {q.offer.key: q.price_text for q in gcp.provider.quotes()}
    large = face.create(world, PROJECT, account.email, account.public_key_pem, filler=3_000)
    monkeypatch.setattr(gcp_opened.face, "handler", large)
    assert {q.offer.key: q.price_text for q in gcp.opened_with().quotes()} == few


def test_what_google_starts_only_as_spot_is_not_quoted_on_demand_though_its_parts_are_priced(
    gcp: Cloud, world: World
) -> None:
    quoted = {quote.offer.key for quote in gcp.provider.quotes()}
    assert {SPOT, L4, L4.replace("spot", "on_demand")} <= quoted
    assert SPOT.replace("spot", "on_demand") in world.pools
    assert not [key for key in quoted if "/a3-highgpu-1g/on_demand" in key]


def test_a_machine_is_asked_about_once_a_region_and_again_when_its_listed_price_moves(
    gcp: Cloud, world: World, watch: Callable[..., Calls]
) -> None:
    calls = watch(HISTORY)
    gcp.provider.quotes()
    assert len(calls.bodies) == 5  # three types in one region, two in the other
    assert {tuple(body["types"]) for body in calls.bodies} == {("PRICE",)}
    gcp.clock.advance(30 * MINUTE_S)
    gcp.provider.quotes()
    assert len(calls.bodies) == 5
    world.set_price(SPOT, 2_800_000)
    (changed,) = {q.price_text for q in gcp.provider.quotes() if q.offer.key == SPOT}
    assert micro_usd(changed) == 2_800_000
    assert [body["instanceProperties"]["machineType"] for body in calls.bodies[5:]] == ["a3-highgpu-1g"]
    gcp.clock.advance(HOUR_S)
    gcp.provider.quotes()
    assert len(calls.bodies) == 11


@pytest.mark.parametrize("status", [403, 501])
def test_a_project_that_may_not_ask_has_the_price_list_and_is_not_asked_for_a_day(
    gcp: Cloud, watch: Callable[..., Calls], status: int
) -> None:
    calls = watch(HISTORY, refusing(status))
    assert set(spot_sources(gcp).values()) == {LISTED}
    assert len(calls.bodies) == 1
    gcp.clock.advance(DAY_S - 1)
    gcp.provider.quotes()
    assert len(calls.bodies) == 1
    gcp.clock.advance(1)
    gcp.provider.quotes()
    assert len(calls.bodies) == 2


@pytest.mark.parametrize("status", [400, 404])
def test_a_machine_type_that_the_advisor_does_not_know_has_the_price_list(
    gcp: Cloud, watch: Callable[..., Calls], status: int
) -> None:
    def instead(request: Request) -> Reply | None:
        unknown = request.json()["instanceProperties"]["machineType"] == "g2-standard-4"
        return refusing(status)(request) if unknown else None

    calls = watch(HISTORY, instead)
    found = spot_sources(gcp)
    assert (found[SPOT], found[L4]) == (ADVISED, LISTED)
    asked = len(calls.bodies)
    gcp.clock.advance(2 * HOUR_S)
    gcp.provider.quotes()
    assert len(calls.bodies) == asked + 3  # the others


@pytest.mark.parametrize(
    "kind", [FaultKind.DOWN, FaultKind.HTTP_500, FaultKind.THROTTLE, FaultKind.WRONG_SHAPE]
)
def test_an_advisor_that_fails_is_asked_once_and_costs_only_its_dates(
    gcp_opened: Opened, gcp: Cloud, world: World, watch: Callable[..., Calls], kind: FaultKind
) -> None:
    gcp.fault(kind, HISTORY, count=None)
    calls = watch(HISTORY)
    assert set(spot_sources(gcp).values()) == {LISTED}
    assert len(calls.bodies) == 1
    world.faults.clear()
    assert "at the last poll" in checks(gcp.provider)["gcp: compute.advice.capacityHistory"].detail
    assert set(spot_sources(gcp).values()) == {ADVISED}
    assert checks(gcp.provider)["gcp: compute.advice.capacityHistory"].detail == "allowed"
    gcp_opened.face.problems.clear()  # of the shape that was wrong on purpose


def test_an_advised_price_outlives_a_failing_advisor_until_the_price_list_moves(
    gcp: Cloud, world: World
) -> None:
    gcp.provider.quotes()
    gcp.fault(FaultKind.DOWN, HISTORY, count=None)
    gcp.clock.advance(2 * HOUR_S)
    assert set(spot_sources(gcp).values()) == {ADVISED}
    world.set_price(SPOT, 2_700_000)
    quotes = {quote.offer.key: quote for quote in gcp.provider.quotes()}
    assert (quotes[SPOT].source, micro_usd(quotes[SPOT].price_text)) == (LISTED, 2_700_000)
    assert quotes[L4].source == ADVISED


def test_a_price_that_would_be_that_of_a_host_without_its_gpu_is_not_believed(
    gcp: Cloud, watch: Callable[..., Calls]
) -> None:
    def host_only(request: Request) -> Reply:
        interval = {"startTime": "2026-01-01T08:00:00Z"}
        record = {"interval": interval, "listPrice": {"currencyCode": "USD", "nanos": 130_000_000}}
        kind = request.json()["instanceProperties"]["machineType"]
        return Reply.of_json({"machineType": kind, "priceHistory": [record]})

    watch(HISTORY, host_only)
    found = {q.offer.key: q for q in gcp.provider.quotes() if q.offer.market is Market.SPOT}
    assert {quote.source for quote in found.values()} == {LISTED}
    assert micro_usd(found[SPOT].price_text) > 2_000_000


def test_another_currency_of_the_advisor_is_told(gcp: Cloud) -> None:
    gcp.fault(FaultKind.WRONG_CURRENCY, HISTORY, count=None)
    found = {quote.offer.key: quote.currency for quote in gcp.provider.quotes()}
    assert found[SPOT] == "EUR"
    assert found[L4.replace("spot", "on_demand")] == "USD"


def test_no_advice_is_asked_for_when_it_is_switched_off(gcp: Cloud) -> None:
    gcp.fault(FaultKind.EXPIRED, HISTORY)
    gcp.fault(FaultKind.EXPIRED, CAPACITY)
    provider = gcp.opened_with(capacity_advice=False)
    assert list(provider.quotes())
    assert list(provider.price_history(0)) == []
    assert list(provider.availability()) == []
    assert {check.name: check.ok for check in provider.check()}["gcp: compute.advice"] is None


def test_credentials_that_expire_on_the_way_stop_the_poll(gcp: Cloud) -> None:
    gcp.fault(FaultKind.EXPIRED, HISTORY, count=None)  # the first one only fetches another token
    with pytest.raises(Denied):
        gcp.provider.quotes()


def test_history_is_every_change_in_every_zone_oldest_first(gcp: Cloud, world: World) -> None:
    for step in range(4):
        gcp.clock.advance(2 * DAY_S)
        world.set_price(SPOT, 2_900_000 + step)
    gcp.clock.advance(60)
    changes = list(gcp.provider.price_history(0))
    dates = [quote.effective_at_ms or 0 for quote in changes]
    assert dates == sorted(dates)
    for key in (SPOT, SPOT.replace("-a/", "-b/")):
        told = [(micro_usd(q.price_text), q.effective_at_ms) for q in changes if q.offer.key == key]
        truth = [(change.price_micro_usd_h, change.at_s * 1000) for change in world.pools[key].changes]
        assert told == truth
    assert {(quote.offer.market, quote.source) for quote in changes} == {(Market.SPOT, ADVISED)}


def test_history_begins_with_the_price_of_that_moment(gcp: Cloud, world: World) -> None:
    gcp.clock.advance(HOUR_S)
    world.set_price(SPOT, 2_900_001)
    gcp.clock.advance(HOUR_S)

    def since(seconds: int) -> list[int]:
        found = gcp.provider.price_history(gcp.clock.now_ms() - seconds * 1000)
        return [micro_usd(quote.price_text) for quote in found if quote.offer.key == SPOT]

    assert since(HOUR_S // 2) == [2_900_001]
    assert since(HOUR_S + 60) == [world.pools[SPOT].changes[0].price_micro_usd_h, 2_900_001]


def test_history_that_may_not_be_read_is_empty_and_one_that_fails_is_an_error(
    gcp: Cloud, watch: Callable[..., Calls]
) -> None:
    gcp.fault(FaultKind.HTTP_500, HISTORY)
    with pytest.raises(ProviderDown):
        list(gcp.provider.price_history(0))
    watch(HISTORY, refusing(403))
    assert list(gcp.provider.price_history(0)) == []


def test_the_price_list_still_fails_a_poll_and_says_when_to_come_back(
    gcp_opened: Opened, gcp: Cloud, world: World, watch: Callable[..., Calls]
) -> None:
    world.faults.add(Fault("gcp", "skus.list", FaultKind.THROTTLE, seconds=9))
    with pytest.raises(Throttled) as caught:
        gcp.provider.quotes()
    assert caught.value.retry_after_s == 9
    gcp.fault(FaultKind.WRONG_SHAPE, "skus.list")
    with pytest.raises(ProviderDown):
        gcp.provider.quotes()
    gcp_opened.face.problems.clear()
    watch("skus", lambda _: Reply.of_json({}))
    with pytest.raises(ProviderDown, match="no part"):
        gcp.provider.quotes()
