"""The lab's Google Cloud, asked by Google's own discovery client and by hand."""

import json
import time
from collections.abc import Callable
from typing import Any

import google_auth_httplib2  # type: ignore[import-untyped]
import httplib2  # type: ignore[import-untyped]
import pytest
import requests
from google.auth import crypt, jwt
from google.oauth2 import service_account
from googleapiclient import discovery
from googleapiclient.errors import HttpError

from broker.core.errors import UnknownOutcome
from broker.core.model import EndedBy
from broker.core.ports import CloudState
from lab.catalog import Scenario
from lab.faces import gcp
from lab.faults import FaultKind
from lab.machines import EndedBy as LabEndedBy
from lab.tls import Authority, ServiceAccount
from lab.world import World
from tests.clocks import ManualClock
from tests.contract.conftest import PROJECT, TOKENS, Cloud, Opened

pytestmark = pytest.mark.process

ZONE = "us-central1-a"
SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]


@pytest.fixture
def outside(gcp_cloud: Cloud, authority: Authority) -> Callable[[str, str], Any]:
    """Google's own client: it fetches its token from the lab's token end point."""
    key_file = gcp_cloud.options["credentials_file"]
    credentials = service_account.Credentials.from_service_account_file(key_file, scopes=SCOPES)
    http = google_auth_httplib2.AuthorizedHttp(
        credentials, http=httplib2.Http(ca_certs=str(authority.ca_file), timeout=10)
    )

    def build(name: str, version: str) -> Any:
        url = gcp_cloud.options["endpoint_compute"] + ("/compute/v1/" if name == "compute" else "/")
        return discovery.build(
            name,
            version,
            http=http,
            static_discovery=True,
            client_options={"api_endpoint": url},
            cache_discovery=False,
        )

    return build


def body(name: str, **scheduling: Any) -> dict[str, Any]:
    return {
        "name": name,
        "machineType": f"zones/{ZONE}/machineTypes/g2-standard-4",
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": {"diskSizeGb": "50"}}],
        "networkInterfaces": [{"network": "global/networks/default"}],
        "scheduling": {"provisioningModel": "SPOT", "onHostMaintenance": "TERMINATE", **scheduling},
        "labels": {"owner": name},
    }


def test_googles_own_client_rents_lists_and_deletes(outside: Callable[[str, str], Any]) -> None:
    compute = outside("compute", "v1")
    here = {"project": PROJECT, "zone": ZONE}
    operation = compute.instances().insert(**here, body=body("by-hand")).execute()
    done = compute.zoneOperations().wait(**here, operation=operation["name"]).execute()
    assert (done["status"], done["operationType"]) == ("DONE", "insert")
    assert compute.instances().get(**here, instance="by-hand").execute()["status"] == "RUNNING"
    compute.instances().delete(**here, instance="by-hand").execute()
    assert compute.instances().get(**here, instance="by-hand").execute()["status"] == "STOPPING"
    kinds = {kind["name"] for kind in compute.machineTypes().list(**here).execute()["items"]}
    assert "a3-highgpu-1g" in kinds
    assert ZONE in {zone["name"] for zone in compute.zones().list(project=PROJECT).execute()["items"]}
    assert len(compute.regions().list(project=PROJECT).execute()["items"]) == 2


def test_googles_own_client_reads_the_price_list_page_by_page(outside: Callable[[str, str], Any]) -> None:
    skus, calls = outside("cloudbilling", "v1").services().skus(), 0
    found: list[dict[str, Any]] = []
    request = skus.list(parent="services/6F81-5844-456A", pageSize=7)
    while request is not None:
        answer = request.execute()
        calls, found = calls + 1, found + answer["skus"]
        request = skus.list_next(request, answer)
    assert calls > 3
    assert len({sku["skuId"] for sku in found}) == len(found)
    usages = {sku["category"]["usageType"] for sku in found}
    assert usages == {"OnDemand", "Preemptible", "Commit1Yr"}


def advised(outside: Callable[[str, str], Any], **changes: Any) -> Any:
    body = {
        "types": ["PRICE", "PREEMPTION"],
        "instanceProperties": {
            "machineType": "g2-standard-4",
            "scheduling": {"provisioningModel": "SPOT"},
        },
    }
    advice = outside("compute", "v1").advice()
    return advice.capacityHistory(project=PROJECT, region="us-central1", body=body | changes).execute()


def test_googles_own_client_reads_the_past_of_spot(
    outside: Callable[[str, str], Any], gcp_cloud: Cloud
) -> None:
    assert gcp_cloud.truth is not None
    gcp_cloud.clock.advance(3600)
    gcp_cloud.truth.set_price("gcp/us-central1-a/g2-standard-4/spot", 250_000)
    of_region = advised(outside)
    assert of_region["location"].endswith("/regions/us-central1")
    before, now = of_region["priceHistory"]
    assert before["interval"]["endTime"] == now["interval"]["startTime"]
    assert now["listPrice"] == {"currencyCode": "USD", "nanos": 250_000_000}  # no units: there are none
    assert len(of_region["preemptionHistory"]) == 30
    of_zone = advised(outside, locationPolicy={"location": f"zones/{ZONE}"})
    assert of_zone["location"].endswith(f"/zones/{ZONE}")
    assert "priceHistory" not in of_zone


