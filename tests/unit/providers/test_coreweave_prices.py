"""CoreWeave's price list with its mistakes, what node pools tell of capacity, and options that contradict each other."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.core.errors import Invalid, SettingsError
from broker.core.gpu import GPUS
from broker.core.offer import Market
from broker.core.time import DAY_S, MS
from broker.market.quarantine import sift
from providers.coreweave.node_pools import listed, pool_of
from providers.coreweave.price_list import SHIPPED, read_list
from providers.coreweave.settings import parse, vendor_endpoints, zone_of
from providers.coreweave.source import CoreWeavePrices, open_provider, region_of
from tests.clocks import ManualClock

ROW = """\
  - id: gd-8xh100ib-i128
    gpu: H100-SXM5-80GB
    gpus: 8
    vcpus: 128
    memory_gib: 2048
    interconnect: nvlink
    fabric: infiniband
    on_demand_usd_per_node_h: 49.24
    spot_usd_per_node_h: 19.71
    zones: [US-EAST-04A, RNO2A]
"""
LIST = f"date: 2026-09-20\nsource: a page\ncurrency: USD\ninstances:\n{ROW}"
LIST_DATE_MS = 1_789_862_400_000


def opened(days_old: float = 1.0, **options: Any) -> CoreWeavePrices:
    return open_provider(options, ManualClock(LIST_DATE_MS + round(days_old * DAY_S * MS)), "broker-lab1")


# The list that comes with the broker


def test_the_shipped_list_is_well_and_says_where_it_is_from() -> None:
    shipped = read_list()
    assert shipped.date_ms == LIST_DATE_MS
    assert shipped.source == "www.coreweave.com/pricing"
    assert "github.com/api-evangelist/coreweave" in SHIPPED.read_text()


def test_what_it_offers_is_believed_by_the_market_and_the_rest_is_quarantined_by_name() -> None:
    source = opened()
    sifted = sift(source.quotes(), LIST_DATE_MS + DAY_S * MS, {}, {})
    prices = {(q.offer.instance_type, q.offer.market): q.price_micro_usd_h for q in sifted.quotes}
    assert prices[("gd-8xh100ib-i128", Market.ON_DEMAND)] == 49_240_000
    assert prices[("gd-8xh100ib-i128", Market.SPOT)] == 19_710_000
    assert ("b300-8x", Market.ON_DEMAND) not in prices, "nobody publishes it"
    doubted = {doubt.raw.offer.instance_type: doubt.reason for doubt in sifted.doubts.values()}
    assert doubted == {
        "gb200-4x": "unknown GPU 'GB200 (186 GB), by the rack of 18 nodes'",
        "gd-8xl40-i128": "unknown GPU 'L40 (48 GB)'",
        "rtxp6000-8x": "unknown GPU 'RTX PRO 6000 Blackwell (96 GB)'",
    }


def test_a_rack_is_never_an_offer_of_one_node_even_when_its_gpu_becomes_known(tmp_path: Path) -> None:
    file = tmp_path / "list.yaml"
    rack = ROW.replace("gpu: H100-SXM5-80GB", "other_gpu: GB200-186GB").replace("gpus: 8", "gpus: 4")
    rack = rack.replace("    spot_usd_per_node_h: 19.71\n", "    nodes_per_rack: 18\n")
    file.write_text(LIST.replace(ROW, rack))
    (instance,) = read_list(file).instances
    assert (instance.gpus, instance.prices[Market.ON_DEMAND]) == (4, "49.24"), "a node of it, undivided"
    assert instance.gpu not in {*GPUS, "GB200-186GB"}
    assert (
        "sold by the rack, and no offer: gd-8xh100ib-i128 (18 nodes)"
        in opened(price_file=str(file)).check()[0].detail
    )


def test_no_superchip_is_sold_as_spot() -> None:
    spot = {quote.offer.gpu for quote in opened().quotes() if quote.offer.market is Market.SPOT}
    assert spot
    assert not [gpu for gpu in spot if gpu.startswith(("GH", "GB"))]


def test_only_zones_of_north_america_are_priced_since_the_prices_are_for_those() -> None:
    zones = {quote.offer.zone for quote in opened().quotes()}
    assert zones
    assert not [zone for zone in zones if not zone.startswith(("US-", "CA-", "RNO"))]


# Its age


def test_a_list_is_quoted_for_ninety_days_and_then_no_more() -> None:
    assert opened(89.9).quotes()
    with pytest.raises(
        Invalid, match="2026-09-20 is 90d2h old, more than 90d: its prices are not read any more"
    ):
        opened(90.1).quotes()
    assert opened(90.1, max_list_age="180d").quotes()


def test_doctor_shows_the_age_and_warns_in_the_last_third() -> None:
    fresh, ageing, over = (opened(days).check()[0] for days in (59, 71, 91))
    assert (fresh.ok, ageing.ok, over.ok) == (True, None, False)
    assert fresh.detail.startswith("of 2026-09-20, 59d old, from www.coreweave.com/pricing")
    assert "not read any more" not in fresh.detail
    assert ageing.detail.startswith(
        "of 2026-09-20, 71d old, and not read any more in 19d: set price_file to a"
    )
    assert "10 instance types" in ageing.detail
    assert opened(71, max_list_age="180d").check()[0].ok is True


def test_a_list_that_ages_takes_no_other_line_of_doctor_away() -> None:
    names = [check.name for check in opened(71, zones=["US-NOWHERE-01A"]).check()]
    assert "coreweave: zones" in names


def test_a_list_of_the_future_is_told_and_doubted_by_the_market() -> None:
    source = opened(-30)
    assert (source.check()[0].ok, "yet to come" in source.check()[0].detail) == (False, True)
    sifted = sift(source.quotes(), LIST_DATE_MS - 30 * DAY_S * MS, {}, {})
    assert sifted.quotes == ()


# Mistakes in a list


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ("date: 2026-09-20", "date: 20.9.2026", "1:7", "is no day; write 2026-09-20"),
        ("date: 2026-09-20\n", "", "1:1", "date is missing"),
        ("currency: USD", "currency: EUR", "3:11", "'EUR' is not one of USD"),
        ("gpu: H100", "gpu: H10", "6:10", "unknown GPU 'H10-SXM5-80GB'"),
        ("gpu: H100-SXM5-80GB", "other_gpu: H100-SXM5-80GB", "6:16", "is known: write gpu"),
        ("    gpu: H100-SXM5-80GB\n", "", "5:5", "instances[0].gpu is missing"),
        ("gpus: 8", "gpus: 800", "7:11", "800 is more than 16"),
        ("fabric: infiniband", "fabric: efa", "11:13", "'efa' is not one of infiniband, ethernet"),
        ("49.24", "0", "12:31", "a price is more than 0"),
        ("49.24", "-1", "12:31", "a price is more than 0"),
        ("49.24", "11e999999999", "12:31", "no price that anyone pays"),
        ("49.24", "1e-999999999", "12:31", "no price that anyone pays"),
        ("49.24", ".nan", "12:31", "expected a number"),
        ("49.24", '"49.24"', "12:31", "expected a number"),
        (
            "on_demand_usd_per_node_h",
            "on_demand_usd_per_gpu_h",
            "12:5",
            "unknown key instances[0].on_demand_usd_per_gpu_h",
        ),
        ("[US-EAST-04A, RNO2A]", "[]", "14:12", "instances[0].zones: empty"),
        ("[US-EAST-04A, RNO2A]", "[RNO2A, RNO2A]", "14:12", "a zone twice"),
        ("[US-EAST-04A, RNO2A]", "[US/EAST]", "14:13", "is no name"),
        (ROW, ROW + ROW, "15:5", "a second row for gd-8xh100ib-i128"),
        (ROW, "  []\n", "5:3", "instances: empty"),
    ],
)
def test_a_mistake_has_its_place(tmp_path: Path, old: str, new: str, place: str, words: str) -> None:
    file = tmp_path / "list.yaml"
    assert old in LIST
    file.write_text(LIST.replace(old, new))
    with pytest.raises(SettingsError) as caught:
        open_provider({"price_file": str(file)}, ManualClock(), "broker-lab1")
    assert str(caught.value).startswith(f"{file}:{place}: ")
    assert words in str(caught.value)


def test_a_row_needs_a_price_and_a_superchip_has_no_spot(tmp_path: Path) -> None:
    file = tmp_path / "list.yaml"
    file.write_text(LIST.replace("    on_demand_usd_per_node_h: 49.24\n    spot_usd_per_node_h: 19.71\n", ""))
    with pytest.raises(SettingsError, match="has no price: on_demand_usd_per_node_h or spot_usd_per_node_h"):
        read_list(file)
    file.write_text(LIST.replace("H100-SXM5-80GB", "GH200-96GB"))
    with pytest.raises(SettingsError, match=r":13:26: GH200-96GB is not sold as spot"):
        read_list(file)
    file.write_text(LIST.replace("    spot_usd_per_node_h: 19.71\n", "    nodes_per_rack: 18\n"))
    with pytest.raises(SettingsError, match="by the rack: write other_gpu"):
        read_list(file)


def test_a_list_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "list.yaml"
    file.write_bytes(b"date: \xff\n")
    with pytest.raises(SettingsError, match=rf"cannot read {file}: it is not UTF-8 text"):
        read_list(file)
    file.write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(SettingsError, match=rf"cannot read {file}: it is longer than"):
        read_list(file)
    with pytest.raises(SettingsError, match=r"clouds\.coreweave\.price_file: there is no file"):
        parse({"price_file": str(tmp_path / "none")})


@pytest.mark.parametrize(
    ("put", "words"),
    [
        (os.mkfifo, "it is a pipe"),
        (Path.mkdir, "it is a folder"),
        (lambda place: place.symlink_to("/dev/zero"), "it is a device"),
        (lambda place: place.write_bytes(b"date: \xff"), "it is not UTF-8 text"),
        (lambda place: place.write_text("#" * (1 << 20) + "\n"), "it is longer than"),
        (lambda place: None, "No such file"),
    ],
)
def test_whatever_takes_the_lists_place_fails_polls_only_until_a_list_is_back(
    tmp_path: Path, put: Callable[[Path], None], words: str
) -> None:
    file = tmp_path / "list.yaml"
    file.write_text(LIST)
    source = opened(price_file=str(file))
    file.rename(tmp_path / "kept.yaml")
    put(file)
    with pytest.raises(Invalid, match=words):
        source.quotes()
    assert (source.check()[0].ok, words in source.check()[0].detail) == (False, True)
    if file.is_dir():
        file.rmdir()
    (tmp_path / "kept.yaml").replace(file)
    assert source.quotes()


@pytest.mark.parametrize(
    ("zone", "region"),
    [("US-EAST-04A", "US-EAST"), ("EU-SOUTH-03B", "EU-SOUTH"), ("RNO2A", "US-WEST"), ("LGA1", "LGA1")],
)
def test_a_zone_lies_in_a_region(zone: str, region: str) -> None:
    assert region_of(zone) == region


# Node pools


def pool(
    target: int | None = 1,
    current: int = 1,
    compute_class: str | None = "default",
    *conditions: tuple[str, str, str],
    **spec: Any,
) -> dict[str, Any]:
    wanted = {
        "instanceType": "gd-8xh100ib-i128",
        "computeClass": compute_class,
        "targetNodes": target,
        **spec,
    }
    return {
        "metadata": {"name": "pool"},
        "spec": {key: value for key, value in wanted.items() if value is not None},
        "status": {
            "currentNodes": current,
            "conditions": [{"type": kind, "status": state, "reason": why} for kind, state, why in conditions],
        },
    }


def told(*items: Any) -> dict[Market, bool]:
    pools = [found for item in items if (found := pool_of(item)) is not None]
    return {market: can for (_, market), can in listed(pools).items()}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (pool(2, 2), True),
        (pool(0, 0), None),
        (pool(2, 1), None),
        (pool(2, 1, "default", ("Capacity", "True", "Sufficient")), True),
        (pool(2, 1, "default", ("Capacity", "False", "Insufficient")), False),
        (pool(2, 1, "default", ("Capacity", "False", "Partial")), None),
        (pool(2, 1, "default", ("Capacity", "Unknown", "Pending")), None),
        (pool(2, 1, "default", ("Quota", "False", "Over")), False),
        (pool(2, 1, "default", ("Quota", "Unknown", "NotSet")), None),
        (pool(2, 2, "default", ("Quota", "False", "Over")), False),
        # However they are called now: names were changed in January 2026.
        (pool(2, 1, "default", ("SufficientCapacity", "True", "x")), True),
        (pool(2, 1, "default", ("NodeCapacityAvailable", "False", "x")), False),
        (pool(2, 1, "default", ("InsufficientCapacity", "True", "x")), False),
        (pool(2, 1, "default", ("QuotaExceeded", "True", "x")), False),
        (pool(2, 1, "default", ("QuotaExceeded", "False", "x"), ("Capacity", "True", "x")), True),
        (pool(None, 0, "default", ("Capacity", "False", "x"), targetRacks=1), False),
        (pool(None, 17, targetRacks=1), None),
        (pool(None, 18, targetRacks=1), True),
    ],
)
def test_what_one_pool_tells(item: Any, expected: bool | None) -> None:
    assert told(item) == ({} if expected is None else {Market.ON_DEMAND: expected})


@pytest.mark.parametrize("spelling", ["spot", "Spot", "SPOT"])
def test_spot_however_it_is_spelt(spelling: str) -> None:
    assert told(pool(1, 1, spelling)) == {Market.SPOT: True}


def test_a_class_that_is_neither_tells_nothing() -> None:
    assert told(pool(1, 1, "flex")) == {}
    assert told(pool(1, 1, None)) == {Market.ON_DEMAND: True}


def test_a_pool_that_waits_counts_more_than_one_that_is_filled() -> None:
    waits = pool(2, 1, "spot", ("Capacity", "False", "Insufficient"))
    assert told(pool(4, 4, "spot"), waits) == told(waits, pool(4, 4, "spot")) == {Market.SPOT: False}


@pytest.mark.parametrize(
    "item",
    [
        None,
        {},
        [],
        {"metadata": {}, "spec": {"instanceType": "x"}},
        {"metadata": {"name": "x"}, "spec": None},
    ],
)
def test_what_is_no_pool_is_left_out(item: Any) -> None:
    assert pool_of(item) is None


def test_a_status_that_cannot_be_read_tells_nothing() -> None:
    item = pool(1, 0)
    item["status"] = {"currentNodes": "many", "conditions": [None, "x", {"type": None}]}
    assert told(item) == {}


# Options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"api_server": "https://x", "kubeconfig": __file__},
            r"coreweave\.api_server: kubeconfig is another way",
        ),
        ({"context": "x"}, r"coreweave\.context: names one of a kubeconfig"),
        ({"ca_file": __file__}, r"coreweave\.ca_file: is for api_server"),
        ({"api_server": "http://cluster.example"}, r"coreweave\.api_server: must be https"),
        ({"max_list_age": 90}, r"coreweave\.max_list_age: expected a duration such as 90d"),
        ({"max_list_age": "0s"}, r"coreweave\.max_list_age: 0 is not more than 0"),
        ({"zones": ["us-east"]}, r"coreweave\.zones\[0\]"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        parse(options)


def test_whose_endpoint_it_is() -> None:
    managed = "https://org1-ab12.k8s.us-east-04a.coreweave.com"
    assert vendor_endpoints({}) == []
    assert vendor_endpoints({"api_server": managed}) == [managed]
    assert vendor_endpoints({"api_server": "https://127.0.0.1:6443"}) == []
    assert vendor_endpoints({"kubeconfig": __file__}) == [f"kubeconfig {__file__}"]
    assert zone_of(managed) == "US-EAST-04A"
    assert zone_of("https://127.0.0.1:6443") is None


def test_who_asks_no_cluster_needs_no_kubernetes_client() -> None:
    code = (
        "import sys; sys.modules['kubernetes'] = None\n"
        "from providers.registry import open_source; from tests.clocks import ManualClock\n"
        f"source = open_source('coreweave', {{}}, ManualClock({LIST_DATE_MS}), 'i'); assert source.quotes()\n"
        "try: open_source('coreweave', {'api_server': 'https://127.0.0.1:1'}, ManualClock(), 'i')\n"
        "except Exception as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "asking a cluster needs kubernetes" in done.stdout
    assert "requirements.lock '.[coreweave]'" in done.stdout
