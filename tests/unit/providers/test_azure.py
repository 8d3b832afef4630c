"""Azure: sizes, eviction ranges, options, what it charges beside the price."""

import sys
from string import ascii_uppercase, digits
from typing import Any

import pytest

from broker.core.errors import Invalid, SettingsError
from broker.core.gpu import GPUS
from broker.core.offer import Market, Offer
from providers.azure import tariff
from providers.azure.checks import checks
from providers.azure.clients import Clients
from providers.azure.errors import retry_after_s
from providers.azure.meters import Chosen, Meter
from providers.azure.settings import AzureOptions, parse
from providers.azure.signals import share
from providers.azure.sizes import FRACTIONAL, NO_GPU, SIZES, Told, size_of
from providers.registry import open_source
from tests.clocks import START_MS, ManualClock

SUBSCRIPTION = "a2000000-0000-4000-8000-000000000002"
PLAIN: dict[str, Any] = {"regions": ["eastus"]}
DAY_MS = 86_400_000


# Sizes


@pytest.mark.parametrize(
    ("name", "gpu", "gpus"),
    [
        ("Standard_ND96isr_H100_v5", "H100-SXM5-80GB", 8),
        ("Standard_NC40ads_H100_v5", "H100-NVL-94GB", 1),
        ("Standard_NC80adis_H100_v5", "H100-NVL-94GB", 2),
        ("Standard_NC24ads_A100_v4", "A100-PCIe-80GB", 1),
        ("Standard_ND96asr_v4", "A100-SXM4-40GB", 8),
        ("Standard_ND96amsr_A100_v4", "A100-SXM4-80GB", 8),
        ("Standard_ND96isr_H200_v5", "H200-SXM-141GB", 8),
        ("Standard_ND96isr_MI300X_v5", "MI300X-192GB", 8),
        ("Standard_NC64as_T4_v3", "T4-16GB", 4),
        ("Standard_NV72ads_A10_v5", "A10-24GB", 2),
        ("Standard_NC24rs_v3", "V100-PCIe-16GB", 4),
    ],
)
def test_sizes_by_their_whole_name(name: str, gpu: str, gpus: int) -> None:
    size = size_of(name, None)
    assert size is not None
    assert (size.gpu, size.gpus) == (gpu, gpus)
    assert gpu in GPUS


def test_the_table_agrees_with_itself() -> None:
    assert not SIZES.keys() & (FRACTIONAL | NO_GPU)
    for size in SIZES.values():
        assert size.gpus in (1, 2, 4, 8), size
        assert size.vcpus > 0, size
        assert size.memory_gib > 0, size
        assert (size.interconnect == "none") == (size.gpus == 1), size
        features = size.name.split("_")[1].lstrip(ascii_uppercase).lstrip(digits)
        assert (size.fabric == "infiniband") == ("r" in features), size


def test_radeon_pro_is_told_right_and_is_no_sku_of_ours() -> None:
    for name, memory_gib in (("Standard_NG32ads_V620_v1", 64), ("Standard_NG32adms_V620_v1", 176)):
        size = size_of(name, None)
        assert size is not None
        assert (size.gpu, size.gpus, size.memory_gib) == ("Radeon-PRO-V620-32GB", 1, memory_gib)
        assert size.gpu not in GPUS


@pytest.mark.parametrize("name", sorted(FRACTIONAL | NO_GPU))
def test_parts_of_gpus_and_fpgas_are_none_though_azure_counts_one(name: str) -> None:
    assert size_of(name, None) is None
    assert size_of(name, Told(gpus=1, vcpus=6)) is None


def test_a_plain_machine_is_none_and_an_unknown_one_with_gpus_is_told() -> None:
    assert size_of("Standard_D4s_v5", Told(vcpus=4)) is None
    assert size_of("Standard_D4s_v5", None) is None
    named = size_of("Standard_XZ8_v1", Told(gpus=4, vcpus=48, memory_gib=400))
    assert named is not None
    assert (named.gpu, named.gpus, named.vcpus, named.memory_gib) == ("Standard_XZ8_v1", 4, 48, 400)
    by_series = size_of("Standard_NC999_v9", None)
    assert by_series is not None
    assert (by_series.gpu, by_series.gpus) == ("Standard_NC999_v9", 0)


