"""What only Google's prices need: a provider that has never polled, and calls that are watched on their way."""

from collections.abc import Callable
from typing import Any

import pytest

from broker.core.offer import Market
from broker.core.ports import Check
from lab.faces import Reply, Request
from tests.contract.conftest import Cloud, Opened

SPOT = "gcp/us-central1-a/a3-highgpu-1g/spot"
L4 = "gcp/us-central1-a/g2-standard-4/spot"
HISTORY, CAPACITY = "advice.capacityHistory", "advice.capacity"
ADVISED, LISTED = "gcp:capacity_history", "gcp:skus"


@pytest.fixture
def gcp(gcp_cloud: Cloud) -> Cloud:
    """With a provider that has never polled."""
    gcp_cloud.provider = gcp_cloud.opened_with()
    return gcp_cloud


class Calls:
    """Requests to a method on their way to the face; `instead` may answer them."""

    def __init__(self, opened: Opened, method: str, instead: Callable[[Request], Reply | None]) -> None:
        face = opened.face.handler
        assert face is not None
        self._face, self._method, self._instead = face, method.replace(".", "/"), instead
        self.bodies: list[Any] = []

    def __call__(self, request: Request) -> Reply:
        if request.path.endswith(self._method):
            self.bodies.append(request.json())
            if (reply := self._instead(request)) is not None:
                return reply
        return self._face(request)


@pytest.fixture
def watch(gcp_opened: Opened, gcp: Cloud, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Calls]:
    def watch(method: str, instead: Callable[[Request], Reply | None] = lambda _: None) -> Calls:
        calls = Calls(gcp_opened, method, instead)
        monkeypatch.setattr(gcp_opened.face, "handler", calls)
        return calls

    return watch


def spot_sources(gcp: Cloud) -> dict[str, str]:
    return {
        quote.offer.key: quote.source for quote in gcp.provider.quotes() if quote.offer.market is Market.SPOT
    }


def refusing(status: int) -> Callable[[Request], Reply]:
    error = {"code": status, "message": "no", "errors": [{"reason": "forbidden", "message": "no"}]}
    return lambda _: Reply.of_json({"error": error}, status)


def checks(provider: Any) -> dict[str, Check]:
    return {check.name: check for check in provider.check()}
