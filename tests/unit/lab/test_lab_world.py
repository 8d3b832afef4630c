"""The world: money, idempotency, stock, notices. Golden figures are worked out by hand in the comments."""

import pytest

from lab.catalog import TYPES, Scenario, listings
from lab.machines import (
    CreateRequest,
    EndedBy,
    Happening,
    MachineState,
    NameTaken,
    OutOfStock,
    PriceTooLow,
    TokenMismatch,
    UnknownPool,
)
from lab.sold.gcp import sku_parts
from lab.world import World
from tests.clocks import ManualClock

SPOT = "aws/use1-az6/p5.4xlarge/spot"
GCP = "gcp/us-central1-a/a3-highgpu-1g/spot"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def world(clock: ManualClock) -> World:
    return World(clock, Scenario.of({"prices": {SPOT: "3.60", GCP: "7.20"}}))


def create(world: World, key: str = SPOT, token: str | None = None, **more: object) -> str:
    return world.create(CreateRequest(key, token, **more)).id  # type: ignore[arg-type]


def cost(world: World, machine: str) -> tuple[int, str]:
    (line,) = [line for line in world.bill() if line.machine == machine]
    return line.cost_micro_usd, line.why


def test_a_bill_is_the_integral_of_the_price(world: World, clock: ManualClock) -> None:
    machine = create(world, GCP)
    clock.advance(3 + 600)  # pending 3 s, then ten minutes at $7.20/h = $1.20
    world.set_price(GCP, 14_400_000)
    clock.advance(1800)  # half an hour at $14.40/h = $7.20
    world.terminate(machine)
    clock.advance(5000)  # after the end nothing is billed
    assert cost(world, machine) == (8_400_000, "per_second")


def test_an_hour_of_aws_spot_costs_what_it_did_when_it_began(world: World, clock: ManualClock) -> None:
    machine = create(world, SPOT)
    clock.advance(3 + 600)  # within the first hour, at $3.60/h
    world.set_price(SPOT, 7_200_000)
    clock.advance(3000 + 1800)  # the second hour began at $7.20/h, and half of it is over
    world.terminate(machine)
    clock.advance(5000)
    assert cost(world, machine) == (3_600_000 + 3_600_000, "per_second")


@pytest.mark.parametrize(
    ("key", "by_cloud", "ran_s", "expected"),
    [
        (SPOT, False, 10, (60_000, "minimum")),  # 60 s at $3.60/h
        (SPOT, False, 61, (61_000, "per_second")),
        (SPOT, True, 3599, (0, "interrupted_in_first_hour")),
        (SPOT, True, 3600, (3_600_000, "per_second")),
        (GCP, True, 10, (120_000, "minimum")),  # a preempted GCP machine pays; 60 s at $7.20/h
    ],
)
def test_each_cloud_has_its_rule(
    world: World, clock: ManualClock, key: str, by_cloud: bool, ran_s: int, expected: tuple[int, str]
) -> None:
    machine = create(world, key)
    clock.advance(3 + ran_s)
    if by_cloud:
        world.interrupt(machine, 0)
    else:
        world.terminate(machine)
    assert cost(world, machine) == expected


def test_a_machine_ended_while_pending_costs_nothing(world: World, clock: ManualClock) -> None:
    machine = create(world)
    clock.advance(1)
    world.terminate(machine)
    clock.advance(100)
    assert cost(world, machine) == (0, "never_ran")
    assert world.machine(machine).state is MachineState.TERMINATED


def test_the_same_token_is_the_same_machine(world: World) -> None:
    first = create(world, token="t", fingerprint="a")
    assert create(world, token="t", fingerprint="a") == first
    with pytest.raises(TokenMismatch):
        create(world, token="t", fingerprint="b")
    assert len(world.machines()) == 1


def test_a_name_is_free_again_only_after_the_end(world: World, clock: ManualClock) -> None:
    first = create(world, GCP, name="bk-x-0")
    with pytest.raises(NameTaken):
        create(world, GCP, name="bk-x-0")
    world.terminate(first)
    with pytest.raises(NameTaken):
        create(world, GCP, name="bk-x-0")
    clock.advance(5)
    assert create(world, GCP, name="bk-x-0") != first


def test_stock_is_what_may_exist_at_once(world: World) -> None:
    world.set_stock(SPOT, 1)
    first = create(world)
    with pytest.raises(OutOfStock):
        create(world)
    world.terminate(first)
    assert world.free(SPOT) == 1
    world.set_stock(SPOT, 0)
    with pytest.raises(OutOfStock):
        create(world)


def test_a_bid_below_the_price_is_refused_and_a_rise_above_it_interrupts(
    world: World, clock: ManualClock
) -> None:
    with pytest.raises(PriceTooLow):
        create(world, max_price_micro_usd_h=3_500_000)
    machine = create(world, max_price_micro_usd_h=4_000_000)
    clock.advance(10)
    world.set_price(SPOT, 4_500_000)
    interruption = world.machine(machine).interruption
    assert interruption is not None
    assert interruption.deadline_s - interruption.noticed_s == 120


