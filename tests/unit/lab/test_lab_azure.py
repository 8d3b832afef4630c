"""Azure's face without HTTP: the filter, the query language, Microsoft's models, and who may call."""

import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from lab.faces import DropConnection, Reply, Request, azure
from lab.faces.azure_filter import BadFilter, parse
from lab.faces.azure_meters import Meters, row
from lab.faces.azure_models import find, operations, problems, reply_problems
from lab.faces.azure_retail import PATH
from lab.faces.azure_tokens import LIFE_S, SCOPE, Account
from lab.faults import Fault, FaultKind
from lab.world import World
from tests.clocks import ManualClock

TENANT, SUBSCRIPTION, CLIENT = (f"a2000000-0000-4000-8000-00000000000{n}" for n in "123")
ACCOUNT = Account(TENANT, SUBSCRIPTION, CLIENT, "lab-secret")
COMPUTE = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute"
GRAPH = "/providers/Microsoft.ResourceGraph/resources"
PREVIEW = {"api-version": "2023-01-01-preview"}
SPOT = "azure/eastus/Standard_NC40ads_H100_v5/spot"

Call = Callable[..., Reply]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def world(clock: ManualClock) -> World:
    return World(clock)


@pytest.fixture
def call(world: World) -> Call:
    """One request to the face: method, path, body, query, token."""
    handler = azure.create(world, ACCOUNT)

    def call(
        method: str,
        path: str,
        body: bytes = b"",
        query: dict[str, str] | None = None,
        token: str | None = None,
    ) -> Reply:
        headers = {"host": "127.0.0.1:8443"} | ({"authorization": f"Bearer {token}"} if token else {})
        return handler(Request(method, path, tuple((query or {}).items()), headers, body))

    return call


def prices(call: Call, **query: str) -> dict[str, Any]:
    reply = call("GET", PATH, query=query)
    assert reply.status == 200, reply.body
    document: dict[str, Any] = json.loads(reply.body)
    return document


def token(call: Call, **changes: str) -> Reply:
    form = {
        "grant_type": "client_credentials",
        "client_id": CLIENT,
        "client_secret": "lab-secret",
        "scope": SCOPE,
    }
    return call("POST", f"/{TENANT}/oauth2/v2.0/token", urlencode(form | changes).encode())


def graph(call: Call, query: str, **options: Any) -> Reply:
    good = json.loads(token(call).body)["access_token"]
    body = {
        "subscriptions": [SUBSCRIPTION],
        "query": query,
        "options": {"resultFormat": "objectArray"} | options,
    }
    return call("POST", GRAPH, json.dumps(body).encode(), {"api-version": "2024-04-01"}, good)


# The filter


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("", True),
        ("serviceName eq 'Virtual Machines'", True),
        ("serviceName eq 'virtual machines'", False),
        ("armRegionName eq 'EastUS'", False),
        ("priceType eq 'Consumption' and armRegionName eq 'eastus'", True),
        ("priceType eq 'Reservation'", False),
        ("armSkuName ne 'Standard_D4s_v5'", False),
        ("contains(productName,'Dsv5')", True),
        ("contains(productName, 'Windows') eq false", True),
        ("contains(meterName,'Low Priority') eq true", False),
        ("meterName eq 'D4s and v5'", False),
        ("productName eq 'it''s'", False),
        ("currencyCode eq 'USD'", False),
    ],
)
def test_filters(text: str, accepted: bool) -> None:
    sample = row("eastus", "Standard_D4s_v5", "Virtual Machines Dsv5 Series", "D4s v5", "D4s v5", 0.192, "x")
    assert parse(text, with_case=True)(sample) is accepted


def test_whatever_the_lab_has_of_azure_can_be_made_to_fail(world: World) -> None:
    managed = {operation.id for operation in operations()}
    assert set(azure.create(world, ACCOUNT).operations) == {azure.RETAIL, azure.TOKEN} | managed


def test_before_the_preview_values_had_no_case(call: Call) -> None:
    asked = {"$filter": "armRegionName eq 'EASTUS'"}
    assert prices(call, **asked)["Count"] > 0
    assert prices(call, **asked, **PREVIEW)["Count"] == 0


@pytest.mark.parametrize(
    "text", ["serviceName = 'x'", "x eq 'y'", "a or b", "serviceName eq x", "contains(x)"]
)
def test_a_filter_of_another_grammar_is_refused(call: Call, text: str) -> None:
    with pytest.raises(BadFilter):
        parse(text, with_case=True)
    assert call("GET", PATH, query={"$filter": text}).status == 400


def test_the_filter_of_gpuhunt_finds_both_prices_of_a_machine(call: Call) -> None:
    """Another client's question, as its source has it."""
    text = (
        "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and contains(productName, 'Windows') eq false"
        " and contains(productName, 'Dedicated') eq false and contains(meterName, 'Low Priority') eq false"
        " and armRegionName eq 'eastus'"
    )
    rows = [
        row
        for row in prices(call, **{"$filter": text})["Items"]
        if row["armSkuName"] == "Standard_NC4as_T4_v3"
    ]
    assert {0.526, 0.204246} <= {row["retailPrice"] for row in rows}
    assert len(rows) > 2, "it does not ask for the primary region, nor for the date"


