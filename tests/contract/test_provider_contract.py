"""What every provider promises, asked of each one in the same words."""

import socket
import time
from dataclasses import replace

import pytest

from broker.core.errors import (
    Denied,
    Invalid,
    OutOfCapacity,
    OutOfQuota,
    ProviderDown,
    Throttled,
    UnknownOutcome,
)
from broker.core.gpu import GPUS
from broker.core.model import EndedBy
from broker.core.money import micro_usd
from broker.core.offer import Market
from broker.core.ports import CloudState
from lab.faults import Fault, FaultKind
from lab.sold import gcp
from tests.contract.conftest import INSTALLATION, TOKENS, Cloud

pytestmark = pytest.mark.process

# Sold by the world, and not what the cloud would start.
NOT_QUOTED = {
    listing.key
    for listing in gcp.listings()
    if listing.market == "on_demand" and listing.type.name in gcp.SPOT_ONLY
}


def test_one_token_is_one_node(cloud: Cloud) -> None:
    first = cloud.provider.create(cloud.request())
    again = cloud.provider.create(cloud.request())
    assert again.provider_id == first.provider_id
    assert [node.token for node in cloud.provider.list_owned()] == [TOKENS[0]]


def test_a_token_is_good_for_one_request(cloud: Cloud) -> None:
    cloud.provider.create(cloud.request())
    # One that is taken says that there is a machine to be looked up, unless the cloud has shown whose it is.
    with pytest.raises((Invalid, UnknownOutcome)):
        cloud.provider.create(cloud.request(user_data="#!/bin/sh\nexec sleep 601\n"))
    assert len(cloud.provider.list_owned()) == 1


def test_a_created_node_is_listed_and_found_with_its_tags(cloud: Cloud) -> None:
    made = cloud.provider.create(cloud.request())
    (listed,) = cloud.provider.list_owned()
    found = cloud.find()
    assert found == listed
    assert (found.token, found.provider_id) == (TOKENS[0], made.provider_id)
    assert (found.installation_id, found.event_seq) == (INSTALLATION, 41)
    assert (found.cloud, found.region, found.zone) == (
        cloud.name,
        cloud.offers[0].region,
        cloud.offers[0].zone,
    )
    assert found.state is CloudState.RUNNING
    assert found.created_at_ms == found.billed_from_ms == cloud.clock.now_ms()
    assert found.ended_at_ms is None
    assert found.ended_by is None


def test_another_installation_is_not_ours(cloud: Cloud) -> None:
    cloud.provider.create(cloud.request(installation_id="broker-lab2"))
    assert list(cloud.provider.list_owned()) == []
    (stranger,) = cloud.provider.list_tagged()
    assert (stranger.token, stranger.installation_id) == (TOKENS[0], "broker-lab2")


def test_deleting_twice_is_fine_and_ends_it(cloud: Cloud) -> None:
    node = cloud.provider.create(cloud.request())
    cloud.provider.delete(node)
    cloud.provider.delete(node)
    ended = cloud.until_ended()
    cloud.provider.delete(node)
    assert list(cloud.provider.list_owned()) == []
    assert ended is not None
    assert ended.ended_by is EndedBy.US


def test_an_unknown_token_is_nothing(cloud: Cloud) -> None:
    assert cloud.find(TOKENS[1]) is None


def test_quotes_are_well_formed(cloud: Cloud) -> None:
    quotes = list(cloud.provider.quotes())
    assert quotes
    assert len({quote.offer.key for quote in quotes}) == len(quotes)
    for quote in quotes:
        assert quote.offer.gpu in GPUS, quote
        assert quote.offer.gpus >= 1
        assert quote.offer.cloud == cloud.name
        assert quote.currency == "USD"
        assert micro_usd(quote.price_text) > 0
        assert quote.source.startswith(f"{cloud.name}:")
        assert quote.effective_at_ms is None or quote.effective_at_ms <= cloud.clock.now_ms()


def test_check_is_content(cloud: Cloud) -> None:
    checks = cloud.provider.check()
    assert checks
    assert not [check for check in checks if check.ok is False]
    assert any(check.ok for check in checks)


def test_billing_rules_and_egress_are_known(cloud: Cloud) -> None:
    offer = cloud.offers[0]
    assert cloud.provider.billing_rule(Market.SPOT).source
    assert cloud.provider.egress_micro_usd_per_gib(offer, offer) == 0
    assert cloud.provider.egress_micro_usd_per_gib(offer, None) >= 0
    elsewhere = replace(offer, region="elsewhere", zone="elsewhere")
    internet = cloud.provider.egress_micro_usd_per_gib(offer, None)
    assert 0 <= cloud.provider.egress_micro_usd_per_gib(offer, elsewhere) <= internet


# With a world behind it


def test_prices_are_the_worlds(lab_cloud: Cloud) -> None:
    assert lab_cloud.truth is not None
    quoted = {quote.offer.key: micro_usd(quote.price_text) for quote in lab_cloud.provider.quotes()}
    sold = {
        key: lab_cloud.truth.price(key) for key in lab_cloud.truth.pools if key.startswith(lab_cloud.name)
    }
    assert quoted == {key: price for key, price in sold.items() if key not in NOT_QUOTED}


