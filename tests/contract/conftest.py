"""Clouds for the contract suite: the lab's faces over real HTTPS, called by the vendors' own SDKs; and this host.

The world's clock stands still until a test moves it, so that its truth can be compared to the second.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from broker.core.offer import Offer
from broker.core.ports import CloudNode, CloudState, LaunchRequest, Provider
from lab.catalog import Scenario
from lab.faces import Handler, Reply, Request, aws, gcp
from lab.faults import Fault, FaultKind
from lab.machines import Machine
from lab.serving import HttpServer
from lab.tls import Authority, ServiceAccount
from lab.world import World
from providers.registry import open_provider
from tests.clocks import ManualClock

INSTALLATION = "broker-lab1"
PROJECT = "lab-project"
KEYS = aws.Keys("AKIALABLABLABLABLAB1", "lab-secret")
TOKENS = ("bk-aaaaaaaaaaaaaaaaaaaaaaaaaa-0", "bk-bbbbbbbbbbbbbbbbbbbbbbbbbb-0")


@dataclass
class Cloud:
    """One cloud under test.

    Attributes:
        provider: What is tested.
        options: It was opened with.
        truth: The world behind it; None for this host.
        create: The cloud's name of the call that rents.
        offers: Two things to rent.
    """

    name: str
    provider: Provider
    options: dict[str, Any]
    clock: ManualClock
    create: str
    truth: World | None
    offers: tuple[Offer, Offer]

    def request(self, token: str = TOKENS[0], **changes: Any) -> LaunchRequest:
        """A launch of the first offer."""
        asked = LaunchRequest(
            token, self.offers[0], "#!/bin/sh\nexec sleep 600\n", INSTALLATION, event_seq=41
        )
        return replace(asked, **changes)

    def find(self, token: str = TOKENS[0]) -> CloudNode | None:
        """Look a token up where `request` would have put it."""
        return self.provider.find(token, self.offers[0].region, self.offers[0].zone)

    def fault(self, kind: FaultKind, operation: str, count: int | None = 1) -> None:
        """Let the next calls go wrong."""
        assert self.truth is not None
        self.truth.faults.add(Fault(self.name, operation, kind, count))

    def machine(self) -> Machine:
        """The only machine of the world."""
        assert self.truth is not None
        (machine,) = self.truth.machines(self.name)
        return machine

    def opened_with(self, **options: Any) -> Provider:
        """The provider again, with other options."""
        return open_provider(self.name, self.options | options, self.clock, INSTALLATION)

    def until_ended(self, token: str = TOKENS[0]) -> CloudNode | None:
        """Let time pass until the cloud says that it is over."""
        for _ in range(200):
            node = self.find(token)
            if node is None or node.state is CloudState.TERMINATED:
                return node
            if self.truth is not None:
                self.clock.advance(10)
            else:
                time.sleep(0.05)
        raise AssertionError(f"{token} never ended")


@dataclass
class Switched:
    """A face whose world can be changed under a server that stays: clients cost most of a test's time.

    Every reply of the GCP face is compared with the vendor's schema on the way.
    """

    handler: Handler | None = None
    problems: list[str] = field(default_factory=list)

    def __call__(self, request: Request) -> Reply:
        assert self.handler is not None
        reply = self.handler(request)
        for api in gcp.apis():
            found = api.find(request.method, request.path)
            if found and reply.status == 200:
                document = Request("GET", "/", (), {}, reply.body).json()
                self.problems += [
                    f"{found[0].id}: {text}" for text in api.problems(found[0].response, document)
                ]
        return reply


@dataclass(frozen=True)
class Opened:
    """A provider with its server, for the whole session."""

    provider: Provider
    options: dict[str, Any]
    server: HttpServer
    face: Switched


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="session")
def account() -> ServiceAccount:
    return ServiceAccount.generated(PROJECT)


@pytest.fixture(scope="session")
def clock() -> ManualClock:
    """It never goes back: each test's world begins where the last one ended."""
    return ManualClock()


@pytest.fixture
def world(clock: ManualClock) -> World:
    """Machines run at once, so that a create need not wait for the clock."""
    clock.advance(10)
    return World(clock, Scenario.of({"pending_s": 0}))