# Pages and money


def test_pages_join_to_the_whole_list(world: World) -> None:
    handler = azure.create(world, ACCOUNT, filler=2500)
    url, rows, counts = f"https://127.0.0.1:8443{PATH}", [], []
    while url:
        parts = urlsplit(url)
        query = tuple(parse_qsl(parts.query))
        page = json.loads(handler(Request("GET", parts.path, query, {"host": parts.netloc}, b"")).body)
        rows += page["Items"]
        counts.append(page["Count"])
        url = page["NextPageLink"]
    assert rows == list(Meters(world, 2500).rows(world.now_s()))
    assert counts == [1000] * (len(rows) // 1000) + [len(rows) % 1000]


def test_ids_follow_from_the_thing_and_not_from_its_date(world: World) -> None:
    rows = [row for row in Meters(world).rows(world.now_s()) if row["armSkuName"] == "Standard_NC4as_T4_v3"]
    linux = [
        row
        for row in rows
        if (row["armRegionName"], row["skuName"]) == ("eastus", "NC4as T4 v3")
        and row["productName"].endswith("Series")
        and (row["type"], row["isPrimaryMeterRegion"]) == ("Consumption", True)
        and row["meterName"] == row["skuName"]
    ]
    assert len(linux) == 3, "one that was, one that is, one that will be"
    assert len({row["meterId"] for row in linux}) == 1


def test_other_currencies_are_converted(call: Call) -> None:
    euro, dollar = prices(call, currencyCode="'EUR'"), prices(call)
    assert (euro["BillingCurrency"], dollar["BillingCurrency"]) == ("EUR", "USD")
    assert euro["Items"][0]["retailPrice"] < dollar["Items"][0]["retailPrice"]
    assert call("GET", PATH, query={"currencyCode": "'GALLEON'"}).status == 400


def test_a_list_that_stands_still_has_the_prices_of_the_first_day(
    call: Call, world: World, clock: ManualClock
) -> None:
    clock.advance(100)
    world.set_price(SPOT, 9_000_000)
    asked = {"$filter": "armSkuName eq 'Standard_NC40ads_H100_v5'"}
    assert 9.0 in {row["retailPrice"] for row in prices(call, **asked)["Items"]}
    world.faults.add(Fault("azure", "RetailPrices", FaultKind.STALE))
    assert 9.0 not in {row["retailPrice"] for row in prices(call, **asked)["Items"]}


# Who may call


def test_a_token_is_good_for_an_hour_of_real_time(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    document = json.loads(token(call).body)
    assert (document["token_type"], document["expires_in"]) == ("Bearer", LIFE_S - 1)
    good, asked = document["access_token"], {"api-version": "2021-07-01"}
    assert call("GET", f"{COMPUTE}/skus", query=asked, token=good).status == 200
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + LIFE_S + 1)
    expired = call("GET", f"{COMPUTE}/skus", query=asked, token=good)
    assert (expired.status, json.loads(expired.body)["error"]["code"]) == (401, "ExpiredAuthenticationToken")


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"client_secret": "x"}, 401, "AADSTS7000215"),
        ({"client_id": "x"}, 400, "AADSTS700016"),
        ({"grant_type": "password"}, 400, "AADSTS900144"),
        ({"scope": "https://graph.microsoft.com/.default"}, 400, "AADSTS900144"),
    ],
)
def test_credentials_that_are_not_good(call: Call, changes: dict[str, str], status: int, code: str) -> None:
    reply = token(call, **changes)
    assert reply.status == status
    assert json.loads(reply.body)["error_description"].startswith(code)


def test_another_tenant_is_not_found(call: Call) -> None:
    reply = call("GET", "/other/v2.0/.well-known/openid-configuration")
    assert json.loads(reply.body)["error_description"].startswith("AADSTS90002")


@pytest.mark.parametrize(
    ("path", "query", "good", "status", "code"),
    [
        (f"{COMPUTE}/skus", {"api-version": "x"}, None, 401, "AuthenticationFailed"),
        (f"{COMPUTE}/skus", {"api-version": "x"}, "nonsense", 401, "InvalidAuthenticationToken"),
        (f"{COMPUTE}/skus", {}, "", 400, "MissingApiVersionParameter"),
        (f"{COMPUTE}/virtualMachines", {"api-version": "x"}, "", 404, "InvalidResourceType"),
        (COMPUTE.replace("2", "9") + "/skus", {"api-version": "x"}, "", 404, "SubscriptionNotFound"),
        (f"{COMPUTE}/skus", {"api-version": "x", "$filter": "family eq 'x'"}, "", 400, "InvalidFilter"),
        (f"{COMPUTE}/locations/mars/usages", {"api-version": "x"}, "", 400, "NoRegisteredProviderFound"),
    ],
)
def test_refusals(
    call: Call, path: str, query: dict[str, str], good: str | None, status: int, code: str
) -> None:
    if good == "":
        good = json.loads(token(call).body)["access_token"]
    reply = call("GET", path, query=query, token=good)
    assert (reply.status, json.loads(reply.body)["error"]["code"]) == (status, code)


