"""The hand on the world, through its own client over HTTP."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from lab.control import Control, LabClient
from lab.faces import aws, lambda_cloud
from lab.machines import CreateRequest
from lab.serving import HttpServer
from lab.world import World
from tests.clocks import ManualClock

SPOT = "aws/use1-az6/p5.4xlarge/spot"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def world(clock: ManualClock) -> World:
    return World(clock)


@pytest.fixture
def ended() -> list[bool]:
    return []


@pytest.fixture
def lab(world: World, ended: list[bool]) -> Iterator[LabClient]:
    faces = {
        "aws": aws.create(world, aws.Keys("AKIALAB", "secret")),
        "lambda": lambda_cloud.create(world, "secret"),
    }
    control = Control(
        world, "token", faces, lambda machine: f"console of {machine}", lambda: ended.append(True)
    )
    server = HttpServer(control.handle).start()
    yield LabClient({"endpoints": {"control": server.url}, "control_token": "token"})
    server.stop()


def test_nothing_without_the_token(lab: LabClient) -> None:
    answer = httpx.get(lab.info["endpoints"]["control"] + "/state", headers={"Authorization": "Bearer other"})
    assert answer.status_code == 401


def test_prices_stock_and_state(lab: LabClient) -> None:
    assert lab.price(SPOT, usd="4.00") == 4_000_000
    assert lab.price(SPOT, factor=0.5) == 2_000_000
    lab.stock(SPOT, 2)
    assert lab.state()["pools"][SPOT] == {"price_micro_usd_h": 2_000_000, "stock": 2, "free": 2}
    with pytest.raises(ValueError, match="positive"):
        lab.price(SPOT, usd="0")
    with pytest.raises(ValueError, match="is not sold here"):
        lab.stock("aws/nowhere/p5.4xlarge/spot", 1)


def test_interruption_and_truth(lab: LabClient, world: World, clock: ManualClock) -> None:
    machine = world.create(CreateRequest(SPOT, "t", user_data="secret")).id
    lab.price(SPOT, usd="3.60")
    clock.advance(3 + 7200)
    assert lab.interrupt(machine, 60)["interruption"]["deadline_s"] == world.now_s() + 60
    clock.advance(100)
    truth = lab.truth()
    (line,) = truth["lines"]
    assert (line["cost_micro_usd"], line["ended_by"]) == (7_260_000, "cloud")
    assert truth["total_micro_usd"] == 7_260_000
    assert [entry["what"] for entry in truth["log"]][-2:] == ["machine.stopping", "machine.terminated"]
    assert lab.hold_cost(SPOT, line["from_s"], line["to_s"]) == 7_260_000
    assert "secret" not in str(lab.state())


def test_faults_are_queued_and_cleared(lab: LabClient) -> None:
    lab.fault("aws", "RunInstances", "reply_lost", count=2)
    assert lab.state()["faults"][0]["kind"] == "reply_lost"
    lab.clear()
    assert lab.state()["faults"] == []


@pytest.mark.parametrize(
    ("cloud", "operation", "kind", "more", "words"),
    [
        ("aws", "*", "gremlins", {}, "not a valid FaultKind"),
        ("amazon", "*", "down", {}, "no cloud 'amazon' here; there are aws, lambda"),
        ("aws", "DescribeSpotPrices", "down", {}, r"no call 'DescribeSpotPrices'.*DescribeSpotPriceHistory, .*Get"),
        ("lambda", "listInstanceTypes", "wrong_currency", {}, "lambda cannot act out wrong_currency.*wrong_shape"),
        ("aws", "*", "down", {"count": 0}, "once at least"),
        ("aws", "*", "slow", {"seconds": -1.0}, "not below zero"),
    ],
)  # fmt: skip
def test_a_fault_that_would_never_happen_is_refused_with_what_there_is(
    lab: LabClient, cloud: str, operation: str, kind: str, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        lab.fault(cloud, operation, kind, **more)
    assert lab.state()["faults"] == []


def test_a_doubt_is_what_windows_costs_and_azures_alone(lab: LabClient, world: World) -> None:
    on_demand, spot = (f"azure/eastus/Standard_NC40ads_H100_v5/{m}" for m in ("on_demand", "spot"))
    before, spot_before = world.price(on_demand), world.price(spot)
    share = lab.doubt(spot) / spot_before
    assert lab.doubt(on_demand) - before == 40 * 46_000
    assert share == pytest.approx(world.price(on_demand) / before, rel=1e-6)
    with pytest.raises(ValueError, match="only Azure's list has two meters"):
        lab.doubt(SPOT)


def test_console_and_shutdown(lab: LabClient, ended: list[bool]) -> None:
    assert lab.console("i-1") == "console of i-1"
    lab.shutdown()
    assert ended == [True]