@pytest.fixture(scope="session")
def aws_opened(clock: ManualClock, authority: Authority) -> Iterator[Opened]:
    face = Switched()
    server = HttpServer(face, authority.server_context()).start()
    options = {
        "regions": ["us-east-1", "us-west-2"],
        "image_id": "resolve:ssm:/lab/image",
        "ca_file": str(authority.ca_file),
        "endpoint_ec2": server.url,
        "endpoint_pricing": server.url,
        "endpoint_sts": server.url,
        "endpoint_service_quotas": server.url,
    }
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", KEYS.access_key)
        environment.setenv("AWS_SECRET_ACCESS_KEY", KEYS.secret_key)
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield Opened(open_provider("aws", options, clock, INSTALLATION), options, server, face)
    server.stop()


@pytest.fixture
def aws_cloud(aws_opened: Opened, world: World, clock: ManualClock) -> Cloud:
    aws_opened.face.handler = aws.create(world, KEYS)
    provider = aws_opened.provider
    offers = _offers(provider, "aws/use1-az6/p5.4xlarge/spot", "aws/use1-az6/g6.xlarge/on_demand")
    return Cloud("aws", provider, aws_opened.options, clock, "RunInstances", world, offers)


@pytest.fixture(scope="session")
def gcp_opened(
    clock: ManualClock,
    authority: Authority,
    account: ServiceAccount,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Opened]:
    face = Switched()
    server = HttpServer(face, authority.server_context()).start()
    key_file = tmp_path_factory.mktemp("gcp") / "account.json"
    account.write(key_file, f"{server.url}/token")
    options = {
        "project": PROJECT,
        "regions": ["us-central1", "us-east4"],
        "image": "projects/lab-project/global/images/family/gpu",
        "credentials_file": str(key_file),
        "ca_file": str(authority.ca_file),
        "endpoint_compute": server.url,
        "endpoint_billing": server.url,
        "create_wait_s": 0.5,
    }
    yield Opened(open_provider("gcp", options, clock, INSTALLATION), options, server, face)
    server.stop()


@pytest.fixture
def gcp_cloud(
    gcp_opened: Opened, world: World, account: ServiceAccount, clock: ManualClock
) -> Iterator[Cloud]:
    face, provider = gcp_opened.face, gcp_opened.provider
    face.handler = gcp.create(world, PROJECT, account.email, account.public_key_pem)
    face.problems.clear()
    offers = _offers(
        provider, "gcp/us-central1-a/a3-highgpu-1g/spot", "gcp/us-central1-a/g2-standard-4/on_demand"
    )
    yield Cloud("gcp", provider, gcp_opened.options, clock, "instances.insert", world, offers)
    assert face.problems == []


@pytest.fixture
def local_cloud(clock: ManualClock, tmp_path: Path) -> Iterator[Cloud]:
    options = {
        "dir": str(tmp_path / "nodes"),
        "gpu": "L4-24GB",
        "price_usd_h": "0.12",
        "count": 1,
        "grace_s": 1,
    }
    provider = open_provider("local", options, clock, INSTALLATION)
    offer = next(iter(provider.quotes())).offer
    cloud = Cloud("local", provider, options, clock, "", None, (offer, offer))
    yield cloud
    for token in TOKENS:
        if node := cloud.find(token):
            provider.delete(node)
            cloud.until_ended(token)


@pytest.fixture(params=["aws", "gcp", "local"])
def cloud(request: pytest.FixtureRequest) -> Cloud:
    """Each provider in turn."""
    found: Cloud = request.getfixturevalue(f"{request.param}_cloud")
    return found


@pytest.fixture(params=["aws", "gcp"])
def lab_cloud(request: pytest.FixtureRequest) -> Cloud:
    """Each provider with a simulated world behind it, in turn."""
    found: Cloud = request.getfixturevalue(f"{request.param}_cloud")
    return found


def _offers(provider: Provider, *keys: str) -> tuple[Offer, Offer]:
    sold = {quote.offer.key: quote.offer for quote in provider.quotes()}
    first, second = (sold[key] for key in keys)
    return first, second
