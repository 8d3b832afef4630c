"""Prices and capacity of CoreWeave: a price list, and the Kubernetes client over real HTTPS against the lab's cluster."""

import json
import os
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from kubernetes import client, config
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

from broker.core.availability import Signal
from broker.core.errors import Denied, Invalid, ProviderDown, ProviderError, SettingsError, Throttled
from broker.core.money import micro_usd
from broker.core.offer import Market, MarketSnapshot
from broker.core.time import DAY_S, to_iso
from broker.market.quarantine import sift
from lab.faces import Reply, Request, coreweave
from lab.faces.coreweave_objects import DISCOVERY
from lab.faces.coreweave_schema import NODE_POOL, NODE_POOL_LIST
from lab.faults import Fault, FaultKind
from lab.serving import HttpServer
from lab.sold.coreweave import CLUSTER_ZONE, TYPES, price_file
from lab.tls import Authority
from lab.world import World
from providers.coreweave import cluster as cluster_module
from providers.coreweave.source import CoreWeavePrices
from providers.registry import open_provider, open_source, vendor_endpoints
from tests.clocks import ManualClock
from tests.contract.conftest import INSTALLATION

pytestmark = pytest.mark.process

TOKEN = "CW-SECRET-lab0123456789"
POOLS = "nodepools.list"
H100_ON_DEMAND = f"coreweave/{CLUSTER_ZONE}/gd-8xh100ib-i128/on_demand"
H100_SPOT = f"coreweave/{CLUSTER_ZONE}/gd-8xh100ib-i128/spot"


@dataclass
class Face:
    """The face, every reply of which is compared with Kubernetes' schemas on its way."""

    handler: Callable[[Request], Reply]
    requests: list[Request] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __call__(self, request: Request) -> Reply:
        self.requests.append(request)
        reply = self.handler(request)
        if reply.headers["Content-Type"].startswith("application/json"):
            self.problems += problems(json.loads(reply.body))
        if request.method == "POST":
            self.problems += problems(json.loads(request.body))
        return reply


_SCHEMAS = "kubernetes-json-schema/v1.37.0-local-strict"
_META = {
    kind: f"{kind.lower()}-meta-v1"
    for kind in ("APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status")
}
_NAMES = {
    **_META,
    "NodeList": "nodelist-v1",
    "Node": "node-v1",
    "SelfSubjectAccessReview": "selfsubjectaccessreview-authorization-v1",
    None: "info-pkg-version",
}


@cache
def schema(kind: str | None) -> Any:
    """Kubernetes' own of that kind, in which no member too many is allowed; ours for node pools."""
    if kind in ("NodePool", "NodePoolList"):
        return jsonschema.Draft202012Validator(NODE_POOL if kind == "NodePool" else NODE_POOL_LIST)
    contents = schema_contents(f"{_SCHEMAS}/{_NAMES[kind]}.json", "1.37.0")
    definitions = schema_contents(f"{_SCHEMAS}/_definitions.json", "1.37.0")
    registry = Registry().with_resources(
        (document["$id"], Resource.from_contents(document)) for document in (contents, definitions)
    )
    return jsonschema.Draft202012Validator(contents, registry=registry)


def problems(document: dict[str, Any]) -> list[str]:
    """What does not fit the schema of its kind."""
    errors = schema(document.get("kind")).iter_errors(document)
    return [f"{document.get('kind')}: {error.json_path}: {error.message:.200}" for error in errors]


@dataclass
class CoreWeave:
    """A source of prices, and the world behind it."""

    source: CoreWeavePrices
    options: dict[str, Any]
    world: World
    face: Face
    server: HttpServer
    clock: ManualClock
    folder: Path

    def fault(self, kind: FaultKind, operation: str = POOLS, seconds: float = 0.0) -> None:
        """Let the next call go wrong."""
        self.world.faults.add(Fault("coreweave", operation, kind, 1, seconds))

    def opened_with(self, **options: Any) -> CoreWeavePrices:
        """Another source, with other options; None leaves one out."""
        wanted = {key: value for key, value in {**self.options, **options}.items() if value is not None}
        source = open_source("coreweave", wanted, self.clock, INSTALLATION)
        assert isinstance(source, CoreWeavePrices)
        return source

    def hints(self, source: CoreWeavePrices | None = None) -> dict[str, float]:
        """By offer key."""
        return {hint.offer_key: hint.low for hint in (source or self.source).availability()}


