"""Prices of Azure: the real clients over real HTTPS, against the lab's face and Microsoft's own models."""

import json
import socket
import ssl
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import jsonschema
import pytest

from broker.core.availability import Availability, Signal, Unanswered
from broker.core.errors import Denied, Invalid, ProviderDown, ProviderError, SettingsError, Throttled
from broker.core.gpu import GPUS
from broker.core.money import micro_usd
from broker.core.offer import Market, RawQuote
from broker.core.ports import Check
from broker.market.quarantine import sift
from lab.faces import Reply, Request, azure
from lab.faces.azure_models import find, problems, reply_problems
from lab.faces.azure_retail import PATH
from lab.faces.azure_tokens import Account
from lab.faults import Fault, FaultKind
from lab.serving import HttpServer
from lab.tls import Authority
from lab.world import World
from providers.azure import skus
from providers.azure.clients import Clients
from providers.azure.settings import parse
from providers.azure.source import AzurePrices
from providers.registry import open_provider, open_source, vendor_endpoints
from tests.clocks import ManualClock
from tests.contract.conftest import INSTALLATION

pytestmark = pytest.mark.process

TENANT, SUBSCRIPTION, CLIENT = (f"a2000000-0000-4000-8000-00000000000{n}" for n in "123")
ACCOUNT = Account(TENANT, SUBSCRIPTION, CLIENT, "lab-secret")
SECRET = "LAB_AZURE_SECRET"
RETAIL = "RetailPrices"
H100_SPOT = "azure/eastus/Standard_NC40ads_H100_v5/spot"
H100 = "azure/eastus/Standard_NC40ads_H100_v5/on_demand"
ND_H100 = "azure/eastus/Standard_ND96isr_H100_v5/on_demand"

# As documented at learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices.
_TEXTS = (
    "currencyCode", "armRegionName", "location", "effectiveStartDate", "meterId", "meterName", "productId", "skuId",
    "productName", "skuName", "serviceName", "serviceId", "serviceFamily", "unitOfMeasure", "type", "armSkuName",
)  # fmt: skip
_NUMBERS = ("tierMinimumUnits", "retailPrice", "unitPrice")
_ROW = {
    "type": "object",
    "properties": {
        **{name: {"type": "string"} for name in (*_TEXTS, "effectiveEndDate", "reservationTerm")},
        **{name: {"type": "number"} for name in _NUMBERS},
        "isPrimaryMeterRegion": {"type": "boolean"},
        "savingsPlan": {"type": "array"},
    },
    "required": [*_TEXTS, *_NUMBERS, "isPrimaryMeterRegion"],
    "additionalProperties": False,
}
_PAGE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "BillingCurrency": {"type": "string"},
        "CustomerEntityId": {"type": "string"},
        "CustomerEntityType": {"type": "string"},
        "Items": {"type": "array", "items": _ROW},
        "NextPageLink": {"type": ["string", "null"]},
        "Count": {"type": "integer"},
    },
    "additionalProperties": False,
}
_PAGE["required"] = list(_PAGE["properties"])