def test_notice_then_end_by_the_cloud(world: World, clock: ManualClock) -> None:
    machine = create(world)
    clock.advance(100)
    world.interrupt(machine, 120)
    clock.advance(119)
    assert world.machine(machine).state is MachineState.RUNNING
    clock.advance(1)
    ended = world.machine(machine)
    assert (ended.state, ended.ended_by) == (MachineState.STOPPING, EndedBy.CLOUD)


def test_one_who_leaves_during_the_notice_has_left_by_himself(world: World, clock: ManualClock) -> None:
    machine = create(world)
    clock.advance(103)
    world.interrupt(machine, 120)
    clock.advance(20)
    world.terminate(machine)
    clock.advance(500)
    assert cost(world, machine) == (120_000, "per_second")


def test_a_bounded_life_ends_by_itself(world: World, clock: ManualClock) -> None:
    machine = create(world, GCP, max_life_s=1000)
    clock.advance(5000)
    ended = world.machine(machine)
    assert ended.ended_by is EndedBy.LIFETIME
    assert ended.stopping_s == ended.created_s + 3 + 1000


def test_lateness_changes_nothing() -> None:
    """A world that is looked at once an hour tells the same story as one that is looked at each second."""
    stories = []
    for step in (1, 3600):
        clock = ManualClock()
        world = World(clock, Scenario.of({"prices": {SPOT: "3.60"}}))
        machine = create(world)
        world.interrupt(machine, 1800)
        for _ in range(0, 3600, step):
            clock.advance(step)
            world.advance()
        stories.append((world.log(), world.bill()))
    assert stories[0] == stories[1]


def test_a_gcp_price_holds_in_the_whole_region(world: World) -> None:
    world.set_price(GCP, 2_000_000)
    assert world.price("gcp/us-central1-b/a3-highgpu-1g/spot") == 2_000_000
    assert world.price("gcp/us-east4-a/a3-highgpu-1g/spot") != 2_000_000
    assert world.price("gcp/us-central1-a/a3-highgpu-1g/on_demand") != 2_000_000


def test_gcp_skus_add_up_to_the_price() -> None:
    for listing in listings():
        if listing.zone.cloud == "gcp":
            kind, parts = listing.type, sku_parts(listing.type, listing.price_micro_usd_h)
            total = parts.core_nano_usd_h * kind.vcpus + parts.ram_nano_usd_gib_h * kind.memory_gib
            assert total + parts.gpu_nano_usd_h * kind.gpus == listing.price_micro_usd_h * 1000


def test_hold_cost_is_what_staying_would_have_cost(world: World, clock: ManualClock) -> None:
    start = world.now_s()
    clock.advance(1800)
    for key in (SPOT, GCP):
        world.set_price(key, 36_000_000)
    clock.advance(1800)
    assert world.hold_cost(SPOT, start, start + 3600) == 3_600_000  # the price when the hour began
    assert world.hold_cost(GCP, start, start + 3600) == 3_600_000 + 18_000_000


def test_listeners_hear_in_order_and_may_call_the_world(world: World, clock: ManualClock) -> None:
    heard: list[Happening] = []

    def listen(what: Happening, machine: object) -> None:
        heard.append(what)
        if what is Happening.RUNNING:
            world.terminate(machine.id, EndedBy.NODE)  # type: ignore[attr-defined]

    world.subscribe(listen)
    create(world)
    clock.advance(3)
    world.advance()
    clock.advance(5)
    world.advance()
    assert heard == [Happening.CREATED, Happening.RUNNING, Happening.STOPPING, Happening.TERMINATED]


def test_what_is_not_sold_cannot_be_had(world: World) -> None:
    with pytest.raises(UnknownPool):
        create(world, "aws/use1-az1/p5.48xlarge/spot")


def test_a_scenario_goes_from_the_general_to_the_particular(clock: ManualClock) -> None:
    world = World(clock, Scenario.of({"stock": {"gcp/*": 0, GCP: 2}, "prices": {"aws/*/spot": 1}}))
    assert world.free("gcp/us-central1-b/a3-highgpu-1g/spot") == 0
    assert world.free(GCP) == 2
    assert world.price(SPOT) == 1_000_000
    with pytest.raises(ValueError, match="unknown"):
        Scenario.of({"price": {}})
    with pytest.raises(ValueError, match=r"images: gcp/\*: known are"):
        Scenario.of({"images": {"gcp/*": {"pyhton": "/usr/bin/python3"}}})


def test_every_type_names_a_gpu_that_the_broker_knows() -> None:
    from broker.core.gpu import GPUS

    assert {kind.gpu for kind in TYPES.values()} <= set(GPUS)