def test_a_lost_request_is_not_performed_and_others_are(call: Call, world: World) -> None:
    world.faults.add(Fault("azure", "Token", FaultKind.REQUEST_LOST))
    with pytest.raises(DropConnection):
        token(call)
    assert token(call).status == 200


# The query language


def test_queries_select_and_name_columns(call: Call) -> None:
    reply = graph(
        call,
        "SpotResources | where type =~ 'Microsoft.Compute/skuSpotEvictionRate/location'"
        " | where sku.name in~ ('Standard_NC40ads_H100_v5', 'standard_nc4as_t4_v3') and location in~ ('eastus')"
        " | project skuName = tostring(sku.name), location, rate = properties.evictionRate"
        " | order by skuName asc, location asc",
    )
    assert json.loads(reply.body)["data"] == [
        {"skuName": "standard_nc40ads_h100_v5", "location": "eastus", "rate": "15-20"},
        {"skuName": "standard_nc4as_t4_v3", "location": "eastus", "rate": "0-5"},
    ]


def test_queries_are_paged(call: Call) -> None:
    query, found, skip = "SpotResources | where location =~ 'eastus' | project location", [], None
    while True:
        page = json.loads(graph(call, query, **{"$top": 4}, **({"$skipToken": skip} if skip else {})).body)
        found.append(page["count"])
        skip = page.get("$skipToken")
        if not skip:
            break
    assert found == [4, 4, 4, 3]
    assert page["totalRecords"] == 15


@pytest.mark.parametrize(
    "query",
    [
        "Resources | project id",
        "SpotResources | summarize count()",
        "SpotResources | where price > 3",
        "SpotResources | project x = round(price)",
    ],
)
def test_a_query_beyond_the_grammar_is_refused(call: Call, query: str) -> None:
    reply = graph(call, query)
    assert (reply.status, json.loads(reply.body)["error"]["code"]) == (400, "BadRequest")


def test_another_subscription_is_not_ours_to_ask_about(call: Call) -> None:
    good = json.loads(token(call).body)["access_token"]
    body = json.dumps({"query": "SpotResources", "subscriptions": ["other"]}).encode()
    assert call("POST", GRAPH, body, {"api-version": "x"}, good).status == 403


# Microsoft's models


def test_a_body_that_does_not_fit_its_model_is_refused(call: Call) -> None:
    good = json.loads(token(call).body)["access_token"]
    for body, where in (
        (b'{"subscriptions": []}', "QueryRequest.query: missing"),
        (b'{"query": 5}', "QueryRequest.query: 5 is no str"),
        (b'{"query": "x", "option": {}}', "QueryRequest.option: unknown name"),
        (b'{"query": "x", "options": {"$top": "many"}}', "QueryRequest.options.$top: 'many' is no int"),
        (b"{", ""),
    ):
        reply = call("POST", GRAPH, body, {"api-version": "x"}, good)
        assert reply.status == 400
        assert where in json.loads(reply.body)["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "document", "wrong"),
    [
        ("GET", f"{COMPUTE}/skus", {"value": [{"name": 5}]}, "ResourceSku.name: 5 is no str"),
        ("GET", f"{COMPUTE}/skus", {"value": [{"nam": "x"}]}, "ResourceSku.nam: unknown name"),
        ("GET", f"{COMPUTE}/skus", {"values": []}, "expected value and nextLink"),
        (
            "GET",
            f"{COMPUTE}/skus",
            {"value": [{"capabilities": [{"name": "GPUs", "value": 8}]}]},
            "ResourceSku.capabilities[0].value: 8 is no str",
        ),
        (
            "GET",
            f"{COMPUTE}/locations/eastus/usages",
            {"value": [{"unit": "Count", "currentValue": 1.5, "limit": 1, "name": {}}]},
            "Usage.currentValue: 1.5 is no int",
        ),
        (
            "POST",
            GRAPH,
            {"count": 0, "resultTruncated": "false", "data": []},
            "QueryResponse.totalRecords: missing",
        ),
    ],
)
def test_a_reply_that_does_not_fit_is_found_out(method: str, path: str, document: Any, wrong: str) -> None:
    found = find(method, path)
    assert found is not None
    assert any(wrong in problem for problem in reply_problems(found[0], document))


def test_both_forms_of_model_are_read() -> None:
    from azure.mgmt.compute.models import ResourceSkuRestrictions
    from azure.mgmt.resourcegraph.models import QueryRequestOptions

    good = {
        "type": "Location",
        "values": ["eastus"],
        "restrictionInfo": {"locations": ["eastus"], "zones": ["1"]},
    }
    assert problems(ResourceSkuRestrictions, good) == []
    assert problems(ResourceSkuRestrictions, good | {"values": "eastus"})
    assert problems(QueryRequestOptions, {"$skipToken": "x", "resultFormat": "table"}) == []
    assert problems(QueryRequestOptions, {"skipToken": "x"})