def test_azures_words_about_host_and_count_are_taken_where_it_has_some() -> None:
    name = "Standard_ND96isr_H100_v5"
    told = size_of(name, Told(gpus=8, vcpus=96, memory_gib=1800))
    assert told is not None
    assert (told.gpu, told.memory_gib) == ("H100-SXM5-80GB", 1800)
    silent = size_of("Standard_ND96is_MI300X_v5", Told(vcpus=96))
    assert silent is not None
    assert (silent.gpu, silent.gpus) == ("MI300X-192GB", 8)
    contradicted = size_of(name, Told(gpus=12))
    assert contradicted is not None
    assert contradicted.gpu not in GPUS


# Eviction ranges


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("0-5", (0.0, 0.05)),
        ("5-10", (0.05, 0.1)),
        ("10-15", (0.1, 0.15)),
        ("15-20", (0.15, 0.2)),
        ("20+", (0.2, 1.0)),
        (" 0-5 ", (0.0, 0.05)),
    ],
)
def test_eviction_ranges(text: str, bounds: tuple[float, float]) -> None:
    assert share(text) == bounds


@pytest.mark.parametrize("text", ["", "5", "low", "10-5", "20-", "120+", "-5", "0-5%", "0–5"])
def test_what_is_no_eviction_range_is_left_out(text: str) -> None:
    assert share(text) is None


# When to come back


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 12 "}, 12.0),
        ({"x-ms-user-quota-resets-after": "00:00:05"}, 5.0),
        ({"x-ms-user-quota-resets-after": "00:01:30"}, 90.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"x-ms-user-quota-resets-after": "soon"}, None),
        ({"retry-after": "\u00b2"}, None),
        ({}, None),
    ],
)
def test_when_to_come_back(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds


# Options


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"tenant_id": "t"}, "tenant_id"),
        ({"subscription_id": SUBSCRIPTION, "client_id": "c"}, "client_id"),
        ({"tenant_id": "t", "client_id": "c"}, "client_id"),
        ({"placement_scores": True}, "placement_scores"),
        ({"subscription_id": "production"}, "subscription_id"),
        ({"billing_minimum": 90}, "billing_minimum"),
        ({"endpoint_retail": "prices.azure.com"}, "endpoint_retail"),
        ({"endpoint_arm": "ftp://x"}, "endpoint_arm"),
        ({"endpoint_arm": "http://proxy.example"}, "endpoint_arm"),
        ({"endpoint_login": "http://proxy.example"}, "endpoint_login"),
        ({"regions": ["eastus' or 1 eq 1"]}, "regions"),
        ({"regions": ["East US"]}, ".*lower case, no dashes: eastus"),
    ],
)
def test_a_wrong_option_names_its_key(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(SettingsError, match=rf"clouds\.azure\.{key}"):
        parse(PLAIN | changes)


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("azure.identity", "azure-identity"),
        ("azure.mgmt.resourcegraph", "azure-mgmt-resourcegraph"),
        ("azure.mgmt.computerecommender", "azure-mgmt-computerecommender"),
    ],
)
def test_what_an_account_needs_and_is_not_installed_is_named_with_the_extra(
    monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SettingsError) as caught:
        open_source("azure", PLAIN | {"subscription_id": SUBSCRIPTION}, ManualClock(), "i")
    assert package in str(caught.value)
    assert "'.[azure]'" in str(caught.value)
    assert open_source("azure", PLAIN, ManualClock(), "i").cloud == "azure"


def test_a_ca_file_without_a_certificate_is_told_and_not_raised_through() -> None:
    source = open_source("azure", PLAIN | {"ca_file": __file__}, ManualClock(), "i")
    with pytest.raises(Invalid, match="azure: ca_file holds no usable certificate"):
        list(source.quotes())
    assert source.check()[0].ok is False


# Beside the price


def offer(region: str, cloud: str = "azure") -> Offer:
    return Offer(cloud, region, region, "Standard_NC4as_T4_v3", Market.SPOT, "T4-16GB", 1)


@pytest.mark.parametrize(
    ("from_region", "to_region", "micro_usd"),
    [
        ("eastus", "eastus", 0),
        ("eastus", "westus3", 20_000),
        ("westeurope", "swedencentral", 20_000),
        ("westus2", "westeurope", 50_000),
        ("eastasia", "japaneast", 80_000),
        ("japaneast", "eastus", 80_000),
        ("eastus", "japaneast", 50_000),
        ("brazilsouth", "chilecentral", 160_000),
        ("nowhere", "eastus", 50_000),
        ("northcentralus", "northeurope", 50_000),
    ],
)
def test_egress_by_how_far_it_goes(from_region: str, to_region: str, micro_usd: int) -> None:
    source = open_source("azure", PLAIN, ManualClock(), "i")
    assert source.egress_micro_usd_per_gib(offer(from_region), offer(to_region)) == micro_usd