@pytest.fixture
def cloud(
    world: World, clock: ManualClock, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CoreWeave]:
    monkeypatch.setenv("COREWEAVE_API_TOKEN", TOKEN)
    face = Face(coreweave.create(world, CLUSTER_ZONE, TOKEN))
    server = HttpServer(face, authority.server_context()).start()
    prices = {key: world.price(key) for key in world.pools}
    file = tmp_path / "prices.yaml"
    file.write_text(price_file(to_iso(clock.now_ms())[:10], prices))
    options = {
        "price_file": str(file),
        "api_server": server.url,
        "ca_file": str(authority.ca_file),
        "cluster_zone": CLUSTER_ZONE,
    }
    source = open_source("coreweave", options, clock, INSTALLATION)
    assert isinstance(source, CoreWeavePrices)
    yield CoreWeave(source, options, world, face, server, clock, tmp_path)
    server.stop()
    assert face.problems == []


# Prices


def test_prices_are_those_of_the_list_for_a_whole_node(cloud: CoreWeave) -> None:
    quoted = {quote.offer.key: micro_usd(quote.price_text) for quote in cloud.source.quotes()}
    truth = {key: cloud.world.price(key) for key in cloud.world.pools if key.startswith("coreweave/")}
    assert truth
    # A list has no stock: what has a price is priced in every zone that the row names.
    assert truth.items() <= quoted.items()
    assert quoted[H100_ON_DEMAND] == 49_240_000
    offers = {quote.offer.instance_type: quote.offer for quote in cloud.source.quotes()}
    for kind in TYPES:
        offer = offers[kind.name]
        assert (offer.gpu, offer.gpus, offer.vcpus, offer.memory_gib) == (
            kind.gpu,
            kind.gpus,
            kind.vcpus,
            kind.memory_gib,
        )
        assert (offer.interconnect, offer.fabric) == (kind.interconnect, kind.fabric)


def test_quotes_are_dated_by_the_list_and_seen_when_it_was_read(cloud: CoreWeave) -> None:
    quotes = cloud.source.quotes()
    date = to_iso(cloud.clock.now_ms())[:10]
    assert {quote.source for quote in quotes} == {f"coreweave:price_list:{date}"}
    (day_ms,) = {quote.effective_at_ms for quote in quotes}
    assert day_ms is not None
    assert to_iso(day_ms) == f"{date}T00:00:00Z"
    sifted = sift(quotes, cloud.clock.now_ms(), {}, {})
    assert sifted.doubts == {}
    assert {quote.age_s(cloud.clock.now_ms()) for quote in sifted.quotes} == {0.0}


def test_superchips_have_no_spot(cloud: CoreWeave) -> None:
    markets = {q.offer.market for q in cloud.source.quotes() if q.offer.instance_type == "gd-1xgh200"}
    assert markets == {Market.ON_DEMAND}


def test_an_edit_of_the_list_is_seen_at_the_next_poll(cloud: CoreWeave) -> None:
    file = Path(cloud.options["price_file"])
    file.write_text(file.read_text().replace("49.24", "39.99"))
    quoted = {quote.offer.key: quote.price_text for quote in cloud.source.quotes()}
    assert micro_usd(quoted[H100_ON_DEMAND]) == 39_990_000


def test_a_broken_edit_fails_the_poll_with_its_place(cloud: CoreWeave) -> None:
    file = Path(cloud.options["price_file"])
    file.write_text(file.read_text().replace("gpus: 8", "gpus: eight", 1))
    with pytest.raises(Invalid, match=rf"{file}:\d+:\d+: .*gpus: expected a whole number"):
        cloud.source.quotes()
    assert cloud.source.check()[0].ok is False


def test_a_list_that_is_too_old_is_not_read_any_more_and_doctor_says_so(cloud: CoreWeave) -> None:
    source = cloud.opened_with(max_list_age="2d", price_file=cloud.options["price_file"])
    assert source.quotes()
    file = Path(cloud.options["price_file"])
    date = to_iso(cloud.clock.now_ms() - 3 * DAY_S * 1000)[:10]
    file.write_text(file.read_text().replace(to_iso(cloud.clock.now_ms())[:10], date))
    with pytest.raises(Invalid, match=rf"price list of {date} is 3d[0-9hm]* old, more than 2d"):
        source.quotes()
    check = source.check()[0]
    assert (check.name, check.ok) == ("coreweave: price list", False)
    assert "not read any more" in check.detail