def test_a_price_change_carries_its_own_date(lab_cloud: Cloud) -> None:
    assert lab_cloud.truth is not None
    changed_ms = lab_cloud.clock.advance(600) // 1000 * 1000
    for offer, price in zip(lab_cloud.offers, (3_777_001, 555_003), strict=True):
        lab_cloud.truth.set_price(offer.key, price)
    lab_cloud.clock.advance(120)
    quotes = {quote.offer.key: quote for quote in lab_cloud.provider.quotes()}
    for offer, price in zip(lab_cloud.offers, (3_777_001, 555_003), strict=True):
        assert micro_usd(quotes[offer.key].price_text) == price
        assert quotes[offer.key].effective_at_ms == changed_ms


def test_half_a_price_list_is_none(lab_cloud: Cloud) -> None:
    operation = {"aws": "DescribeSpotPriceHistory", "gcp": "skus.list"}[lab_cloud.name]
    lab_cloud.fault(FaultKind.PARTIAL_PAGE, operation)
    with pytest.raises(ProviderDown):
        lab_cloud.provider.quotes()


def test_a_list_that_lost_the_link_to_its_next_page_lacks_prices_and_has_no_wrong_one(
    lab_cloud: Cloud,
) -> None:
    """Neither cloud says how long its lists are: what is missing cannot be told, and must not be made up."""
    assert lab_cloud.truth is not None
    whole = {quote.offer.key for quote in lab_cloud.provider.quotes()}
    for operation in {
        "aws": ("DescribeSpotPriceHistory", "GetProducts", "DescribeInstanceTypes"),
        "gcp": ("skus.list", "machineTypes.list"),
    }[lab_cloud.name]:
        provider = lab_cloud.opened_with()
        lab_cloud.fault(FaultKind.LINK_LOST, operation)
        quoted = {quote.offer.key: micro_usd(quote.price_text) for quote in provider.quotes()}
        assert lab_cloud.truth.faults.pending() == []
        assert quoted.keys() < whole, operation
        assert quoted == {key: lab_cloud.truth.price(key) for key in quoted}, operation


def test_a_slow_price_list_is_not_waited_for(lab_cloud: Cloud) -> None:
    assert lab_cloud.truth is not None
    operation, option = {"aws": ("GetProducts", "read_timeout_s"), "gcp": ("skus.list", "timeout_s")}[
        lab_cloud.name
    ]
    lab_cloud.truth.faults.add(Fault(lab_cloud.name, operation, FaultKind.SLOW, seconds=60))
    provider = lab_cloud.opened_with(**{option: 0.5})
    started = time.monotonic()
    with pytest.raises(ProviderDown, match=r"timed? ?out"):
        provider.quotes()
    assert time.monotonic() - started < 30


def test_another_currency_is_told(lab_cloud: Cloud) -> None:
    operation = {"aws": "GetProducts", "gcp": "skus.list"}[lab_cloud.name]
    lab_cloud.fault(FaultKind.WRONG_CURRENCY, operation)
    assert "EUR" in {quote.currency for quote in lab_cloud.provider.quotes()}


def test_a_lost_reply_is_unknown_and_then_found(lab_cloud: Cloud) -> None:
    lab_cloud.fault(FaultKind.REPLY_LOST, lab_cloud.create)
    with pytest.raises(UnknownOutcome):
        lab_cloud.provider.create(lab_cloud.request())
    found = lab_cloud.find()
    assert found is not None
    again = lab_cloud.provider.create(lab_cloud.request())
    assert again.provider_id == found.provider_id == lab_cloud.machine().id


def test_a_lost_request_is_unknown_too_and_can_be_resent(lab_cloud: Cloud) -> None:
    lab_cloud.fault(FaultKind.REQUEST_LOST, lab_cloud.create)
    with pytest.raises(UnknownOutcome):
        lab_cloud.provider.create(lab_cloud.request())
    assert lab_cloud.find() is None
    made = lab_cloud.provider.create(lab_cloud.request())
    assert made.provider_id == lab_cloud.machine().id


def test_an_internal_error_of_a_create_is_unknown(lab_cloud: Cloud) -> None:
    lab_cloud.fault(FaultKind.HTTP_500, lab_cloud.create)
    with pytest.raises(UnknownOutcome):
        lab_cloud.provider.create(lab_cloud.request())


def test_an_empty_pool_is_out_of_capacity_in_the_zone(lab_cloud: Cloud) -> None:
    assert lab_cloud.truth is not None
    lab_cloud.truth.set_stock(lab_cloud.offers[0].key, 0)
    with pytest.raises(OutOfCapacity) as caught:
        lab_cloud.provider.create(lab_cloud.request())
    assert caught.value.scope == "zone"
    assert lab_cloud.find() is None
    assert lab_cloud.truth.machines() == []