@dataclass
class Face:
    """The face; every request and every reply is compared with its schema on the way."""

    handler: Callable[[Request], Reply]
    requests: list[Request] = field(default_factory=list)
    pages: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    keep_pages: bool = True
    change: Callable[[Request, Reply], Reply] = lambda request, reply: reply

    def __call__(self, request: Request) -> Reply:
        self.requests.append(request)
        reply = self.handler(request)
        if reply.status == 200:
            self._compare(request, reply)
        return self.change(request, reply)

    def _compare(self, request: Request, reply: Reply) -> None:
        if request.path == PATH:
            if self.keep_pages:
                page = json.loads(reply.body)
                self.pages.append(page)
                errors = jsonschema.Draft202012Validator(_PAGE).iter_errors(page)
                self.problems += [f"{error.json_path}: {error.message}" for error in errors]
        elif found := find(request.method, request.path):
            operation, _ = found
            self.problems += reply_problems(operation, json.loads(reply.body))
            if operation.request is not None:
                self.problems += problems(operation.request, request.json())

    def asked(self, path: str) -> list[Request]:
        """Requests whose path ends so."""
        return [request for request in self.requests if request.path.endswith(path)]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every row that was sent."""
        return [row for page in self.pages for row in page["Items"]]


@dataclass
class Azure:
    """A source of prices, and the world behind it."""

    source: AzurePrices
    options: Mapping[str, Any]
    world: World
    face: Face
    clock: ManualClock

    def fault(
        self, kind: FaultKind, operation: str = RETAIL, count: int | None = 1, seconds: float = 0.0
    ) -> None:
        """Let the next calls go wrong."""
        self.world.faults.add(Fault("azure", operation, kind, count, seconds))

    def opened_with(self, **options: Any) -> AzurePrices:
        """Another source, with other options; None leaves one out."""
        changed = {key: value for key, value in {**self.options, **options}.items() if value is not None}
        source = open_source("azure", changed, self.clock, INSTALLATION)
        assert isinstance(source, AzurePrices)
        return source

    def without_account(self, **options: Any) -> AzurePrices:
        """As most people open it."""
        return self.opened_with(subscription_id=None, tenant_id=None, client_id=None, **options)

    def quoted(self) -> dict[str, RawQuote]:
        """By offer key."""
        return {quote.offer.key: quote for quote in self.source.quotes()}

    def check(self, name: str) -> Check:
        """The line that starts so."""
        (found,) = (check for check in self.source.check() if check.name.startswith(f"azure: {name}"))
        return found


def cloud_over(world: World, clock: ManualClock, authority: Authority, filler: int = 0) -> Iterator[Azure]:
    face = Face(azure.create(world, ACCOUNT, filler))
    server = HttpServer(face, authority.server_context()).start()
    options = {
        "regions": ["eastus", "westus3"],
        "subscription_id": SUBSCRIPTION,
        "tenant_id": TENANT,
        "client_id": CLIENT,
        "client_secret_env": SECRET,
        "ca_file": str(authority.ca_file),
        "endpoint_retail": server.url,
        "endpoint_arm": server.url,
        "endpoint_login": server.url,
    }
    source = open_source("azure", options, clock, INSTALLATION)
    assert isinstance(source, AzurePrices)
    yield Azure(source, options, world, face, clock)
    assert face.problems == []
    server.stop()


@pytest.fixture
def cloud(
    world: World, clock: ManualClock, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Azure]:
    monkeypatch.setenv(SECRET, ACCOUNT.client_secret)
    yield from cloud_over(world, clock, authority)


@pytest.fixture
def large(
    world: World, clock: ManualClock, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Azure]:
    """A region as large as a real one."""
    monkeypatch.setenv(SECRET, ACCOUNT.client_secret)
    yield from cloud_over(world, clock, authority, filler=12_000)


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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


# Pages


def test_links_to_the_next_page_are_followed_as_they_were_given(large: Azure) -> None:
    large.opened_with(regions=["westus3"]).quotes()
    assert [page["Count"] for page in large.face.pages[:12]] == [1000] * 12
    assert len(large.face.pages) == 13
    for page, request in zip(large.face.pages, large.face.asked(PATH)[1:], strict=False):
        given = httpx.URL(page["NextPageLink"])
        assert list(request.query) == list(given.params.multi_items())


def test_prices_on_every_page_are_found(large: Azure) -> None:
    large.face.keep_pages = False
    quoted = {quote.offer.key for quote in large.source.quotes() if quote.offer.gpu in GPUS}
    assert quoted == {key for key in large.world.pools if key.startswith("azure/")}


def test_a_walk_of_a_whole_region_holds_one_page_at_a_time(large: Azure) -> None:
    large.face.keep_pages = False
    source = large.without_account(regions=["eastus"])
    source.quotes()  # what is made once is made
    tracemalloc.start()
    try:
        quotes = source.quotes()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        every_row = list(source._retail.rows("eastus"))
        whole, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(quotes) == 12
    assert len(every_row) > 12_000
    # The server shares our memory: a page there as rows and as text, and the same here.
    assert peak < 10 << 20
    assert whole > 3 * peak


@pytest.mark.parametrize(
    "link",
    [
        "https://elsewhere.example/api/retail/prices?$skip=1000",
        "http://127.0.0.1:{port}/api/retail/prices?$skip=1000",
        "https://127.0.0.1:1/api/retail/prices?$skip=1000",
        "https://user@127.0.0.1:{port}/api/retail/prices",
        "//elsewhere.example/",
        "file:///etc/passwd",
        "https://[::1",
    ],
)
def test_a_link_to_another_place_is_not_followed(cloud: Azure, link: str) -> None:
    url = httpx.URL(cloud.options["endpoint_retail"])

    def elsewhere(request: Request, reply: Reply) -> Reply:
        page = json.loads(reply.body) | {"NextPageLink": link.format(port=url.port)}
        return Reply.of_json(page)

    cloud.face.change = elsewhere
    with pytest.raises(ProviderDown, match="links to another host, which is not followed"):
        cloud.without_account().quotes()
    assert len(cloud.face.asked(PATH)) == 1


def test_a_redirect_is_not_followed(cloud: Azure) -> None:
    cloud.face.change = lambda request, reply: Reply(302, b"", {"Location": "https://elsewhere.example/"})
    with pytest.raises(
        ProviderDown, match=r"redirected to https://elsewhere\.example/, which is not followed"
    ):
        cloud.without_account().quotes()


def test_a_page_that_links_to_itself_ends(cloud: Azure) -> None:
    def same(request: Request, reply: Reply) -> Reply:
        link = f"{cloud.options['endpoint_retail']}{PATH}?$skip=1000"
        return Reply.of_json(json.loads(reply.body) | {"NextPageLink": link})

    cloud.face.change = same
    with pytest.raises(ProviderDown, match="one that was read before"):
        cloud.without_account().quotes()
    assert len(cloud.face.asked(PATH)) == 2


def test_half_a_price_list_is_none(cloud: Azure) -> None:
    cloud.fault(FaultKind.PARTIAL_PAGE)
    with pytest.raises(ProviderDown, match="HTTP 500"):
        cloud.source.quotes()


def test_a_list_that_lost_the_link_to_its_second_page_is_none(large: Azure) -> None:
    large.fault(FaultKind.LINK_LOST)
    with pytest.raises(ProviderDown, match="ends after 1000 rows, and there are more"):
        large.source.quotes()


def test_a_last_page_that_is_full_is_a_last_page(
    world: World, clock: ManualClock, authority: Authority
) -> None:
    for filler in (1000, 999):  # how many rows of other machines make a thousand with those of ours?
        for cloud in cloud_over(world, clock, authority, filler):
            cloud.without_account(regions=["eastus"]).quotes()
            count = sum(page["Count"] for page in cloud.face.pages)
    full = 1000 - (count - 999)
    for cloud in cloud_over(world, clock, authority, full):
        assert len(cloud.without_account(regions=["eastus"]).quotes()) == 12
        assert [page["Count"] for page in cloud.face.pages] == [1000, 0]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"Count": 7}, "says 7 rows and has"),
        ({"Items": None}, "Items is no list"),
        ({"Items": ["x"], "Count": 1}, "Items is no list of rows"),
        ({"NextPageLink": ["x"]}, "NextPageLink is no link"),
    ],
)
def test_a_page_of_another_shape_is_told(cloud: Azure, change: dict[str, Any], why: str) -> None:
    cloud.face.change = lambda request, reply: Reply.of_json(json.loads(reply.body) | change)
    with pytest.raises(ProviderDown, match=why):
        cloud.without_account().quotes()


@pytest.mark.parametrize("key", ["Items", "NextPageLink", "Count"])
def test_a_page_that_lacks_something_is_told(cloud: Azure, key: str) -> None:
    def without(request: Request, reply: Reply) -> Reply:
        page = json.loads(reply.body)
        del page[key]
        return Reply.of_json(page)

    cloud.face.change = without
    with pytest.raises(ProviderDown, match=f"unreadable page.*{key}"):
        cloud.without_account().quotes()


def test_a_price_keeps_every_digit_that_was_written(cloud: Azure) -> None:
    """Numbers of JSON are no floats before somebody makes them so."""

    def exact(request: Request, reply: Reply) -> Reply:
        return Reply(
            reply.status, reply.body.replace(b": 6.98,", b": 6.98000000000000000042,"), reply.headers
        )

    cloud.face.change = exact
    quotes = {quote.offer.key: quote.price_text for quote in cloud.without_account().quotes()}
    assert quotes[H100] == "6.98000000000000000042"


def test_a_row_of_ours_that_cannot_be_read_fails_the_list(cloud: Azure) -> None:
    def undated(request: Request, reply: Reply) -> Reply:
        page = json.loads(reply.body)
        for row in page["Items"]:
            row["effectiveStartDate"] = "yesterday"
        return Reply.of_json(page)

    cloud.face.change = undated
    with pytest.raises(ProviderDown, match=r"eastus: 'yesterday' is not a date"):
        cloud.without_account().quotes()


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
    with pytest.raises(ProviderDown, match="CERTIFICATE_VERIFY_FAILED"):
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


# What a subscription adds


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


# Doctor


def test_check_has_a_line_for_each_thing(cloud: Azure) -> None:
    lines = {check.name.removeprefix("azure: "): check for check in cloud.source.check()}
    assert {check.ok for check in lines.values()} == {True}
    assert {name.partition(" in ")[0] for name in lines if name.startswith("quota")} == {
        "quota lowPriorityCores",
        "quota Standard NCASv3_T4 Family",
        "quota StandardNVADSA10v5Family",
        "quota StandardNCADSA100v4Family",
        "quota StandardNCadsH100v5Family",
        "quota standardNDSH100v5Family",
        "quota standardNDISRGB200V6NDRFamily",
        "quota standardNDISRH200V5Family",
    }
    assert lines["quota lowPriorityCores in westus3"].detail == "0 of 480 vCPUs used"
    assert lines["token"].detail == f"application {CLIENT}"
    assert lines["sizes of eastus"].detail == (
        "7 GPU sizes; not for this subscription: Standard_ND96isr_H100_v5 (NotAvailableForSubscription)"
    )
    assert lines["Resource Graph"].detail == "10 eviction rates"
    assert lines["prices of eastus"].detail == (
        "12 prices of GPU sizes, 5 of them spot; the newest took effect 3d ago"
    )


@pytest.mark.parametrize(
    ("operation", "lines"),
    [
        (RETAIL, ["prices of eastus", "prices of westus3"]),
        ("ResourceSkus_List", ["sizes of eastus", "sizes of westus3"]),
        ("Usage_List", ["quotas of eastus", "quotas of westus3"]),
        ("Resources", ["Resource Graph"]),
    ],
)
def test_a_right_that_is_missing_fails_its_own_line(cloud: Azure, operation: str, lines: list[str]) -> None:
    cloud.fault(FaultKind.DENIED, operation, count=None)
    failed = [check.name for check in cloud.source.check() if check.ok is False]
    assert failed == [f"azure: {line}" for line in lines]


def test_check_without_an_account_says_so(cloud: Azure) -> None:
    *prices, account = cloud.without_account().check()
    assert [check.ok for check in prices] == [True, True]
    assert (account.name, account.ok) == ("azure: account", None)


def test_check_never_raises(cloud: Azure) -> None:
    cloud.fault(FaultKind.DOWN, "*", count=None)
    assert {check.ok for check in cloud.source.check()} == {False}


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
