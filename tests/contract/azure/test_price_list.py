"""Prices of Azure: which rows of the price list are ours, and what a list that cannot be read is."""

import json
import ssl
import time

import httpx
import pytest

from broker.core.errors import Invalid, ProviderDown, SettingsError, Throttled
from broker.core.gpu import GPUS
from broker.core.money import micro_usd
from broker.market.quarantine import sift
from lab.faces import Reply, Request
from lab.faces.azure_retail import PATH
from lab.faults import FaultKind
from providers.azure import skus
from providers.azure.clients import Clients
from providers.azure.settings import parse
from providers.registry import open_provider, vendor_endpoints
from tests.contract.azure.conftest import H100, H100_SPOT, ND_H100, SUBSCRIPTION, Azure, closed_port
from tests.contract.conftest import INSTALLATION

pytestmark = pytest.mark.process

# Prices


def test_quotes_are_well_formed(cloud: Azure) -> None:
    quotes = [quote for quote in cloud.source.quotes() if quote.offer.gpu in GPUS]
    assert len({quote.offer.key for quote in quotes}) == len(quotes) == 20
    for quote in quotes:
        assert (quote.offer.cloud, quote.currency, quote.source) == ("azure", "USD", "azure:retail")
        assert quote.offer.gpus >= 1
        assert quote.offer.zone == quote.offer.region
        assert micro_usd(quote.price_text) > 0
        assert quote.effective_at_ms is not None
        assert quote.effective_at_ms <= cloud.clock.now_ms()


@pytest.mark.parametrize("account", [True, False], ids=["account", "no account"])
def test_prices_are_the_worlds(cloud: Azure, account: bool) -> None:
    source = cloud.source if account else cloud.without_account()
    quoted = {
        quote.offer.key: micro_usd(quote.price_text) for quote in source.quotes() if quote.offer.gpu in GPUS
    }
    assert quoted == {key: cloud.world.price(key) for key in cloud.world.pools if key.startswith("azure/")}


def test_without_an_account_nobody_but_the_price_list_is_asked(cloud: Azure) -> None:
    source = cloud.without_account()
    source.quotes()
    assert {request.path for request in cloud.face.requests} == {PATH}
    assert not [request for request in cloud.face.requests if "authorization" in request.headers]
    assert (source.availability(), source.price_history(0)) == ((), ())


def test_a_price_change_carries_its_own_date(cloud: Azure) -> None:
    changed_ms = cloud.clock.advance(600) // 1000 * 1000
    cloud.world.set_price(H100_SPOT, 3_000_001)
    cloud.clock.advance(120)
    quote = cloud.quoted()[H100_SPOT]
    assert (micro_usd(quote.price_text), quote.effective_at_ms) == (3_000_001, changed_ms)


def test_the_list_has_every_row_that_traps_and_the_market_believes_what_is_left(cloud: Azure) -> None:
    """What the provider is up against: without these rows, the tests of its choice would prove nothing."""
    reply = httpx.get(
        f"{cloud.options['endpoint_retail']}{PATH}",
        params={"$filter": "armRegionName eq 'eastus'"},
        verify=ssl.create_default_context(cafile=cloud.options["ca_file"]),
    )
    rows = [row for row in reply.json()["Items"] if row["armSkuName"] == "Standard_NC40ads_H100_v5"]
    assert {row["type"] for row in rows} == {"Consumption", "DevTestConsumption", "Reservation"}
    for wanted in ("Windows", "Low Priority", "Cloud Services", "DedicatedHost"):
        assert [row for row in reply.json()["Items"] if wanted in row["productName"] + row["skuName"]], wanted
    assert [row for row in rows if not row["isPrimaryMeterRegion"]]
    assert [row for row in rows if ("Spot" in row["meterName"]) != ("Spot" in row["skuName"])]
    assert len({row["effectiveStartDate"] for row in rows}) == 3
    sifted = sift(cloud.source.quotes(), cloud.clock.now_ms(), {}, {})
    assert {quote.offer.key for quote in sifted.quotes} == {
        key for key in cloud.world.pools if key.startswith("azure/")
    }
    assert {doubt.reason for doubt in sifted.doubts.values()} == {
        "unknown GPU 'GB200-192GB'",
        "unknown GPU 'Standard_ND96isrf_H200_v5'",
    }


def test_filters_are_written_in_the_case_that_the_list_has(cloud: Azure) -> None:
    cloud.source.quotes()
    (asked, _) = cloud.face.asked(PATH)
    assert asked.param("api-version") == "2023-01-01-preview"
    assert asked.param("$filter") == (
        "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and armRegionName eq 'eastus'"
    )
    with pytest.raises(SettingsError, match=r"clouds\.azure\.regions"):
        cloud.opened_with(regions=["EastUS"])