def test_only_the_configured_zones_are_priced(cloud: CoreWeave) -> None:
    source = cloud.opened_with(zones=["US-WEST-04A", "US-WEST-99Z"])
    assert {quote.offer.zone for quote in source.quotes()} == {"US-WEST-04A"}
    strange = next(check for check in source.check() if check.name == "coreweave: zones")
    assert (strange.ok, strange.detail.split(":")[0]) == (None, "US-WEST-99Z")


# What is obtainable


def test_a_pool_that_got_its_node_is_a_one_and_one_that_waits_a_zero(cloud: CoreWeave) -> None:
    hints = cloud.hints()
    sold = {key for key in cloud.world.pools if key.startswith(f"coreweave/{CLUSTER_ZONE}/")}
    assert hints == {key: float(cloud.world.free(key) != 0) for key in sold}
    assert (hints[H100_ON_DEMAND], hints[H100_SPOT]) == (1.0, 0.0)
    quotes = {q.offer.key: q for q in sift(cloud.source.quotes(), cloud.clock.now_ms(), {}, {}).quotes}
    told = tuple(hint for hint in cloud.source.availability() if hint.offer_key == H100_SPOT)
    assert [(hint.signal, hint.high, hint.observed_at_ms) for hint in told] == [
        (Signal.LISTED, 0.0, cloud.clock.now_ms())
    ]
    snapshot = MarketSnapshot(cloud.clock.now_ms(), quotes, hints={H100_SPOT: told})
    assert snapshot.is_unlisted(quotes[H100_SPOT].offer)


def test_capacity_that_comes_back_is_seen(cloud: CoreWeave) -> None:
    assert cloud.hints()[H100_SPOT] == 0.0
    cloud.world.set_stock(H100_SPOT, 3)
    assert cloud.hints()[H100_SPOT] == 1.0


def test_a_cluster_tells_of_its_own_zone_only(cloud: CoreWeave) -> None:
    assert {key.split("/")[1] for key in cloud.hints()} == {CLUSTER_ZONE}


def test_a_cluster_whose_zone_is_not_known_tells_nothing(cloud: CoreWeave) -> None:
    source = cloud.opened_with(cluster_zone=None)
    assert source.availability() == []
    assert (source.check()[-1].ok, "set cluster_zone" in source.check()[-1].detail) == (None, True)


def test_without_a_cluster_nothing_is_known_and_nobody_is_called(cloud: CoreWeave) -> None:
    source = cloud.opened_with(api_server=None, ca_file=None)
    assert source.quotes()
    assert source.availability() == ()
    cluster = source.check()[-1]
    assert (cluster.name, cluster.ok) == ("coreweave: cluster", None)
    assert "nothing is known of capacity" in cluster.detail
    assert cloud.face.requests == []


def test_a_kubeconfig_does_as_well(cloud: CoreWeave, authority: Authority) -> None:
    file = cloud.folder / "kubeconfig"
    file.write_text(coreweave.kubeconfig(cloud.server.url, authority.ca_file.read_bytes(), TOKEN))
    source = cloud.opened_with(api_server=None, ca_file=None, kubeconfig=str(file))
    assert cloud.hints(source) == cloud.hints()
    assert all(check.ok for check in source.check())
    with pytest.raises(Denied, match="kubeconfig is of no use"):
        cloud.opened_with(api_server=None, ca_file=None, kubeconfig=str(file), context="x").availability()


