"""What only Google's prices do: a spot price from two sources, and advice that not every project may ask for."""

from collections.abc import Callable
from typing import Any

import pytest

from broker.core.availability import Signal, Unanswered
from broker.core.errors import Denied, ProviderDown, Throttled
from broker.core.money import micro_usd
from broker.core.offer import Market
from broker.core.ports import Check
from broker.core.time import DAY_S, HOUR_S, MINUTE_S
from lab.faces import Reply, Request
from lab.faults import Fault, FaultKind
from lab.world import World
from tests.contract.conftest import Cloud, Opened

pytestmark = pytest.mark.process

SPOT = "gcp/us-central1-a/a3-highgpu-1g/spot"
L4 = "gcp/us-central1-a/g2-standard-4/spot"
HISTORY, CAPACITY = "advice.capacityHistory", "advice.capacity"
ADVISED, LISTED = "gcp:capacity_history", "gcp:skus"


@pytest.fixture
def gcp(gcp_cloud: Cloud) -> Cloud:
    """With a provider that has never polled."""
    gcp_cloud.provider = gcp_cloud.opened_with()
    return gcp_cloud


class Calls:
    """Requests to a method on their way to the face; `instead` may answer them."""

    def __init__(self, opened: Opened, method: str, instead: Callable[[Request], Reply | None]) -> None:
        face = opened.face.handler
        assert face is not None
        self._face, self._method, self._instead = face, method.replace(".", "/"), instead
        self.bodies: list[Any] = []

    def __call__(self, request: Request) -> Reply:
        if request.path.endswith(self._method):
            self.bodies.append(request.json())
            if (reply := self._instead(request)) is not None:
                return reply
        return self._face(request)


@pytest.fixture
def watch(gcp_opened: Opened, gcp: Cloud, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Calls]:
    def watch(method: str, instead: Callable[[Request], Reply | None] = lambda _: None) -> Calls:
        calls = Calls(gcp_opened, method, instead)
        monkeypatch.setattr(gcp_opened.face, "handler", calls)
        return calls

    return watch


def spot_sources(gcp: Cloud) -> dict[str, str]:
    return {
        quote.offer.key: quote.source for quote in gcp.provider.quotes() if quote.offer.market is Market.SPOT
    }


def refusing(status: int) -> Callable[[Request], Reply]:
    error = {"code": status, "message": "no", "errors": [{"reason": "forbidden", "message": "no"}]}
    return lambda _: Reply.of_json({"error": error}, status)


# Spot prices


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


# Obtaining and keeping


def hints(gcp: Cloud, signal: Signal) -> dict[str, tuple[float, int]]:
    """Value and date by offer."""
    found = list(gcp.provider.availability())
    assert len({(hint.offer_key, hint.signal) for hint in found}) == len(found)
    assert all(hint.low == hint.high for hint in found)
    return {hint.offer_key: (hint.low, hint.observed_at_ms) for hint in found if hint.signal is signal}


def test_zones_are_told_apart_by_what_the_world_has(gcp: Cloud, world: World) -> None:
    world.set_stock(SPOT, 0)
    world.set_stock(L4, 2)
    obtained = {key: value for key, (value, _) in hints(gcp, Signal.OBTAINABILITY).items()}
    assert (obtained[SPOT], obtained[L4]) == (0.1, 0.5)
    assert {value for key, value in obtained.items() if key not in (SPOT, L4)} == {0.9}
    assert obtained.keys() == {key for key in world.pools if key.startswith("gcp/") and key.endswith("/spot")}
    rates = {key: value for key, (value, _) in hints(gcp, Signal.PREEMPTION_RATE).items()}
    assert rates.keys() == obtained.keys()
    assert all(0 <= rate <= 1 for rate in rates.values())
    assert rates[SPOT] > rates[SPOT.replace("-a/", "-b/")]


def test_the_rate_of_preemption_is_that_of_the_newest_whole_day(
    gcp: Cloud, watch: Callable[..., Calls]
) -> None:
    def instead(request: Request) -> Reply | None:
        days = [("2026-05-25", 0.2), ("2026-05-27", 0.4), ("2026-05-26", 0.3)]
        running = {"startTime": "2026-05-28T07:00:00Z", "endTime": "2099-05-29T07:00:00Z"}
        rows: list[Any] = [{"interval": running, "preemptionRate": 0.9}]
        for day, rate in days:
            interval = {"startTime": f"{day}T07:00:00Z", "endTime": f"{day}T08:00:00Z"}
            rows.append({"interval": interval, "preemptionRate": rate})
        return Reply.of_json({"preemptionHistory": rows})

    watch(HISTORY, instead)
    assert {value for value, _ in hints(gcp, Signal.PREEMPTION_RATE).values()} == {0.4}


def test_hints_are_asked_at_their_own_intervals_and_told_with_their_date(
    gcp: Cloud, watch: Callable[..., Calls]
) -> None:
    first = hints(gcp, Signal.OBTAINABILITY)
    asked_ms = gcp.clock.now_ms()
    assert {date for _, date in first.values()} == {asked_ms}
    rates, advice = watch(HISTORY), None
    gcp.clock.advance(30 * MINUTE_S - 1)
    assert hints(gcp, Signal.OBTAINABILITY) == first
    later_ms = gcp.clock.advance(1)
    advice = hints(gcp, Signal.OBTAINABILITY)
    assert {date for _, date in advice.values()} == {later_ms}
    assert rates.bodies == []
    gcp.clock.advance(12 * HOUR_S)
    hints(gcp, Signal.PREEMPTION_RATE)
    assert len(rates.bodies) == len(first)
    assert {body["locationPolicy"]["location"] for body in rates.bodies} == {
        "zones/us-central1-a",
        "zones/us-central1-b",
        "zones/us-east4-a",
    }