def test_dollars_are_pinned_and_another_currency_is_told(cloud: Azure) -> None:
    cloud.fault(FaultKind.WRONG_CURRENCY)
    assert {quote.currency for quote in cloud.source.quotes()} == {"EUR", "USD"}
    assert {request.param("currencyCode") for request in cloud.face.asked(PATH)} == {"'USD'"}
    assert "currency" not in cloud.face.asked(PATH)[0].param("$filter")


def test_one_query_a_region(cloud: Azure) -> None:
    cloud.source.quotes()
    regions = [request.param("$filter").split("'")[-2] for request in cloud.face.asked(PATH)]
    assert regions == ["eastus", "westus3"]


def test_a_region_without_a_row_is_a_mistake_and_not_an_empty_market(cloud: Azure) -> None:
    with pytest.raises(Invalid, match=r"eastsu.*is the region's name right"):
        cloud.opened_with(regions=["eastsu"]).quotes()


# Sizes


@pytest.mark.parametrize("account", [True, False], ids=["account", "no account"])
def test_nd96isr_h100_v5_has_eight_gpus(cloud: Azure, account: bool) -> None:
    source = cloud.source if account else cloud.without_account()
    (offer,) = {quote.offer for quote in source.quotes() if quote.offer.key == ND_H100}
    assert (offer.gpu, offer.gpus, offer.vcpus, offer.memory_gib) == ("H100-SXM5-80GB", 8, 96, 1900)
    assert (offer.interconnect, offer.fabric) == ("nvlink", "infiniband")


def test_a_size_that_nobody_here_knows_is_told_with_its_own_name(cloud: Azure) -> None:
    by_size = {quote.offer.instance_type: quote.offer for quote in cloud.source.quotes()}
    told = by_size["Standard_ND96isrf_H200_v5"]
    assert (told.gpu, told.gpus) == ("Standard_ND96isrf_H200_v5", 8)
    without = {quote.offer.instance_type: quote.offer for quote in cloud.without_account().quotes()}
    assert without["Standard_ND96isrf_H200_v5"].gpus == 0


def test_parts_of_a_gpu_fpgas_and_plain_machines_are_left_out(cloud: Azure) -> None:
    quoted = {quote.offer.instance_type for quote in cloud.source.quotes()}
    listed = {row["armSkuName"] for row in cloud.face.rows}
    for size in ("Standard_NV6ads_A10_v5", "Standard_NP10s", "Standard_D4s_v5"):
        assert size in listed
        assert size not in quoted


def test_a_count_that_azure_and_the_table_do_not_agree_on_is_doubted(cloud: Azure) -> None:
    def twelve(request: Request, reply: Reply) -> Reply:
        text = reply.body.decode().replace(
            '{"name": "GPUs", "value": "8"}, {"name": "vCPUs", "value": "96"}, {"name": "MemoryGB", "value": "1900"}',
            '{"name": "GPUs", "value": "12"}, {"name": "vCPUs", "value": "96"}, {"name": "MemoryGB", "value": "1900"}',
        )
        return Reply(reply.status, text.encode(), reply.headers)

    cloud.face.change = twelve
    sifted = sift(cloud.source.quotes(), cloud.clock.now_ms(), {}, {})
    assert sifted.doubts[ND_H100].reason == "unknown GPU 'H100-SXM5-80GB (8 by our table, 12 by Azure)'"
    assert H100 not in sifted.doubts


def test_of_what_azure_lists_only_machines_are_sizes(cloud: Azure) -> None:
    told = skus.sizes(Clients(parse(cloud.options)), "eastus")
    assert "Standard_D4s_v5" in told
    assert "StandardSSD_LRS" not in told
    assert {name for name, one in told.items() if one.restricted} == {"Standard_ND96isr_H100_v5"}, (
        "a machine whose zones are closed can still be had without one"
    )


def test_sizes_are_read_once_a_day(cloud: Azure) -> None:
    for hours, reads in ((0, 2), (23, 2), (2, 4)):
        cloud.clock.advance(hours * 3600)
        cloud.source.quotes()
        assert len(cloud.face.asked("/skus")) == reads


# What goes wrong


def test_too_many_calls_say_when_to_come_back(cloud: Azure) -> None:
    cloud.fault(FaultKind.THROTTLE)
    with pytest.raises(Throttled) as caught:
        cloud.source.quotes()
    assert caught.value.retry_after_s == 7
    assert len(cloud.face.asked(PATH)) == 1


