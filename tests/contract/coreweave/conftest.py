"""A price list of CoreWeave, and Kubernetes' client over real HTTPS against the lab's cluster."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

from broker.core.time import to_iso
from lab.faces import Reply, Request, coreweave
from lab.faces.coreweave_schema import NODE_POOL, NODE_POOL_LIST
from lab.faults import Fault, FaultKind
from lab.serving import HttpServer
from lab.sold.coreweave import CLUSTER_ZONE, price_file
from lab.tls import Authority
from lab.world import World
from providers.coreweave.source import CoreWeavePrices
from providers.registry import open_source
from tests.clocks import ManualClock
from tests.contract.conftest import INSTALLATION

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