def test_one_failing_hint_does_not_keep_the_others_from_being_asked(
    gcp: Cloud, world: World, watch: Callable[..., Calls]
) -> None:
    def instead(request: Request) -> Reply | None:
        broken = b"a3-highgpu-1g" in request.body and b"us-central1-a" in request.body
        return refusing(503)(request) if broken else None

    watch(CAPACITY, instead)
    *first, failed = gcp.provider.availability()
    assert isinstance(failed, Unanswered)
    assert "us-central1-a a3-highgpu-1g" in failed.error
    found = hints(gcp, Signal.OBTAINABILITY)
    assert found.keys() == {hint.offer_key for hint in first if hint.signal is Signal.OBTAINABILITY}
    assert SPOT not in found
    assert len(found) == sum(key.startswith("gcp/") and key.endswith("/spot") for key in world.pools) - 1


def test_an_advisor_that_is_down_is_not_waited_for_again_and_again(
    gcp: Cloud, watch: Callable[..., Calls]
) -> None:
    calls = watch(CAPACITY, refusing(503))
    answers = list(gcp.provider.availability())
    assert len(calls.bodies) == 3
    assert len([answer for answer in answers if isinstance(answer, Unanswered)]) == 3


def test_credentials_that_expired_end_the_asking_and_what_was_said_is_told_again(gcp: Cloud) -> None:
    said = list(gcp.provider.availability())
    gcp.clock.advance(HOUR_S)
    gcp.fault(FaultKind.EXPIRED, CAPACITY, count=None)
    *again, failed = gcp.provider.availability()
    assert again == said
    assert isinstance(failed, Unanswered)


def test_obtainability_that_may_not_be_asked_leaves_the_rates(
    gcp: Cloud, watch: Callable[..., Calls]
) -> None:
    calls = watch(CAPACITY, refusing(403))
    assert {hint.signal for hint in gcp.provider.availability()} == {Signal.PREEMPTION_RATE}
    gcp.clock.advance(HOUR_S)
    gcp.provider.availability()
    assert len(calls.bodies) == 1


# What doctor says


def checks(provider: Any) -> dict[str, Check]:
    return {check.name: check for check in provider.check()}


def test_every_right_has_its_line(gcp: Cloud) -> None:
    found = checks(gcp.provider)
    assert {name: check.ok for name, check in found.items()} == {
        "gcp: credentials": True,
        "gcp: price list": True,
        "gcp: compute.instances.list": True,
        "gcp: us-central1: compute.regions.get": True,
        "gcp: us-central1: compute.machineTypes.list": True,
        "gcp: us-central1: compute.zoneOperations.list": True,
        "gcp: us-central1: GPU quotas": True,
        "gcp: us-east4: compute.regions.get": True,
        "gcp: us-east4: compute.machineTypes.list": True,
        "gcp: us-east4: compute.zoneOperations.list": True,
        "gcp: us-east4: GPU quotas": True,
        "gcp: compute.advice.capacityHistory": True,
        "gcp: compute.advice.capacity": True,
    }
    assert "L4: 0 of 1000 on demand, 0 of 1000 spot" in found["gcp: us-east4: GPU quotas"].detail


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("skus.list", "gcp: price list"),
        ("instances.aggregatedList", "gcp: compute.instances.list"),
        ("regions.get", "gcp: us-central1: compute.regions.get"),
        ("machineTypes.list", "gcp: us-central1: compute.machineTypes.list"),
        ("zoneOperations.list", "gcp: us-central1: compute.zoneOperations.list"),
    ],
)
def test_a_missing_right_is_named(gcp: Cloud, method: str, name: str) -> None:
    provider = gcp.opened_with(capacity_advice=False)
    gcp.fault(FaultKind.DENIED, method)
    assert [line for line, check in checks(provider).items() if check.ok is False] == [name]


def test_advice_that_is_refused_is_told_and_asked_again_by_doctor(gcp: Cloud, world: World) -> None:
    gcp.fault(FaultKind.DENIED, HISTORY, count=None)
    assert set(spot_sources(gcp).values()) == {LISTED}
    line = checks(gcp.provider)["gcp: compute.advice.capacityHistory"]
    assert line.ok is None
    assert "403" in line.detail
    assert "price list" in line.detail
    world.faults.clear()
    assert checks(gcp.provider)["gcp: compute.advice.capacityHistory"].ok
    assert set(spot_sources(gcp).values()) == {ADVISED}


def test_doctor_stays_calm_when_a_reply_has_another_shape(gcp_opened: Opened, gcp: Cloud) -> None:
    gcp.fault(FaultKind.WRONG_SHAPE, "*", count=None)
    assert checks(gcp.provider)["gcp: price list"].ok is False
    gcp_opened.face.problems.clear()


def test_doctor_stays_calm_when_nothing_answers(gcp: Cloud) -> None:
    gcp.fault(FaultKind.DOWN, "*", count=None)
    found = checks(gcp.provider)
    assert found.pop("gcp: credentials").ok
    assert {check.ok for check in found.values()} == {False}
