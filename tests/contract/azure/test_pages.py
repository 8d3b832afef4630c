"""A price list of Azure comes in pages, and is read whole or not at all."""

import json
import tracemalloc
from typing import Any

import httpx
import pytest

from broker.core.errors import ProviderDown
from broker.core.gpu import GPUS
from lab.faces import Reply, Request
from lab.faces.azure_retail import PATH
from lab.faults import FaultKind
from lab.tls import Authority
from lab.world import World
from tests.clocks import ManualClock
from tests.contract.azure.conftest import H100, Azure, cloud_over

pytestmark = pytest.mark.process


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