def test_leaving_for_another_cloud_or_a_store_elsewhere_is_the_internet() -> None:
    source = open_source("azure", PLAIN, ManualClock(), "i")
    assert source.egress_micro_usd_per_gib(offer("eastus"), None) == 87_000
    assert source.egress_micro_usd_per_gib(offer("eastus"), offer("us-east-1", "aws")) == 87_000
    own = open_source("azure", PLAIN | {"egress_internet_usd_gib": "0.05"}, ManualClock(), "i")
    assert own.egress_micro_usd_per_gib(offer("eastus"), None) == 50_000
    assert source.egress_micro_usd_per_gib(offer("brazilsouth"), None) == 160_000
    assert own.egress_micro_usd_per_gib(offer("brazilsouth"), None) == 50_000


def test_disks_are_priced_by_the_option() -> None:
    assert open_source("azure", PLAIN, ManualClock(), "i").disk_micro_usd_per_gib_month("eastus") == 75_000


@pytest.mark.parametrize(("options", "minimum_s"), [({}, 300), ({"billing_minimum": 60}, 60)])
@pytest.mark.parametrize("market", [Market.SPOT, Market.ON_DEMAND])
def test_the_shortest_billed_run_is_disputed_and_says_so(
    options: dict[str, Any], minimum_s: int, market: Market
) -> None:
    rule = open_source("azure", PLAIN | options, ManualClock(), "i").billing_rule(market)
    assert (rule.unit_s, rule.minimum_s, rule.free_if_interrupted_within_s) == (1, minimum_s, 0)
    assert "60 s" in rule.unconfirmed
    assert "300 s" in rule.unconfirmed
    assert rule.source
    assert "still billed" in rule.meter


def test_the_areas_of_egress_do_not_overlap() -> None:
    rule = tariff.egress_rule(AzureOptions(regions=("eastus",)))
    assert rule.area_of("westus3") == rule.area_of("canadacentral") == "north_america"
    assert rule.area_of("westeurope") == rule.area_of("uksouth") == "europe"
    assert rule.area_of("japaneast") == rule.area_of("southindia") == "asia"
    assert rule.area_of("southcentralus") == "north_america"
    assert rule.area_of("nowhere") == "nowhere"


# Doctor


def line(*, spot_age_days: float | None, ended: tuple[str, ...] = (), elsewhere: tuple[str, ...] = ()) -> Any:
    """The line of a price list."""
    options = AzureOptions(regions=("eastus",))
    meters = [Meter("Standard_NC4as_T4_v3", Market.ON_DEMAND, "0.526", "USD", 0, "m")]
    if spot_age_days is not None:
        began_ms = START_MS - round(spot_age_days * DAY_MS)
        meters.append(Meter("Standard_NC4as_T4_v3", Market.SPOT, "0.2", "USD", began_ms, "s"))
    answer = Chosen(tuple(meters), frozenset(elsewhere), frozenset(ended))
    return checks(options, Clients(options), lambda region, told: answer, START_MS)[0]


def test_a_list_whose_newest_spot_price_is_old_has_stopped() -> None:
    assert line(spot_age_days=44).ok is True
    stopped = line(spot_age_days=46)
    assert stopped.ok is False
    assert "46d ago: the list seems to have stopped" in stopped.detail


def test_a_list_without_spot_prices_has_stopped_only_if_it_had_some() -> None:
    assert line(spot_age_days=None).ok is True
    assert line(spot_age_days=None, ended=("Standard_NC4as_T4_v3 spot",)).ok is False
    retired = line(spot_age_days=3, ended=("Standard_NC6s_v3 spot",))
    assert retired.ok is True
    assert "the last day has passed of Standard_NC6s_v3 spot" in retired.detail


def test_sizes_that_other_regions_meter_are_named() -> None:
    told = line(spot_age_days=3, elsewhere=("Standard_NC6s_v3",))
    assert "no price for Standard_NC6s_v3, whose meters belong to other regions" in told.detail
