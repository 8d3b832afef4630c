"""What a subscription of Azure adds: eviction rates, placement scores, the past of spot prices."""

import time

import pytest

from broker.core.availability import Availability, Signal, Unanswered
from broker.core.errors import Denied, Invalid, ProviderDown, ProviderError, Throttled
from broker.core.offer import Market
from lab.faces import Reply, Request
from lab.faults import FaultKind
from tests.contract.azure.conftest import (
    ACCOUNT,
    CLIENT,
    H100_SPOT,
    ND_H100,
    SECRET,
    SUBSCRIPTION,
    TENANT,
    Azure,
    closed_port,
)

pytestmark = pytest.mark.process


def test_eviction_rates_are_ranges_of_a_share(cloud: Azure) -> None:
    hints = {hint.offer_key: hint for hint in cloud.source.availability()}
    assert hints[H100_SPOT] == Availability(
        H100_SPOT, Signal.EVICTION_RATE, 0.15, 0.2, cloud.clock.now_ms(), "azure:eviction_rate"
    )
    known = hints["azure/westus3/Standard_NC4as_T4_v3/spot"], hints[ND_H100.replace("on_demand", "spot")]
    assert [(hint.low, hint.high) for hint in known] == [(0, 0.05), (0.2, 1)]
    assert hints.keys() == {
        key for key in cloud.world.pools if key.startswith("azure/") and key.endswith("/spot")
    }


def test_what_was_said_is_told_again_with_its_date(cloud: Azure) -> None:
    said_ms = cloud.clock.now_ms()
    cloud.source.availability()
    cloud.clock.advance(3000)
    assert {hint.observed_at_ms for hint in cloud.source.availability()} == {said_ms}
    assert len(cloud.face.asked("/resources")) == 1
    cloud.clock.advance(1000)
    assert {hint.observed_at_ms for hint in cloud.source.availability()} == {cloud.clock.now_ms()}


def test_placement_scores_are_asked_only_where_wanted(cloud: Azure) -> None:
    cloud.source.availability()
    assert cloud.face.asked("/generate") == []
    cloud.world.set_stock(H100_SPOT, 0)
    cloud.world.set_stock(H100_SPOT.replace("eastus", "westus3"), 2)
    source = cloud.opened_with(placement_scores=True)
    ranks = {hint.offer_key: hint for hint in source.availability() if hint.signal is Signal.PLACEMENT_RANK}
    assert (ranks[H100_SPOT].low, ranks[H100_SPOT].high) == (1, 1)
    assert ranks[H100_SPOT.replace("eastus", "westus3")].low == 2
    assert ranks[ND_H100.replace("on_demand", "spot")].low == 3
    asked = len(cloud.face.asked("/generate"))
    cloud.clock.advance(600)
    list(source.availability())
    assert len(cloud.face.asked("/generate")) == asked
    for request in cloud.face.asked("/generate"):
        assert len(request.json()["desiredSizes"]) <= 5
        assert len(request.json()["desiredLocations"]) <= 8


def test_the_past_of_spot_prices_is_read_oldest_first_and_for_linux_alone(cloud: Azure) -> None:
    began_ms = cloud.clock.now_ms() // 1000 * 1000
    cloud.clock.advance(100)
    cloud.world.set_price(H100_SPOT, 4_000_000)
    cloud.clock.advance(100)
    past = cloud.source.price_history(0)
    assert [(quote.price_text, quote.effective_at_ms) for quote in past if quote.offer.key == H100_SPOT] == [
        ("2.192418", began_ms - 3 * 86_400_000),
        ("4.0", began_ms + 100_000),
    ]
    dates = [quote.effective_at_ms or 0 for quote in past]
    assert dates == sorted(dates)
    assert {quote.offer.market for quote in past} == {Market.SPOT}
    assert {quote.source for quote in past} == {"azure:spot_history"}
    later = cloud.source.price_history(began_ms)
    assert [quote.offer.key for quote in later] == [H100_SPOT]


def test_resource_graph_is_read_to_its_last_page_or_not_at_all(cloud: Azure) -> None:
    cloud.fault(FaultKind.PARTIAL_PAGE, "Resources")
    with pytest.raises(ProviderDown, match="InternalServerError"):
        cloud.source.price_history(0)