def test_long_lists_are_read_to_their_end(cloud: CoreWeave, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = cloud.hints()
    cloud.face.requests.clear()
    monkeypatch.setattr(cluster_module, "_PAGE", 2)
    assert cloud.hints() == whole
    assert len(cloud.face.requests) == (len(whole) + 1) // 2
    assert cloud.face.requests[-1].param("continue")


def test_a_list_that_expired_on_the_way_is_read_again_from_its_start(cloud: CoreWeave) -> None:
    whole = cloud.hints()
    cloud.face.requests.clear()
    cloud.fault(FaultKind.PARTIAL_PAGE)
    assert cloud.hints() == whole
    assert len(cloud.face.requests) == 3
    assert not cloud.face.requests[-1].param("continue")


def test_a_list_that_expires_again_and_again_is_a_cluster_that_is_down(cloud: CoreWeave) -> None:
    cloud.fault(FaultKind.PARTIAL_PAGE)
    cloud.fault(FaultKind.SLOW)  # the page that has expired
    cloud.fault(FaultKind.PARTIAL_PAGE)
    with pytest.raises(ProviderDown, match="HTTP 410"):
        cloud.source.availability()


# When it goes wrong


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        (FaultKind.EXPIRED, Denied, "HTTP 401"),
        (FaultKind.DENIED, Denied, "HTTP 403"),
        (FaultKind.HTTP_500, ProviderDown, "HTTP 500"),
        (FaultKind.DOWN, ProviderDown, "listing node pools"),
        (FaultKind.REPLY_LOST, ProviderDown, "listing node pools"),
        (FaultKind.WRONG_SHAPE, ProviderDown, "listing node pools"),
    ],
)
def test_a_fault_is_one_of_our_errors_and_says_nothing_about_prices(
    cloud: CoreWeave, kind: FaultKind, error: type[ProviderError], words: str
) -> None:
    cloud.fault(kind)
    with pytest.raises(error, match=words) as caught:
        cloud.source.availability()
    assert TOKEN not in str(caught.value)
    assert len([r for r in cloud.face.requests if r.path.endswith("nodepools")]) == 1, (
        "nobody retries in secret"
    )
    assert cloud.source.quotes()
    assert cloud.hints(), "the next one is whole again"


def test_a_call_too_many_says_when_to_come_back(cloud: CoreWeave) -> None:
    cloud.fault(FaultKind.THROTTLE)
    with pytest.raises(Throttled) as caught:
        cloud.source.availability()
    assert caught.value.retry_after_s == 2.0


def test_a_slow_cluster_ends_in_a_time_out(cloud: CoreWeave) -> None:
    cloud.fault(FaultKind.SLOW, seconds=2.0)
    began_s = time.monotonic()
    with pytest.raises(ProviderDown, match=r"(?i)timed? ?out"):
        cloud.opened_with(timeout_s=0.3).availability()
    assert time.monotonic() - began_s < 1.5


def test_an_api_that_is_no_cks_cluster_is_named(cloud: CoreWeave) -> None:
    source = cloud.opened_with(api_server=f"{cloud.server.url}/elsewhere")
    with pytest.raises(Invalid, match="is this a CKS cluster"):
        source.availability()