@pytest.mark.parametrize(
    "kind", [FaultKind.HTTP_500, FaultKind.REQUEST_LOST, FaultKind.REPLY_LOST, FaultKind.WRONG_SHAPE]
)
def test_what_is_no_answer_fails_the_poll_once(cloud: Azure, kind: FaultKind) -> None:
    cloud.fault(kind)
    with pytest.raises(ProviderDown, match="azure: reading the price list of eastus"):
        cloud.source.quotes()
    assert len(cloud.face.asked(PATH)) == 1
    assert cloud.source.quotes()


def test_a_slow_price_list_is_not_waited_for(cloud: Azure) -> None:
    cloud.fault(FaultKind.SLOW, seconds=30)
    started = time.monotonic()
    with pytest.raises(ProviderDown, match="no answer from 127"):
        cloud.without_account(read_timeout_s=0.3).quotes()
    assert time.monotonic() - started < 15


def test_no_network_is_told_quickly_and_with_the_host(cloud: Azure) -> None:
    nowhere = f"https://127.0.0.1:{closed_port()}"
    started = time.monotonic()
    with pytest.raises(ProviderDown, match=nowhere.removeprefix("https://")):
        cloud.without_account(endpoint_retail=nowhere).quotes()
    assert time.monotonic() - started < 15


def test_a_certificate_of_another_is_not_trusted(cloud: Azure) -> None:
    with pytest.raises(ProviderDown, match="certificate verify failed"):
        cloud.without_account(ca_file=None).quotes()


def test_a_price_list_that_has_stopped_is_told_by_doctor(cloud: Azure) -> None:
    """Spot rows are republished by the month, each with its last day."""
    assert cloud.check("prices of eastus").ok is True
    cloud.clock.advance(50 * 86_400)
    cloud.world.set_price(H100_SPOT, 3_000_000)
    assert "took effect 0s ago" in cloud.check("prices of eastus").detail
    cloud.fault(FaultKind.STALE, count=None)
    stopped = cloud.check("prices of eastus")
    assert stopped.ok is False
    assert "Standard_NC40ads_H100_v5 spot" in stopped.detail
    assert "the last day has passed of " in stopped.detail
    assert H100_SPOT not in cloud.quoted(), "an old price is none; what the market has of it ages"
    assert H100 in cloud.quoted()


# As the rest of the broker sees it


def test_nothing_can_be_rented(cloud: Azure) -> None:
    with pytest.raises(SettingsError, match="only the prices"):
        open_provider("azure", cloud.options, cloud.clock, INSTALLATION)


def test_vendor_endpoints_are_those_that_are_in_use() -> None:
    retail, arm, login = (
        "https://prices.azure.com",
        "https://management.azure.com",
        "https://login.microsoftonline.com",
    )
    plain = {"regions": ["eastus"]}
    assert vendor_endpoints("azure", plain) == [retail]
    account = plain | {"subscription_id": SUBSCRIPTION}
    assert vendor_endpoints("azure", account) == [retail, arm, login]
    lab = "https://127.0.0.1:8443"
    redirected = {"endpoint_retail": lab, "endpoint_arm": lab, "endpoint_login": lab}
    assert vendor_endpoints("azure", account | redirected) == []


def emptied(request: Request, reply: Reply) -> Reply:
    """A list that has rows, none of which is of a machine with GPUs."""
    if request.path != PATH:
        return reply
    page = json.loads(reply.body)
    for row in page["Items"]:
        row["armSkuName"] = "Standard_D2_v5"
    return Reply.of_json(page)


def test_a_list_without_any_size_of_ours_is_a_failed_poll(cloud: Azure) -> None:
    cloud.face.change = emptied
    with pytest.raises(ProviderDown, match="the price lists of eastus, westus3 have no machine with GPUs"):
        cloud.source.quotes()
    assert cloud.check("prices of eastus").ok is False


def test_a_region_that_had_prices_and_has_none_is_a_failed_poll(cloud: Azure) -> None:
    assert cloud.source.quotes()
    cloud.face.change = lambda request, reply: (
        emptied(request, reply) if "westus3" in request.param("$filter") else reply
    )
    with pytest.raises(ProviderDown, match="the price lists of westus3 have no machine with GPUs"):
        cloud.source.quotes()
    # One that never had any is a region without GPUs.
    assert {quote.offer.region for quote in cloud.opened_with().quotes()} == {"eastus"}
