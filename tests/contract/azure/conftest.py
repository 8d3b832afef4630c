"""The real clients of Azure's prices over real HTTPS, against the lab's face and Microsoft's own models."""

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonschema
import pytest

from broker.core.offer import RawQuote
from broker.core.ports import Check
from lab.faces import Reply, Request, azure
from lab.faces.azure_models import find, problems, reply_problems
from lab.faces.azure_retail import PATH
from lab.faces.azure_tokens import Account
from lab.faults import Fault, FaultKind
from lab.serving import HttpServer
from lab.tls import Authority
from lab.world import World
from providers.azure.source import AzurePrices
from providers.registry import open_source
from tests.clocks import ManualClock
from tests.contract.conftest import INSTALLATION

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
