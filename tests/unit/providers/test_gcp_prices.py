"""SKUs and prices of Google's that are not what they seem."""

from decimal import Decimal
from typing import Any

import pytest
from google.cloud import billing_v1, compute_v1

from broker.core.offer import Market
from broker.core.time import DAY_S, from_iso
from providers.gcp.advice import SpotPrice
from providers.gcp.machines import MachineFacts, facts
from providers.gcp.skus import MachinePrice, machine_price, parts
from providers.gcp.spot import current

NOW_MS = from_iso("2026-11-30T10:00:00Z")


def sku(text: str, *tiers: tuple[float, int, int], usage: str = "OnDemand", **more: str) -> Any:
    """One SKU; a tier is (start of usage, units, nanos)."""
    rates = [
        {
            "start_usage_amount": start,
            "unit_price": {"currency_code": more.get("currency", "USD"), "units": units, "nanos": nanos},
        }
        for start, units, nanos in tiers
    ]
    return billing_v1.Sku(
        description=f"{text} in Americas",
        category={"resource_family": "Compute", "usage_type": usage},
        service_regions=["us-central1"],
        pricing_info=[{"pricing_expression": {"usage_unit": more.get("unit", "h"), "tiered_rates": rates}}],
    )


def machine(name: str, vcpus: int, memory_gib: int, kind: str, gpus: int) -> MachineFacts:
    found = facts(
        compute_v1.MachineType(
            name=name,
            guest_cpus=vcpus,
            memory_mb=memory_gib * 1024,
            accelerators=[{"guest_accelerator_type": kind, "guest_accelerator_count": gpus}],
        )
    )
    assert found is not None
    return found


def price(skus: list[Any], kind: MachineFacts, market: Market = Market.ON_DEMAND) -> MachinePrice | None:
    return machine_price(parts(skus, NOW_MS), kind, "us-central1", market)


def amount(skus: list[Any], kind: MachineFacts, market: Market = Market.ON_DEMAND) -> Decimal | None:
    found = price(skus, kind, market)
    return None if found is None else found.amount


A2 = machine("a2-highgpu-1g", 12, 85, "nvidia-tesla-a100", 1)
A2_ULTRA = machine("a2-ultragpu-1g", 12, 170, "nvidia-a100-80gb", 1)
A4 = machine("a4-highgpu-8g", 224, 3968, "nvidia-b200", 8)
HOST = [
    sku("A2 Instance Core running", (0, 0, 31_611_000)),
    sku("A2 Instance Ram running", (0, 0, 4_237_000), unit="GiBy.h"),
]
A100_40 = sku("Nvidia Tesla A100 GPU running", (0, 2, 933_908_000))
A100_80 = sku("Nvidia Tesla A100 80GB GPU running", (0, 3, 928_880_000))
HOST_40 = 12 * Decimal("0.031611") + 85 * Decimal("0.004237")


def test_a_host_whose_gpu_is_not_listed_is_no_cheap_machine() -> None:
    assert amount(HOST, A2) is None
    assert amount([*HOST, A100_80], A2) is None
    assert amount([*HOST, sku("Nvidia Tesla A100 GPU running", (0, 0, 0))], A2) is None


def test_an_a100_has_the_price_of_its_memory() -> None:
    everything = [*HOST, A100_40, A100_80]
    assert amount(everything, A2) == HOST_40 + Decimal("2.933908")
    assert amount(everything, A2_ULTRA) == HOST_40 + 85 * Decimal("0.004237") + Decimal("3.928880")
    assert A2.gpu != A2_ULTRA.gpu


def test_units_and_nanos_are_one_amount() -> None:
    whole = sku("Nvidia Tesla A100 GPU running", (0, 3, 0))
    small = sku("Nvidia Tesla A100 GPU running", (0, 0, 1))
    assert amount([*HOST, whole], A2) == HOST_40 + 3
    assert amount([*HOST, small], A2) == HOST_40 + Decimal("0.000000001")


@pytest.mark.parametrize(
    "tiers",
    [
        [(0, 2, 0)],
        [(0, 2, 0), (1000, 1, 0)],
        [(1000, 1, 0), (0, 2, 0)],
        [(0, 0, 0), (100, 2, 0)],
        [(100, 2, 0), (0, 0, 0), (5000, 1, 0)],
    ],
    ids=["one", "cheaper later", "out of order", "free at first", "free, out of order"],
)
def test_the_first_tier_that_costs_something_is_the_price(tiers: list[tuple[float, int, int]]) -> None:
    assert amount([*HOST, sku("Nvidia Tesla A100 GPU running", *tiers)], A2) == HOST_40 + 2


SLICE = sku("A4 Nvidia B200 (1 gpu slice) running", (0, 12, 500_000_000))
SPOT_SLICE = sku(
    "Spot Preemptible A4 Nvidia B200 (1 gpu slice) running", (0, 4, 250_000_000), usage="Preemptible"
)


def test_a_slice_is_a_gpu_with_its_share_of_the_host() -> None:
    assert amount([SLICE, SPOT_SLICE], A4) == 100
    assert amount([SLICE, SPOT_SLICE], A4, Market.SPOT) == 34
    host = [
        sku("A4 Instance Core running", (0, 1, 0)),
        sku("A4 Instance Ram running", (0, 1, 0), unit="GiBy.h"),
    ]
    assert amount([SLICE, *host], A4) == 100


@pytest.mark.parametrize(
    "text",
    [
        "A4 Nvidia B200 (1 gpu slice) attached to DWS Defined Duration VMs running",
        "DWS Calendar Mode A4 Nvidia B200 (1 gpu slice) running",
        "Reserved A4 Nvidia B200 (1 gpu slice) running",
        "Commitment v1: A4 Nvidia B200 (1 gpu slice)",
        "A4 Sole Tenancy Nvidia B200 (1 gpu slice) running",
        "A4X Nvidia GB200 (1 gpu slice) running",
    ],
)
@pytest.mark.parametrize("usage", ["OnDemand", "Preemptible"])
def test_slices_under_other_terms_change_nothing(text: str, usage: str) -> None:
    decoy = sku(text, (0, 1, 0), usage=usage)
    assert amount([SLICE, decoy], A4) == 100
    assert amount([SPOT_SLICE, decoy], A4, Market.SPOT) == 34
    assert amount([decoy], A4) is None


def test_parts_in_two_currencies_are_told_as_such() -> None:
    euro = sku("Nvidia Tesla A100 GPU running", (0, 2, 0), currency="EUR")
    found = price([*HOST, euro], A2)
    assert found is not None
    assert found.currency == "EUR+USD"


def spot(usd: str, since: str, until: str | None) -> SpotPrice:
    return SpotPrice(Decimal(usd), "USD", from_iso(since), from_iso(until) if until else None)


def test_the_newest_interval_that_has_begun_is_the_price_now() -> None:
    old = spot("2.0", "2026-10-01T08:00:00Z", "2026-11-20T08:00:00Z")
    now = spot("3.0", "2026-11-20T08:00:00Z", "2026-12-01T08:00:00Z")
    announced = spot("1.0", "2026-12-01T08:00:00Z", None)
    assert current([announced, now, old], NOW_MS) == now
    assert current([announced], NOW_MS) is None
    assert current([], NOW_MS) is None


def test_an_interval_that_ended_long_ago_is_a_gap_and_no_price() -> None:
    ended = spot("2.0", "2026-10-01T08:00:00Z", "2026-11-30T08:00:00Z")
    assert current([ended], NOW_MS) == ended
    assert current([ended], NOW_MS + 3 * DAY_S * 1000) is None
