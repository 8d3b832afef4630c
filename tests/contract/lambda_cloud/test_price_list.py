"""Prices and capacity of Lambda: one list says both."""

import time

import httpx
import pytest

from broker.core.availability import Signal
from broker.core.errors import Denied, ProviderDown, ProviderError, SettingsError, Throttled
from broker.core.offer import Market, MarketSnapshot
from broker.market.quarantine import sift
from lab.faces import Request, lambda_cloud
from lab.faults import FaultKind
from lab.serving import HttpServer
from lab.sold import lambda_cloud as sold
from lab.tls import Authority
from lab.world import World
from providers.lambda_cloud.regions import REGIONS
from providers.registry import open_provider, open_source, vendor_endpoints
from tests.clocks import ManualClock
from tests.contract.conftest import INSTALLATION
from tests.contract.lambda_cloud.conftest import A10, KEY, Lambda, listed, quoted

pytestmark = pytest.mark.process

# Prices


def test_prices_are_the_worlds_in_every_region(cloud: Lambda) -> None:
    quotes = quoted(cloud.source)
    truth = {key: cloud.world.price(key) for key in cloud.world.pools if key.startswith("lambda/")}
    assert truth
    assert truth.items() <= quotes.items()
    assert {key.split("/")[1] for key in quotes} == set(REGIONS)
    assert len(quotes) == len(REGIONS) * len(sold.TYPES)


def test_a_price_is_for_the_whole_instance_and_not_for_one_gpu(cloud: Lambda) -> None:
    (quote,) = [
        q for q in cloud.source.quotes() if q.offer.key == "lambda/us-south-1/gpu_8x_h100_sxm5/on_demand"
    ]
    assert (quote.price_text, quote.currency, quote.offer.gpus) == ("31.92", "USD", 8)
    sifted = sift([quote], cloud.clock.now_ms(), {}, {})
    assert [q.price_micro_usd_h for q in sifted.quotes] == [31_920_000]


def test_cents_become_dollars(cloud: Lambda) -> None:
    with httpx.Client(verify=cloud.trusted(), headers={"Authorization": f"Bearer {KEY}"}) as http:
        reply = http.get(f"{cloud.options['endpoint']}/instance-types").json()
    assert reply["data"]["gpu_1x_a10"]["instance_type"]["price_cents_per_hour"] == 129
    assert quoted(cloud.source)[A10] == 1_290_000


def test_there_is_never_a_spot_price(cloud: Lambda) -> None:
    assert {quote.offer.market for quote in cloud.source.quotes()} == {Market.ON_DEMAND}


def test_sxm_and_pcie_are_two_skus(cloud: Lambda) -> None:
    gpus = {quote.offer.instance_type: quote.offer.gpu for quote in cloud.source.quotes()}
    assert gpus["gpu_1x_h100_sxm5"] == "H100-SXM5-80GB"
    assert gpus["gpu_1x_h100_pcie"] == "H100-PCIe-80GB"
    assert gpus == {kind.name: kind.gpu for kind in sold.TYPES}


def test_facts_of_an_offer_are_the_clouds(cloud: Lambda) -> None:
    offers = {quote.offer.instance_type: quote.offer for quote in cloud.source.quotes()}
    for kind in sold.TYPES:
        offer = offers[kind.name]
        assert (offer.gpus, offer.vcpus, offer.memory_gib) == (kind.gpus, kind.vcpus, kind.memory_gib)
        assert (offer.interconnect, offer.fabric) == (kind.interconnect, kind.fabric)
        assert offer.zone == offer.region


def test_a_price_change_is_seen_at_the_next_poll(cloud: Lambda) -> None:
    assert quoted(cloud.source)[A10] == 1_290_000
    cloud.world.set_price(A10, 860_000)
    assert quoted(cloud.source)["lambda/europe-central-1/gpu_1x_a10/on_demand"] == 860_000


def test_a_vanished_type_has_no_price_and_no_hint(cloud: Lambda) -> None:
    assert A10 in quoted(cloud.source)
    cloud.world.pools = {key: pool for key, pool in cloud.world.pools.items() if "gpu_1x_a10" not in key}
    assert not [key for key in quoted(cloud.source) if "gpu_1x_a10" in key]
    assert A10 not in listed(cloud.source)


def test_only_the_configured_regions_are_priced(cloud: Lambda) -> None:
    source = cloud.opened_with(regions=["us-east-1", "us-west-3"])
    assert {quote.offer.region for quote in source.quotes()} == {"us-east-1", "us-west-3"}
    assert {hint.offer_key.split("/")[1] for hint in source.availability()} == {"us-east-1", "us-west-3"}


# What is obtainable


def test_what_the_api_lists_has_a_one_and_the_rest_a_zero(cloud: Lambda) -> None:
    quotes, hints = quoted(cloud.source), listed(cloud.source)
    assert hints.keys() == quotes.keys()
    for key in quotes:
        known = key in cloud.world.pools
        assert hints[key] == (1.0 if known and cloud.world.free(key) != 0 else 0.0), key
    assert set(hints.values()) == {0.0, 1.0}


