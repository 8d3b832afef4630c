"""EC2's placement scores: how likely a spot request is to succeed, and how often one may ask."""

import pytest

from broker.core.availability import Signal, Unanswered
from broker.core.errors import Denied, Throttled
from lab.faults import FaultKind
from lab.world import World
from tests.contract.conftest import Cloud

pytestmark = pytest.mark.process

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
