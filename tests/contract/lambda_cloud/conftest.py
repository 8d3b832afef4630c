"""The client of Lambda's prices over real HTTPS, against the lab's face and Lambda's own document."""

import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonschema
import pytest

from broker.core.money import micro_usd
from lab.faces import Reply, Request, lambda_cloud
from lab.faces.lambda_cloud_schema import reply_schema
from lab.faults import Fault, FaultKind
from lab.serving import HttpServer
from lab.tls import Authority
from lab.world import World
from providers.lambda_cloud.client import Pace
from providers.lambda_cloud.settings import parse
from providers.lambda_cloud.source import LambdaPrices
from tests.clocks import ManualClock

KEY = "secret_lab_0123456789abcdef"
TYPES = "listInstanceTypes"
A10 = "lambda/us-east-1/gpu_1x_a10/on_demand"


@dataclass
class Face:
    """The face, every reply of which is compared with the schema on its way."""

    handler: Callable[[Request], Reply]
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __call__(self, request: Request) -> Reply:
        self.requests.append(request.path)
        reply = self.handler(request)
        if reply.headers["Content-Type"].startswith("application/json") and reply.status not in (404, 429):
            schema = reply_schema(request.path, reply.status)
            errors = jsonschema.Draft202012Validator(schema).iter_errors(json.loads(reply.body))
            self.problems += [f"{request.path}: {error.json_path}: {error.message}" for error in errors]
        return reply


@dataclass
class Lambda:
    """A source of prices, and the world behind it."""

    source: LambdaPrices
    options: Mapping[str, Any]
    world: World
    face: Face
    server: HttpServer
    clock: ManualClock

    def fault(self, kind: FaultKind, seconds: float = 0.0) -> None:
        """Let the next call go wrong."""
        self.world.faults.add(Fault("lambda", TYPES, kind, 1, seconds))

    def trusted(self) -> ssl.SSLContext:
        """For clients of others."""
        return ssl.create_default_context(cafile=str(self.options["ca_file"]))

    def opened_with(self, **options: Any) -> LambdaPrices:
        """Another source, with other options and no pause between its calls."""
        return LambdaPrices(parse({**self.options, **options}), self.clock, Pace(0))


@pytest.fixture
def cloud(
    world: World, clock: ManualClock, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lambda]:
    monkeypatch.setenv("LAMBDA_API_KEY", KEY)
    face = Face(lambda_cloud.create(world, KEY, limit_s=0))
    server = HttpServer(face, authority.server_context()).start()
    options = {"endpoint": f"{server.url}/api/v1", "ca_file": str(authority.ca_file)}
    yield Lambda(LambdaPrices(parse(options), clock, Pace(0)), options, world, face, server, clock)
    server.stop()
    assert face.problems == []


def quoted(source: LambdaPrices) -> dict[str, int]:
    return {quote.offer.key: micro_usd(quote.price_text) for quote in source.quotes()}


def listed(source: LambdaPrices) -> dict[str, float]:
    return {hint.offer_key: hint.low for hint in source.availability()}
