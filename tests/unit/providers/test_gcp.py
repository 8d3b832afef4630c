"""Google's words into ours: SKUs, errors, instances and operations."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
import requests
from google.api_core import exceptions as api
from google.auth import exceptions as auth
from google.cloud import billing_v1, compute_v1
from urllib3.exceptions import MaxRetryError, NewConnectionError, ProtocolError

from broker.core.errors import (
    Denied,
    Invalid,
    OutOfCapacity,
    OutOfQuota,
    ProviderDown,
    ProviderError,
    Scoped,
    Throttled,
    UnknownOutcome,
)
from broker.core.model import EndedBy
from broker.core.offer import Market, Offer
from broker.core.ports import CloudState, LaunchRequest
from providers.gcp.checks import quotas
from providers.gcp.errors import Refusal, from_operation, translated
from providers.gcp.machines import MachineFacts, facts
from providers.gcp.nodes import instance_of, node_from_operations, node_of, request_label
from providers.gcp.settings import GcpOptions
from providers.gcp.skus import machine_price, parts
from providers.gcp.tariff import billing_rule, egress_rule

NOW_MS = 1_796_032_800_000
OFFER = Offer("gcp", "us-central1", "us-central1-a", "a3-highgpu-8g", Market.SPOT, "H100-SXM5-80GB", 8)
REQUEST = LaunchRequest("bk-aaaaaaaaaaaaaaaaaaaaaaaaaa-0", OFFER, "#!/bin/sh\n", "inst", 7, notice_s=120)
OPTIONS = GcpOptions(project="p", regions=("us-central1",), image="projects/p/global/images/i")


def sku(text: str, usd: str, usage: str = "OnDemand", unit: str = "h", **more: Any) -> Any:
    units, _, nanos = usd.partition(".")
    price = {
        "currency_code": more.get("currency", "USD"),
        "units": int(units),
        "nanos": int((nanos or "0").ljust(9, "0")),
    }
    rate = {"start_usage_amount": 0, "unit_price": price}
    rates = [*more.get("free", []), rate]
    return billing_v1.Sku(
        description=f"{text} in Americas",
        category={"resource_family": more.get("family", "Compute"), "usage_type": usage},
        service_regions=["us-central1"],
        pricing_info=[
            {
                "effective_time": more.get("since", "2026-11-01T00:00:00Z"),
                "pricing_expression": {"usage_unit": unit, "tiered_rates": rates},
            }
        ],
    )


def machine(name: str, vcpus: int, memory_gib: int, kind: str, gpus: int, ssd: int = 0) -> MachineFacts:
    found = facts(
        compute_v1.MachineType(
            name=name,
            guest_cpus=vcpus,
            memory_mb=memory_gib * 1024,
            accelerators=[{"guest_accelerator_type": kind, "guest_accelerator_count": gpus}],
            bundled_local_ssds={"partition_count": ssd},
        )
    )
    assert found is not None
    return found


A3 = machine("a3-highgpu-8g", 208, 1872, "nvidia-h100-80gb", 8)
A3_SKUS = [
    sku("A3 Instance Core running", "0.029"),
    sku("A3 Instance Ram running", "0.0025", unit="GiBy.h"),
    sku("Nvidia H100 80GB GPU running", "9.7965"),
]
A3_PRICE = Decimal("208") * Decimal("0.029") + 1872 * Decimal("0.0025") + 8 * Decimal("9.7965")


def price(skus: list[Any], kind: MachineFacts = A3, market: Market = Market.ON_DEMAND) -> Decimal | None:
    found = machine_price(parts(skus, NOW_MS), kind, "us-central1", market)
    return None if found is None else found.amount


def test_a_machine_costs_the_sum_of_its_parts() -> None:
    assert price(A3_SKUS) == A3_PRICE
    assert price(A3_SKUS, market=Market.SPOT) is None


def test_spot_parts_are_called_differently() -> None:
    spot = [
        sku("Spot Preemptible A3 Instance Core running", "0.01", "Preemptible"),
        sku("Spot Preemptible A3 Instance Ram running", "0.001", "Preemptible", "GiBy.h"),
        sku("Nvidia H100 80GB GPU attached to Spot Preemptible VMs running", "2", "Preemptible"),
    ]
    assert price(A3_SKUS + spot, market=Market.SPOT) == Decimal("2.08") + Decimal("1.872") + 16
    assert price(A3_SKUS + spot) == A3_PRICE


@pytest.mark.parametrize(
    "decoy",
    [
        sku("A3 Sole Tenancy Instance Core running", "0.001"),
        sku("Nvidia H100 80GB GPU attached to DWS Defined Duration VMs running", "1"),
        sku("DWS Calendar Mode Nvidia H100 80GB GPU running", "1"),
        sku("Reserved Nvidia H100 80GB GPU running", "1"),
        sku("Commitment v1: Nvidia H100 80GB GPU running", "1", "Commit1Yr"),
        sku("Nvidia H100 80GB Mega GPU running", "1"),
        sku("Nvidia H100 80GB GPU running", "1", family="License"),
    ],
    ids=lambda decoy: str(decoy.description),
)
def test_what_is_sold_under_other_terms_changes_nothing(decoy: Any) -> None:
    assert price([*A3_SKUS, decoy]) == A3_PRICE


def test_a_missing_doubtful_or_strange_part_makes_no_cheap_machine() -> None:
    assert price(A3_SKUS[:2]) is None
    assert price([*A3_SKUS, sku("Nvidia H100 80GB GPU running", "1")]) is None
    assert price([*A3_SKUS[:2], sku("Nvidia H100 80GB GPU running", "7000", unit="mo")]) is None
    assert price([*A3_SKUS[:2], sku("Nvidia H100 80GB GPU running", "0")]) is None


def test_the_newest_price_that_has_begun_counts() -> None:
    gpu = sku("Nvidia H100 80GB GPU running", "9.7965")
    later = sku("Nvidia H100 80GB GPU running", "5", since="2027-01-01T00:00:00Z")
    gpu.pricing_info = [*gpu.pricing_info, *later.pricing_info]
    assert price([*A3_SKUS[:2], gpu]) == A3_PRICE


def test_a_free_first_tier_is_not_the_price() -> None:
    free = [{"start_usage_amount": 0, "unit_price": {"currency_code": "USD", "units": 0, "nanos": 0}}]
    assert price([*A3_SKUS[:2], sku("Nvidia H100 80GB GPU running", "9.7965", free=free)]) == A3_PRICE


def test_local_ssd_that_comes_with_a_machine_is_paid_for() -> None:
    with_ssd = machine("a3-highgpu-8g", 208, 1872, "nvidia-h100-80gb", 8, ssd=16)
    assert price(A3_SKUS, with_ssd) is None
    ssd = sku("SSD backed Local Storage", "0.08", unit="GiBy.mo", family="Storage")
    found = price([*A3_SKUS, ssd], with_ssd)
    assert found is not None
    assert round(found - A3_PRICE, 9) == round(16 * 375 * Decimal("0.08") / 730, 9)


def test_a4_is_sold_by_the_slice() -> None:
    a4 = machine("a4-highgpu-8g", 224, 3968, "nvidia-b200", 8)
    assert price([sku("A4 Nvidia B200 (1 gpu slice) running", "12.5")], a4) == 100


def test_machines_that_we_cannot_price_are_no_offers() -> None:
    assert facts(compute_v1.MachineType(name="n2-standard-8")) is None
    assert (
        facts(compute_v1.MachineType(name="a9-highgpu-8g", accelerators=[{"guest_accelerator_count": 8}]))
        is None
    )
    strange = machine("g2-standard-4", 4, 16, "nvidia-l5", 1)
    assert strange.gpu == "nvidia-l5"  # for the quarantine
    assert (A3.interconnect, A3.fabric, strange.interconnect) == ("nvlink", "gpudirect", "none")


def refused(status: int, reason: str, message: str = "no") -> api.GoogleAPICallError:
    error = api.from_http_status(status, message, errors=[{"reason": reason, "message": message}])
    assert isinstance(error, api.GoogleAPICallError)
    return error


@pytest.mark.parametrize(
    ("error", "kind", "scope"),
    [
        (refused(403, "quotaExceeded", "Quota 'GPUS_ALL_REGIONS' exceeded"), OutOfQuota, "cloud"),
        (refused(403, "quotaExceeded", "Quota 'NVIDIA_L4_GPUS' exceeded"), OutOfQuota, "region"),
        (refused(403, "rateLimitExceeded"), Throttled, None),
        (refused(429, ""), Throttled, None),
        (refused(403, "forbidden"), Denied, None),
        (refused(401, "authError"), Denied, None),
        (refused(400, "invalid"), Invalid, None),
        (refused(503, "backendError"), UnknownOutcome, None),
        (auth.DefaultCredentialsError("none"), Denied, None),
        (auth.RefreshError("invalid_grant"), Denied, None),
        (auth.TransportError("no route"), ProviderDown, None),
        (requests.ConnectTimeout(), ProviderDown, None),
        (
            requests.ConnectionError(MaxRetryError(None, "/", NewConnectionError(None, "refused"))),  # type: ignore[arg-type]
            ProviderDown,
            None,
        ),
        (
            requests.ConnectionError(ProtocolError("Connection aborted.", ConnectionResetError())),
            UnknownOutcome,
            None,
        ),
        (requests.ReadTimeout(), UnknownOutcome, None),
        (ValueError("no JSON"), UnknownOutcome, None),
    ],
)
def test_every_failure_of_a_create_has_its_error(
    error: Exception, kind: type[ProviderError], scope: str | None
) -> None:
    with pytest.raises(kind) as caught, translated("renting", creating=True):
        raise error
    if isinstance(caught.value, Scoped):
        assert caught.value.scope == scope


def test_missing_credentials_name_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    said = "Your default credentials were not found. To set up Application Default Credentials, see https://x"
    with pytest.raises(Denied) as caught, translated("listing"):
        raise auth.DefaultCredentialsError(said)
    assert str(caught.value) == (
        "gcp: listing: Your default credentials were not found; name the key of a service account in "
        "clouds.gcp.credentials_file or in GOOGLE_APPLICATION_CREDENTIALS; on a machine of Google Cloud its own service "
        "account will do, on your own `gcloud auth application-default login`"
    )
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/gcp.json")
    with pytest.raises(Denied) as caught, translated("listing"):
        raise auth.DefaultCredentialsError("File /nowhere/gcp.json was not found.")
    assert str(caught.value) == (
        "gcp: listing: GOOGLE_APPLICATION_CREDENTIALS names /nowhere/gcp.json, and there is no such file"
    )


@pytest.mark.parametrize(
    ("code", "kind", "scope"),
    [
        ("ZONE_RESOURCE_POOL_EXHAUSTED", OutOfCapacity, "zone"),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", OutOfCapacity, "zone"),
        ("REGION_RESOURCE_POOL_EXHAUSTED", OutOfCapacity, "region"),
        ("UNSUPPORTED_OPERATION", OutOfCapacity, "zone"),
        ("QUOTA_EXCEEDED", OutOfQuota, "region"),
        ("RESOURCE_OPERATION_RATE_EXCEEDED", Throttled, None),
        ("RESOURCE_NOT_READY", UnknownOutcome, None),
        ("RESOURCE_NOT_FOUND", Invalid, None),
    ],
)
def test_every_error_of_an_operation_has_its_own(
    code: str, kind: type[ProviderError], scope: str | None
) -> None:
    error = from_operation([Refusal(code, "no")], "renting")
    assert isinstance(error, kind)
    if isinstance(error, Scoped):
        assert error.scope == scope


def test_an_instance_asks_for_what_the_request_says() -> None:
    made = instance_of(REQUEST, OPTIONS)
    assert compute_v1.Instance.to_json(made) == compute_v1.Instance.to_json(instance_of(REQUEST, OPTIONS))
    assert made.name == REQUEST.token
    assert made.scheduling.provisioning_model == "SPOT"
    assert made.scheduling.instance_termination_action == "DELETE"
    assert made.scheduling.preemption_notice_duration.seconds == 120
    assert made.scheduling.automatic_restart is False
    assert made.disks[0].auto_delete is True
    assert made.labels["broker-request"] == request_label(REQUEST)
    assert all(len(value) <= 63 and value == value.lower() for value in made.labels.values())


def test_an_on_demand_instance_has_no_notice_and_ends_itself_when_told() -> None:
    offer = Offer(
        "gcp", "us-central1", "us-central1-a", "a4-highgpu-8g", Market.ON_DEMAND, "B200-SXM-180GB", 8
    )
    request = LaunchRequest(REQUEST.token, offer, "", "inst", 7, notice_s=120, max_life_s=3600)
    made = instance_of(request, OPTIONS)
    assert made.scheduling.provisioning_model == "STANDARD"
    assert "preemption_notice_duration" not in made.scheduling
    assert made.scheduling.max_run_duration.seconds == 3600
    assert made.scheduling.instance_termination_action == "DELETE"
    assert made.disks[0].initialize_params.disk_type.endswith("hyperdisk-balanced")


def operation(kind: str, began: str, ended: str | None, **more: Any) -> Any:
    return compute_v1.Operation(
        operation_type=kind,
        target_id=42,
        insert_time=f"2026-11-30T{began}:00.000-08:00",
        start_time=f"2026-11-30T{began}:00.000-08:00",
        end_time=f"2026-11-30T{ended}:00.000-08:00" if ended else "",
        status="DONE" if ended else "RUNNING",
        **more,
    )


INSERT = operation("insert", "02:00", "02:01")
BEGAN_MS = 1_796_032_800_000  # 02:00 in California is 10:00 UTC


@pytest.mark.parametrize(
    ("ends", "by", "minutes"),
    [
        ([operation("delete", "03:00", "03:02")], EndedBy.US, 60),
        (
            [
                operation("compute.instances.preempted", "03:00", "03:01"),
                operation("delete", "03:01", "03:02"),
            ],
            EndedBy.CLOUD,
            61,
        ),
        (
            [
                operation("compute.instances.guestTerminate", "03:00", "03:00"),
                operation("delete", "05:00", "05:01"),
            ],
            EndedBy.NODE,
            60,
        ),
    ],
    ids=["deleted", "preempted", "shut down from inside"],
)
def test_operations_tell_of_an_end(ends: list[Any], by: EndedBy, minutes: int) -> None:
    node = node_from_operations([*reversed(ends), INSERT], "bk", "us-central1", "us-central1-a")
    assert node is not None
    assert (node.state, node.ended_by, node.provider_id) == (CloudState.TERMINATED, by, "42")
    assert node.billed_from_ms == BEGAN_MS + 60_000
    assert node.ended_at_ms == BEGAN_MS + minutes * 60_000


def test_operations_tell_of_a_beginning_and_of_nothing() -> None:
    running = node_from_operations([operation("insert", "02:00", None)], "bk", "r", "z")
    assert running is not None
    assert (running.state, running.billed_from_ms) == (CloudState.PENDING, None)
    error = {"errors": [{"code": "ZONE_RESOURCE_POOL_EXHAUSTED"}]}
    assert node_from_operations([operation("insert", "02:00", "02:01", error=error)], "bk", "r", "z") is None
    assert node_from_operations([], "bk", "r", "z") is None


def test_a_stopped_instance_is_not_over_but_its_meter_is() -> None:
    stopped = compute_v1.Instance(
        name="bk",
        id=42,
        status="TERMINATED",
        creation_timestamp="2026-11-30T02:00:00.000-08:00",
        last_start_timestamp="2026-11-30T02:00:10.000-08:00",
        last_stop_timestamp="2026-11-30T03:00:00.000-08:00",
    )
    node = node_of(stopped, "r", "z")
    assert (node.state, node.ended_by) == (CloudState.STOPPING, EndedBy.NODE)
    assert (node.billed_from_ms, node.ended_at_ms) == (BEGAN_MS + 10_000, BEGAN_MS + 3_600_000)


def test_spot_says_what_is_not_confirmed_of_its_billing() -> None:
    spot, on_demand = billing_rule(Market.SPOT), billing_rule(Market.ON_DEMAND)
    assert (spot.unit_s, spot.minimum_s, spot.free_if_interrupted_within_s) == (1, 60, 0)
    assert "first minute" in spot.unconfirmed
    assert on_demand.unconfirmed == ""
    assert "RUNNING" in on_demand.meter


def test_egress_between_continents_is_dearer() -> None:
    rule = egress_rule(OPTIONS)

    def cost(region: str, zone: str) -> int:
        return rule.micro_usd_per_gib(OFFER, replace(OFFER, region=region, zone=zone))

    assert cost("us-central1", "us-central1-a") == 0
    assert cost("us-central1", "us-central1-b") == 10_000
    assert cost("us-east4", "us-east4-a") == cost("northamerica-northeast1", "x") == 20_000
    assert cost("europe-west4", "europe-west4-a") == cost("asia-northeast1", "x") == 80_000
    assert rule.micro_usd_per_gib(OFFER, None) == 120_000


def test_quotas_of_gpus_are_told_and_none_at_all_is_not_well() -> None:
    def quota(metric: str, limit: float, usage: float = 0) -> Any:
        return compute_v1.Quota(metric=metric, limit=limit, usage=usage)

    told = quotas(
        "r", [quota("NVIDIA_L4_GPUS", 0), quota("PREEMPTIBLE_NVIDIA_L4_GPUS", 8, 3), quota("CPUS", 9)]
    )
    assert told.ok
    assert "L4: 0 of 0 on demand, 3 of 8 spot" in told.detail
    assert "CPUS" not in told.detail
    assert quotas("r", [quota("NVIDIA_A100_80GB_GPUS", 0), quota("CPUS", 9)]).ok is None
    assert quotas("r", []).ok is None