def test_one_launch_is_one_call(lab_cloud: Cloud) -> None:
    """The capacity error of EC2 is an HTTP 500: an SDK that retries would buy the second try."""
    lab_cloud.fault(FaultKind.CAPACITY, lab_cloud.create)
    with pytest.raises(OutOfCapacity):
        lab_cloud.provider.create(lab_cloud.request())
    assert lab_cloud.truth is not None
    assert lab_cloud.truth.machines() == []
    assert lab_cloud.truth.faults.pending() == []


@pytest.mark.parametrize("offer", [0, 1], ids=["spot", "on_demand"])
def test_a_used_up_quota_is_out_of_quota(lab_cloud: Cloud, offer: int) -> None:
    lab_cloud.fault(FaultKind.QUOTA, lab_cloud.create)
    with pytest.raises(OutOfQuota) as caught:
        lab_cloud.provider.create(lab_cloud.request(offer=lab_cloud.offers[offer]))
    assert caught.value.scope == "region"


def test_too_many_calls_are_throttled(lab_cloud: Cloud) -> None:
    lab_cloud.fault(FaultKind.THROTTLE, "*", count=2)
    with pytest.raises(Throttled):
        lab_cloud.provider.create(lab_cloud.request())
    with pytest.raises(Throttled):
        lab_cloud.find()


@pytest.mark.parametrize("kind", [FaultKind.DENIED, FaultKind.EXPIRED])
def test_missing_rights_and_expired_credentials_are_denied(lab_cloud: Cloud, kind: FaultKind) -> None:
    lab_cloud.fault(kind, "*", count=None)
    with pytest.raises(Denied):
        lab_cloud.provider.create(lab_cloud.request())
    with pytest.raises(Denied):
        lab_cloud.provider.quotes()
    assert any(check.ok is False for check in lab_cloud.provider.check())


def test_a_cloud_that_is_down_is_down(lab_cloud: Cloud) -> None:
    lab_cloud.fault(FaultKind.DOWN, "*", count=None)
    for ask in (lab_cloud.provider.quotes, lab_cloud.provider.list_owned, lab_cloud.find):
        with pytest.raises(ProviderDown):
            ask()


def test_a_request_that_never_left_has_done_nothing(lab_cloud: Cloud) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, but not listening: refused
        url = f"https://127.0.0.1:{nobody.getsockname()[1]}"
        endpoint = {"aws": "endpoint_ec2", "gcp": "endpoint_compute"}[lab_cloud.name]
        provider = lab_cloud.opened_with(**{endpoint: url})
        with pytest.raises(ProviderDown):
            provider.create(lab_cloud.request())


def test_a_certificate_that_nobody_trusts_stops_everything_before_it_is_sent(lab_cloud: Cloud) -> None:
    provider = lab_cloud.opened_with(ca_file=None)
    with pytest.raises(ProviderDown):
        provider.create(lab_cloud.request())
    assert lab_cloud.truth is not None
    assert lab_cloud.truth.machines() == []


def test_an_interruption_is_the_clouds_doing_and_ends_the_meter(lab_cloud: Cloud) -> None:
    lab_cloud.provider.create(lab_cloud.request())
    lab_cloud.clock.advance(5000)
    assert lab_cloud.truth is not None
    lab_cloud.truth.interrupt(lab_cloud.machine().id)
    ended = lab_cloud.until_ended()
    (bill,) = lab_cloud.truth.bill()
    assert ended is not None
    assert ended.ended_by is EndedBy.CLOUD
    assert bill.from_s is not None
    assert bill.to_s is not None
    assert (ended.billed_from_ms, ended.ended_at_ms) == (bill.from_s * 1000, bill.to_s * 1000)
    assert list(lab_cloud.provider.list_owned()) == []


def test_the_meter_of_a_deleted_node_is_the_worlds(lab_cloud: Cloud) -> None:
    node = lab_cloud.provider.create(lab_cloud.request(offer=lab_cloud.offers[1]))
    lab_cloud.clock.advance(1234)
    lab_cloud.provider.delete(node)
    ended = lab_cloud.until_ended()
    assert lab_cloud.truth is not None
    (bill,) = lab_cloud.truth.bill()
    assert ended is not None
    assert bill.from_s is not None
    assert bill.to_s is not None
    assert (ended.billed_from_ms, ended.ended_at_ms) == (bill.from_s * 1000, bill.to_s * 1000)


def test_what_is_asked_for_reaches_the_world(lab_cloud: Cloud) -> None:
    lab_cloud.provider.create(lab_cloud.request(notice_s=90, max_life_s=7200))
    asked = lab_cloud.machine().request
    assert asked.user_data == lab_cloud.request().user_data
    if lab_cloud.name == "gcp":  # EC2 lets nobody choose
        assert (asked.notice_s, asked.max_life_s) == (90, 7200)


def test_a_bid_below_the_price_is_out_of_capacity(aws_cloud: Cloud) -> None:
    with pytest.raises(OutOfCapacity):
        aws_cloud.provider.create(aws_cloud.request(max_price_micro_usd_h=1_000_000))
    made = aws_cloud.provider.create(aws_cloud.request(TOKENS[1], max_price_micro_usd_h=5_000_000))
    assert aws_cloud.machine().id == made.provider_id
    assert aws_cloud.machine().request.max_price_micro_usd_h == 5_000_000
