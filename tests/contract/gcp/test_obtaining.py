"""Google's advice on obtaining and keeping a machine, that not every project may ask for."""

from collections.abc import Callable
from typing import Any

import pytest

from broker.core.availability import Signal, Unanswered
from broker.core.time import HOUR_S, MINUTE_S
from lab.faces import Reply, Request
from lab.faults import FaultKind
from lab.world import World
from tests.contract.conftest import Cloud
from tests.contract.gcp.conftest import CAPACITY, HISTORY, L4, SPOT, Calls, refusing

pytestmark = pytest.mark.process


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