def test_a_server_with_another_certificate_gets_no_token(
    cloud: CoreWeave, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Authority(tmp_path_factory.mktemp("other-ca"))
    with pytest.raises(ProviderDown, match=r"(?i)certificate"):
        cloud.opened_with(ca_file=str(other.ca_file)).availability()
    assert cloud.face.requests == []


@pytest.mark.parametrize(
    ("token", "words"), [("", "is not set"), ("a b", "is no token"), ("ü", "is no token")]
)
def test_a_token_that_cannot_be_one_is_refused_and_never_told(
    cloud: CoreWeave, monkeypatch: pytest.MonkeyPatch, token: str, words: str
) -> None:
    monkeypatch.setenv("COREWEAVE_API_TOKEN", token)
    with pytest.raises(Denied, match=f"COREWEAVE_API_TOKEN {words}") as caught:
        cloud.source.availability()
    assert not token or token not in str(caught.value)


# Doctor


def test_check_lists_the_age_of_the_list_reach_and_right(cloud: CoreWeave) -> None:
    checks = cloud.source.check()
    assert [(check.name, check.ok) for check in checks] == [
        ("coreweave: price list", True),
        ("coreweave: cluster", True),
        ("coreweave: node pools", True),
    ]
    assert f"of {to_iso(cloud.clock.now_ms())[:10]}, " in checks[0].detail
    assert checks[1].detail == f"v1.37.0 at {cloud.server.url}"
    assert f"in {CLUSTER_ZONE}" in checks[2].detail


def test_check_tells_a_missing_right_before_the_list_fails(cloud: CoreWeave) -> None:
    cloud.fault(FaultKind.DENIED, "selfsubjectaccessreviews.create")
    last = cloud.source.check()[-1]
    assert (last.name, last.ok) == ("coreweave: node pools", False)
    assert "may not list nodepools.compute.coreweave.com" in last.detail


def test_check_with_a_token_that_is_refused(cloud: CoreWeave, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COREWEAVE_API_TOKEN", "another")
    last = cloud.source.check()[-1]
    assert (last.name, last.ok) == ("coreweave: cluster", False)
    assert "HTTP 401" in last.detail


# What it costs beside the price


def test_egress_and_disk_are_free_and_what_is_unknown_of_the_meter_is_told(cloud: CoreWeave) -> None:
    offer = cloud.source.quotes()[0].offer
    rule = cloud.source.billing_rule(Market.ON_DEMAND)
    assert "granularity is not published" in rule.unconfirmed
    assert rule.source
    assert cloud.source.egress_micro_usd_per_gib(offer, None) == 0
    assert cloud.source.disk_micro_usd_per_gib_month(offer.region) == 0
    assert list(cloud.source.price_history(0)) == []


def test_nothing_is_rented_there(cloud: CoreWeave) -> None:
    with pytest.raises(SettingsError, match="only the prices"):
        open_provider("coreweave", cloud.options, cloud.clock, INSTALLATION)
    assert vendor_endpoints("coreweave", cloud.options) == []


# The face beside Kubernetes' own clients


@pytest.fixture
def outside(cloud: CoreWeave, authority: Authority) -> Any:
    """Kubernetes' own client, as its documentation uses it."""
    file = cloud.folder / "kubeconfig"
    file.write_text(coreweave.kubeconfig(cloud.server.url, authority.ca_file.read_bytes(), TOKEN))
    with config.new_client_from_config(str(file), persist_config=False) as api:
        yield api


def test_nodes_are_those_of_the_pools_that_got_one(cloud: CoreWeave, outside: Any) -> None:
    nodes = client.CoreV1Api(outside).list_node(limit=2)
    more = client.CoreV1Api(outside).list_node(limit=20, _continue=nodes.metadata._continue)
    types = sorted(
        (n.metadata.labels["node.kubernetes.io/instance-type"], n.status.allocatable["nvidia.com/gpu"])
        for n in [*nodes.items, *more.items]
    )
    assert types == sorted(
        (pool.listing.type.name, str(pool.listing.type.gpus))
        for key, pool in cloud.world.pools.items()
        if key.startswith(f"coreweave/{CLUSTER_ZONE}/") and cloud.world.free(key) != 0
    )


def test_one_node_pool_by_name(outside: Any) -> None:
    custom = client.CustomObjectsApi(outside)
    asked = ("compute.coreweave.com", "v1alpha1", "nodepools")
    pool = custom.get_cluster_custom_object(*asked, "gd-8xh100ib-i128-spot")
    assert (pool["spec"]["computeClass"], pool["status"]["currentNodes"]) == ("spot", 0)
    with pytest.raises(client.ApiException) as caught:
        custom.get_cluster_custom_object(*asked, "none")
    assert (caught.value.status, json.loads(caught.value.body)["reason"]) == (404, "NotFound")
    with pytest.raises(client.ApiException) as caught:
        custom.delete_cluster_custom_object(*asked, "gd-8xh100ib-i128-spot")
    assert caught.value.status == 405


@pytest.mark.parametrize(
    "path", [*DISCOVERY, "/api/v1/nodes", "/apis/compute.coreweave.com/v1alpha1/nodepools"]
)
def test_every_reply_of_the_face_fits_kubernetes_schema(cloud: CoreWeave, path: str) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(verify=ssl.create_default_context(cafile=cloud.options["ca_file"])) as http:
        assert http.get(f"{cloud.server.url}{path}", headers=headers).status_code == 200
        assert http.get(f"{cloud.server.url}{path}").status_code == 401
    assert len(cloud.face.requests) == 2


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_lists_the_node_pools(cloud: CoreWeave, outside: Any) -> None:
    command = ["kubectl", "--kubeconfig", str(cloud.folder / "kubeconfig"), "get", "nodepools", "-o", "name"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(cloud.folder)}
    told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, env=environment)
    assert told.stderr == ""
    assert "nodepool.compute.coreweave.com/gd-8xh100ib-i128-on-demand" in told.stdout.splitlines()