def test_a_type_that_no_region_lists_is_priced_and_unlisted(cloud: Lambda) -> None:
    key = "lambda/us-east-1/gpu_8x_b200_sxm6/on_demand"
    sifted = sift(cloud.source.quotes(), cloud.clock.now_ms(), {}, {})
    quote = next(quote for quote in sifted.quotes if quote.offer.key == key)
    hints = tuple(hint for hint in cloud.source.availability() if hint.offer_key == key)
    assert [(hint.signal, hint.low, hint.high) for hint in hints] == [(Signal.LISTED, 0.0, 0.0)]
    snapshot = MarketSnapshot(cloud.clock.now_ms(), {key: quote}, hints={key: hints})
    assert snapshot.is_unlisted(quote.offer)


def test_one_call_serves_prices_and_capacity_with_its_date(cloud: Lambda) -> None:
    list(cloud.source.quotes())
    read_at_ms = cloud.clock.now_ms()
    cloud.clock.advance(60)
    assert {hint.observed_at_ms for hint in cloud.source.availability()} == {read_at_ms}
    assert cloud.face.requests == ["/api/v1/instance-types"]


def test_capacity_that_runs_out_is_seen_at_the_next_poll(cloud: Lambda) -> None:
    list(cloud.source.quotes())
    assert listed(cloud.source)[A10] == 1.0
    cloud.world.set_stock(A10, 0)
    list(cloud.source.quotes())
    assert listed(cloud.source)[A10] == 0.0


# When it goes wrong


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        (FaultKind.EXPIRED, Denied, "global/invalid-api-key"),
        (FaultKind.DENIED, Denied, "global/account-inactive"),
        (FaultKind.HTTP_500, ProviderDown, "global/internal-error"),
        (FaultKind.DOWN, ProviderDown, "reading instance types"),
        (FaultKind.REPLY_LOST, ProviderDown, "reading instance types"),
        (FaultKind.WRONG_SHAPE, ProviderDown, "text/html"),
    ],
)
def test_a_fault_is_one_of_our_errors_and_nothing_is_quoted(
    cloud: Lambda, kind: FaultKind, error: type[ProviderError], words: str
) -> None:
    cloud.fault(kind)
    with pytest.raises(error, match=words) as caught:
        list(cloud.source.quotes())
    assert KEY not in str(caught.value)
    assert len(quoted(cloud.source)) > 0, "the next poll is whole again"


def test_a_call_too_many_says_when_to_come_back(cloud: Lambda) -> None:
    cloud.fault(FaultKind.THROTTLE)
    with pytest.raises(Throttled) as caught:
        list(cloud.source.quotes())
    assert caught.value.retry_after_s == 3.0


def test_a_slow_api_ends_in_a_time_out(cloud: Lambda) -> None:
    cloud.fault(FaultKind.SLOW, seconds=2.0)
    began_s = time.monotonic()
    with pytest.raises(ProviderDown, match="no whole answer within"):
        list(cloud.opened_with(timeout_s=0.3).quotes())
    assert time.monotonic() - began_s < 1.5


def test_a_server_with_another_certificate_gets_no_key(
    cloud: Lambda, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Authority(tmp_path_factory.mktemp("other-ca"))
    with pytest.raises(ProviderDown, match=r"(?i)certificate"):
        list(cloud.opened_with(ca_file=str(other.ca_file)).quotes())
    assert cloud.face.requests == []


# At most one request a second


def test_two_polls_at_once_are_a_second_apart_at_the_cloud(
    world: World, clock: ManualClock, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAMBDA_API_KEY", KEY)
    server = HttpServer(lambda_cloud.create(world, KEY), authority.server_context()).start()
    options = {"endpoint": f"{server.url}/api/v1", "ca_file": str(authority.ca_file)}
    source = open_source("lambda", options, clock, INSTALLATION)
    began_s = time.monotonic()
    assert list(source.quotes())
    assert list(source.quotes()), "the face would have answered 429"
    assert time.monotonic() - began_s >= 1.0
    server.stop()


def test_the_face_refuses_a_second_request_within_a_second(world: World) -> None:
    now_s = 100.0
    face = lambda_cloud.create(world, KEY, monotonic_s=lambda: now_s)
    request = Request("GET", "/api/v1/instance-types", (), {"authorization": f"Bearer {KEY}"}, b"")
    assert face(request).status == 200
    now_s += 0.9
    reply = face(request)
    assert (reply.status, reply.headers["Retry-After"]) == (429, "1")
    now_s += 1.0
    assert face(request).status == 200


# What it costs beside the price


def test_egress_and_disk_are_free_and_the_meter_is_told(cloud: Lambda) -> None:
    offer = cloud.source.quotes()[0].offer
    rule = cloud.source.billing_rule(Market.ON_DEMAND)
    assert (rule.unit_s, rule.meter) == (60, "from active to terminated")
    assert rule.source
    assert rule.unconfirmed
    assert cloud.source.egress_micro_usd_per_gib(offer, None) == 0
    assert cloud.source.disk_micro_usd_per_gib_month(offer.region) == 0
    assert list(cloud.source.price_history(0)) == []


def test_nothing_is_rented_there(cloud: Lambda) -> None:
    with pytest.raises(SettingsError, match="only the prices"):
        open_provider("lambda", cloud.options, cloud.clock, INSTALLATION)
    assert vendor_endpoints("lambda", cloud.options) == []