@pytest.mark.parametrize(
    "changes",
    [
        {"types": []},
        {"types": ["COST"]},
        {"instanceProperties": {"machineType": "g2-standard-4"}},
        {
            "instanceProperties": {
                "machineType": "n1-standard-4",
                "scheduling": {"provisioningModel": "SPOT"},
            }
        },
    ],
    ids=["no types", "unknown type", "not spot", "unknown machine"],
)
def test_a_wrong_question_about_the_past_is_refused(
    outside: Callable[[str, str], Any], changes: dict[str, Any]
) -> None:
    with pytest.raises(HttpError) as caught:
        advised(outside, **changes)
    assert caught.value.resp.status == 400


def test_googles_own_client_is_told_where_spot_can_be_had(
    outside: Callable[[str, str], Any], gcp_cloud: Cloud
) -> None:
    assert gcp_cloud.truth is not None
    gcp_cloud.truth.set_stock("gcp/us-central1-a/g2-standard-4/spot", 3)
    body = {
        "size": 2,
        "instanceProperties": {"scheduling": {"provisioningModel": "SPOT"}},
        "instanceFlexibilityPolicy": {"instanceSelections": {"any": {"machineTypes": ["g2-standard-4"]}}},
    }

    def best(**changes: Any) -> tuple[float, str]:
        advice = outside("compute", "v1").advice()
        answer = advice.capacity(project=PROJECT, region="us-central1", body=body | changes).execute()
        (recommendation,) = answer["recommendations"]
        (shard,) = recommendation["shards"]
        return recommendation["scores"]["obtainability"], shard["zone"].rpartition("/")[2]

    assert best() == (0.9, "us-central1-b")
    here = {"distributionPolicy": {"zones": [{"zone": f"zones/{ZONE}"}], "targetShape": "ANY_SINGLE_ZONE"}}
    assert best(**here) == (0.5, ZONE)
    assert best(**here, size=4) == (0.1, ZONE)


def test_lists_page_and_filter(outside: Callable[[str, str], Any]) -> None:
    instances, here = outside("compute", "v1").instances(), {"project": PROJECT, "zone": ZONE}
    for name in ("one", "two", "three"):
        instances.insert(**here, body=body(name)).execute()
    names, request = [], instances.list(**here, maxResults=1)
    while request is not None:
        answer = request.execute()
        names += [row["name"] for row in answer["items"]]
        request = instances.list_next(request, answer)
    assert names == ["one", "two", "three"]
    for expression, wanted in (
        ("labels.owner = two", ["two"]),
        ('name eq "t.*"', ["two", "three"]),
        ('name ne "t.*"', ["one"]),
        ('status = RUNNING AND labels.owner != "one"', ["two", "three"]),
        ("labels.owner:*", ["one", "two", "three"]),
    ):
        found = instances.list(**here, filter=expression).execute().get("items", [])
        assert [row["name"] for row in found] == wanted, expression


def test_a_part_of_an_a3_high_is_not_started_on_demand(
    outside: Callable[[str, str], Any], gcp_cloud: Cloud
) -> None:
    instances, here = outside("compute", "v1").instances(), {"project": PROJECT, "zone": ZONE}
    kind = {"machineType": f"zones/{ZONE}/machineTypes/a3-highgpu-1g"}
    with pytest.raises(HttpError) as caught:
        instances.insert(**here, body=body("dear", provisioningModel="STANDARD") | kind).execute()
    error = json.loads(caught.value.content)["error"]
    assert (error["code"], error["errors"][0]["reason"]) == (400, "invalid")
    assert "provisioningModel" in error["message"]
    instances.insert(**here, body=body("cheap") | kind).execute()
    assert gcp_cloud.truth is not None
    assert [machine.request.name for machine in gcp_cloud.truth.machines()] == ["cheap"]


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"nmae": "x"}, 400),
        ({"machineType": f"zones/{ZONE}/machineTypes/a9-huge"}, 400),
        ({"name": "Not-A-Label"}, 400),
        ({"scheduling": {"provisioningModel": "CHEAP"}}, 400),
        ({"disks": [{"diskSizeGb": "many"}]}, 400),
        ({"scheduling": {"provisioningModel": "SPOT", "automaticRestart": True}}, 400),
    ],
)
def test_a_wrong_body_is_refused(
    outside: Callable[[str, str], Any], gcp_cloud: Cloud, changes: dict[str, Any], status: int
) -> None:
    instances = outside("compute", "v1").instances()
    with pytest.raises(HttpError) as caught:
        instances.insert(project=PROJECT, zone=ZONE, body=body("wrong") | changes).execute()
    assert caught.value.resp.status == status
    assert gcp_cloud.truth is not None
    assert gcp_cloud.truth.machines() == []


