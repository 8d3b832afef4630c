"""What doctor says of Google's prices and advice."""

import pytest

from broker.core.ports import Check
from lab.faults import FaultKind
from lab.world import World
from providers.registry import open_source
from tests.contract.conftest import INSTALLATION, Cloud, Opened
from tests.contract.gcp.conftest import ADVISED, HISTORY, LISTED, checks, spot_sources

pytestmark = pytest.mark.process


def test_every_right_has_its_line(gcp: Cloud) -> None:
    found = checks(gcp.provider)
    assert {name: check.ok for name, check in found.items()} == {
        "gcp: credentials": True,
        "gcp: price list": True,
        "gcp: compute.instances.list": True,
        "gcp: us-central1: compute.regions.get": True,
        "gcp: us-central1: compute.machineTypes.list": True,
        "gcp: us-central1: compute.zoneOperations.list": True,
        "gcp: us-central1: GPU quotas": True,
        "gcp: us-east4: compute.regions.get": True,
        "gcp: us-east4: compute.machineTypes.list": True,
        "gcp: us-east4: compute.zoneOperations.list": True,
        "gcp: us-east4: GPU quotas": True,
        "gcp: compute.advice.capacityHistory": True,
        "gcp: compute.advice.capacity": True,
    }
    assert "L4: 0 of 1000 on demand, 0 of 1000 spot" in found["gcp: us-east4: GPU quotas"].detail


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("skus.list", "gcp: price list"),
        ("instances.aggregatedList", "gcp: compute.instances.list"),
        ("regions.get", "gcp: us-central1: compute.regions.get"),
        ("machineTypes.list", "gcp: us-central1: compute.machineTypes.list"),
        ("zoneOperations.list", "gcp: us-central1: compute.zoneOperations.list"),
    ],
)
def test_a_missing_right_is_named(gcp: Cloud, method: str, name: str) -> None:
    provider = gcp.opened_with(capacity_advice=False)
    gcp.fault(FaultKind.DENIED, method)
    assert [line for line, check in checks(provider).items() if check.ok is False] == [name]


def test_advice_that_is_refused_is_told_and_asked_again_by_doctor(gcp: Cloud, world: World) -> None:
    gcp.fault(FaultKind.DENIED, HISTORY, count=None)
    assert set(spot_sources(gcp).values()) == {LISTED}
    line = checks(gcp.provider)["gcp: compute.advice.capacityHistory"]
    assert line.ok is None
    assert "403" in line.detail
    assert "price list" in line.detail
    world.faults.clear()
    assert checks(gcp.provider)["gcp: compute.advice.capacityHistory"].ok
    assert set(spot_sources(gcp).values()) == {ADVISED}


def test_doctor_stays_calm_when_a_reply_has_another_shape(gcp_opened: Opened, gcp: Cloud) -> None:
    gcp.fault(FaultKind.WRONG_SHAPE, "*", count=None)
    assert checks(gcp.provider)["gcp: price list"].ok is False
    gcp_opened.face.problems.clear()


def test_doctor_stays_calm_when_nothing_answers(gcp: Cloud) -> None:
    gcp.fault(FaultKind.DOWN, "*", count=None)
    found = checks(gcp.provider)
    assert found.pop("gcp: credentials").ok
    assert {check.ok for check in found.values()} == {False}


def test_without_an_image_prices_are_the_same_and_no_right_to_machines_is_needed(
    gcp: Cloud, world: World
) -> None:
    options = {key: value for key, value in gcp.options.items() if key not in ("image", "create_wait_s")}
    source = open_source("gcp", options, gcp.clock, INSTALLATION)
    for method in ("instances.aggregatedList", "instances.insert", "zoneOperations.list"):
        gcp.fault(FaultKind.DENIED, method, count=None)
    assert {quote.offer.key for quote in source.quotes()} == {
        quote.offer.key for quote in gcp.provider.quotes()
    }
    found = checks(source)
    assert found["gcp: launches"] == Check("gcp: launches", None, "prices only: no image is set")
    assert sorted(name for name, check in found.items() if check.ok is not True) == ["gcp: launches"]
    assert "gcp: us-east4: compute.machineTypes.list" in found
    assert not [name for name in found if "instances" in name or "quotas" in name or "Operations" in name]