def test_prices_do_not_wait_for_an_account_that_is_refused(
    cloud: Azure, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.fault(FaultKind.EXPIRED, "Token", count=None)
    assert len(cloud.source.quotes()) == 24
    assert len(cloud.face.asked("/token")) == 1, "one region's time-out is enough"
    with pytest.raises(Denied, match=r"AADSTS7000222.*the secret's date in the app registration"):
        cloud.source.availability()
    with pytest.raises(Denied):
        cloud.source.price_history(0)
    cloud.world.faults.clear()
    assert cloud.source.availability()
    by_size = {quote.offer.instance_type: quote.offer.gpus for quote in cloud.source.quotes()}
    assert by_size["Standard_ND96isrf_H200_v5"] == 0, "the account rests"
    cloud.clock.advance(600)
    by_size = {quote.offer.instance_type: quote.offer.gpus for quote in cloud.source.quotes()}
    assert by_size["Standard_ND96isrf_H200_v5"] == 8


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (FaultKind.EXPIRED, Denied),
        (FaultKind.DENIED, Denied),
        (FaultKind.THROTTLE, Throttled),
        (FaultKind.HTTP_500, ProviderDown),
        (FaultKind.REQUEST_LOST, ProviderDown),
        (FaultKind.REPLY_LOST, ProviderDown),
        (FaultKind.WRONG_SHAPE, ProviderDown),
    ],
)
@pytest.mark.parametrize("operation", ["Resources", "SpotPlacementScores_Post"])
def test_refusals_of_the_resource_manager(
    cloud: Azure, kind: FaultKind, error: type[ProviderError], operation: str
) -> None:
    source = cloud.opened_with(placement_scores=True)
    other = {"Resources", "SpotPlacementScores_Post"} - {operation}
    cloud.fault(FaultKind.HTTP_500, *other)
    cloud.fault(kind, operation)
    with pytest.raises(error if operation == "Resources" else ProviderDown) as caught:
        source.availability()
    if isinstance(caught.value, Throttled):
        assert caught.value.retry_after_s == 7
    sent = cloud.face.asked("/resources" if operation == "Resources" else "/generate")
    assert len(sent) == 1, "no retry behind our back"
    assert source.availability()


@pytest.mark.parametrize(
    ("operation", "left"),
    [("Resources", Signal.PLACEMENT_RANK), ("SpotPlacementScores_Post", Signal.EVICTION_RATE)],
)
def test_one_kind_of_hint_that_fails_takes_the_other_not_away(
    cloud: Azure, operation: str, left: Signal
) -> None:
    source = cloud.opened_with(placement_scores=True)
    cloud.fault(FaultKind.THROTTLE, operation)
    *hints, failed = source.availability()
    assert isinstance(failed, Unanswered)
    assert "TooManyRequests" in failed.error or "RateLimiting" in failed.error
    assert {hint.signal for hint in hints} == {left}
    assert not [hint for hint in source.availability() if isinstance(hint, Unanswered)]


def test_what_was_said_is_told_again_while_the_account_does_not_answer(cloud: Azure) -> None:
    said = list(cloud.source.availability())
    cloud.clock.advance(4000)
    cloud.fault(FaultKind.EXPIRED, "Resources")
    *again, failed = cloud.source.availability()
    assert again == said
    assert isinstance(failed, Unanswered)


def test_a_conflict_is_told_by_its_code_and_not_by_its_type(cloud: Azure) -> None:
    """azure-core calls every 409 `ResourceExistsError`."""
    code, status = "", 409

    def conflict(request: Request, reply: Reply) -> Reply:
        document = {"error": {"code": code, "message": "no"}}
        return Reply.of_json(document, status) if "ResourceGraph" in request.path else reply

    cloud.face.change = conflict
    for code, error in (
        ("TooManyRequests", Throttled),
        ("ReadOnlyDisabledSubscription", Denied),
        ("SomethingElse", Invalid),
    ):
        with pytest.raises(error, match=f"{code}: no"):
            cloud.source.availability()
    status = 429
    with pytest.raises(Throttled, match="SomethingElse: no"):
        cloud.source.availability()


def test_a_slow_resource_manager_is_not_waited_for(cloud: Azure) -> None:
    cloud.fault(FaultKind.SLOW, "Resources", seconds=30)
    started = time.monotonic()
    with pytest.raises(ProviderDown, match="no answer from 127"):
        cloud.opened_with(read_timeout_s=0.5).availability()
    assert time.monotonic() - started < 15


@pytest.mark.parametrize("endpoint", ["endpoint_login", "endpoint_arm"])
def test_no_way_to_the_account_is_no_refusal(cloud: Azure, endpoint: str) -> None:
    nowhere = f"127.0.0.1:{closed_port()}"
    with pytest.raises(ProviderDown):
        cloud.opened_with(**{endpoint: f"https://{nowhere}"}).availability()


@pytest.mark.parametrize(
    ("changes", "secret", "text"),
    [
        ({}, "wrong", "AADSTS7000215"),
        ({}, "", f"{SECRET} is not set"),
        ({"client_id": "somebody"}, "lab-secret", "AADSTS700016"),
        ({"subscription_id": SUBSCRIPTION.replace("2", "9")}, "lab-secret", "AuthorizationFailed"),
    ],
)
def test_credentials_that_are_not_good_are_denied_with_a_way_out(
    cloud: Azure, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], secret: str, text: str
) -> None:
    monkeypatch.setenv(SECRET, secret)
    with pytest.raises(Denied, match=text):
        cloud.opened_with(**changes).availability()


def test_azure_identitys_own_chain_serves_too(cloud: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_TENANT_ID", TENANT)
    monkeypatch.setenv("AZURE_CLIENT_ID", CLIENT)
    monkeypatch.setenv("AZURE_CLIENT_SECRET", ACCOUNT.client_secret)
    assert cloud.opened_with(tenant_id=None, client_id=None).availability()