def test_a_name_is_taken_once_and_a_request_id_is_one_operation(outside: Callable[[str, str], Any]) -> None:
    instances, here = outside("compute", "v1").instances(), {"project": PROJECT, "zone": ZONE}
    request_id = "7f3ab1c0-1111-4222-8333-000000000001"
    first = instances.insert(**here, body=body("taken"), requestId=request_id).execute()
    again = instances.insert(**here, body=body("taken"), requestId=request_id).execute()
    assert again["name"] == first["name"]
    with pytest.raises(HttpError) as caught:
        instances.insert(**here, body=body("taken")).execute()
    assert caught.value.resp.status == 409
    assert json.loads(caught.value.content)["error"]["errors"][0]["reason"] == "alreadyExists"


def assertion(account: ServiceAccount, key: ServiceAccount | None = None, **claims: Any) -> str:
    signer = crypt.RSASigner.from_string((key or account).private_key_pem)
    now = int(time.time())
    usual = {"iss": account.email, "sub": account.email, "iat": now, "exp": now + 600}
    return str(jwt.encode(signer, usual | claims).decode())


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"aud": "https://storage.example.com/"},
        {"scope": SCOPES[0], "iss": "somebody@else"},
        {"scope": SCOPES[0], "iat": 1_000_000_000, "exp": 1_000_003_600},
        {"scope": SCOPES[0], "exp": int(time.time()) + 90_000},
    ],
    ids=["no audience", "other audience", "other account", "expired", "too long"],
)
def test_a_token_that_is_not_good_is_refused(
    gcp_opened: Opened,
    gcp_cloud: Cloud,
    authority: Authority,
    account: ServiceAccount,
    claims: dict[str, Any],
) -> None:
    assert _status(gcp_opened, authority, assertion(account, **claims)) == 401


def test_tokens_are_verified_with_the_accounts_key(
    gcp_opened: Opened, gcp_cloud: Cloud, authority: Authority, account: ServiceAccount
) -> None:
    forged = assertion(account, key=ServiceAccount.generated(PROJECT), scope=SCOPES[0])
    assert _status(gcp_opened, authority, forged) == 401
    assert _status(gcp_opened, authority, "nonsense") == 401
    assert _status(gcp_opened, authority, assertion(account, aud="https://compute.googleapis.com/")) == 200
    refused = requests.post(
        f"{gcp_opened.server.url}/token",
        data={"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": forged},
        verify=str(authority.ca_file),
        timeout=10,
    )
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_grant")


def _status(opened: Opened, authority: Authority, token: str) -> int:
    reply = requests.get(
        f"{opened.server.url}/compute/v1/projects/{PROJECT}/zones",
        headers={"Authorization": f"Bearer {token}"},
        verify=str(authority.ca_file),
        timeout=10,
    )
    return reply.status_code


# What only Compute Engine does


def test_a_guest_that_shuts_itself_down_stays_until_it_is_deleted(gcp_cloud: Cloud) -> None:
    node = gcp_cloud.provider.create(gcp_cloud.request())
    gcp_cloud.clock.advance(100)
    assert gcp_cloud.truth is not None
    gcp_cloud.truth.terminate(gcp_cloud.machine().id, LabEndedBy.NODE)
    gcp_cloud.clock.advance(60)
    stopped = gcp_cloud.find()
    assert stopped is not None
    assert (stopped.state, stopped.ended_by) == (
        CloudState.STOPPING,
        EndedBy.NODE,
    )  # its disk is still billed
    assert len(gcp_cloud.provider.list_owned()) == 1
    gcp_cloud.provider.delete(node)
    gone = gcp_cloud.find()
    assert gone is not None
    assert (gone.state, gone.ended_by, gone.ended_at_ms) == (
        CloudState.TERMINATED,
        EndedBy.NODE,
        stopped.ended_at_ms,
    )
    assert list(gcp_cloud.provider.list_owned()) == []


def test_a_create_that_is_not_decided_in_time_is_pending(
    gcp_opened: Opened, gcp_cloud: Cloud, clock: ManualClock, account: ServiceAccount
) -> None:
    slow = World(clock, Scenario.of({"pending_s": 30}))
    gcp_opened.face.handler = gcp.create(slow, PROJECT, account.email, account.public_key_pem)
    made = gcp_cloud.provider.create(gcp_cloud.request())
    assert (made.state, made.billed_from_ms) == (CloudState.PENDING, None)
    clock.advance(30)
    found = gcp_cloud.find()
    assert found is not None
    assert (found.state, found.billed_from_ms) == (CloudState.RUNNING, clock.now_ms() // 1000 * 1000)


def test_an_outcome_that_cannot_be_looked_at_is_unknown(gcp_cloud: Cloud) -> None:
    for kind in (FaultKind.THROTTLE, FaultKind.DENIED, FaultKind.DOWN):
        gcp_cloud.fault(kind, "instances.get")
        with pytest.raises(UnknownOutcome):
            gcp_cloud.provider.create(gcp_cloud.request())
    assert gcp_cloud.provider.create(gcp_cloud.request(TOKENS[0])).provider_id == gcp_cloud.machine().id
