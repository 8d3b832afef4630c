"""CoreWeave's prices: a dated file, since there is no API for them. The one that comes with us, or the operator's own.

Why the date of the file is the date of its prices, and when it stops being believed: docs/decisions/0004-a-price-list-with-a-date.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from broker.core.errors import SettingsError
from broker.core.gpu import GPUS
from broker.core.offer import Market
from broker.core.time import from_iso
from broker.core.yaml_text import Mapped, Node, did_you_mean, parse
from broker.textfile import read_text

SHIPPED = Path(__file__).with_name("prices.yaml")

_PRICES = {Market.ON_DEMAND: "on_demand_usd_per_node_h", Market.SPOT: "spot_usd_per_node_h"}
_KEYS = (
    "id",
    "gpu",
    "other_gpu",
    "gpus",
    "vcpus",
    "memory_gib",
    "interconnect",
    "fabric",
    "nodes_per_rack",
    "zones",
)
_MOST_GPUS = 16
# "all instance types except Superchip-powered instances", docs.coreweave.com, spot node pools
_SUPERCHIPS = ("GH", "GB")


@dataclass(frozen=True)
class Instance:
    """One row.

    Attributes:
        name: The node pools' ``instanceType``; ``id`` in the file.
        gpu: SKU, or words that are none: then the market keeps the quote in quarantine.
        gpus: Of one node.
        fabric: Between nodes.
        prices: Dollars an hour for a whole node, as text.
        nodes_per_rack: 0 where nodes are sold one by one.
    """

    name: str
    gpu: str
    gpus: int
    vcpus: int
    memory_gib: int
    interconnect: str
    fabric: str
    prices: Mapping[Market, str]
    zones: tuple[str, ...]
    nodes_per_rack: int = 0


@dataclass(frozen=True)
class PriceList:
    """A whole file.

    Attributes:
        date: As written: ``2026-09-20``.
        date_ms: The start of that day, UTC.
        source: Where the prices were read.
    """

    date: str
    date_ms: int
    source: str
    instances: tuple[Instance, ...]


def read_list(file: Path = SHIPPED) -> PriceList:
    """Read a price list, strictly.

    Raises:
        SettingsError: it cannot be read, or something in it is wrong; with file, line and column.
    """
    document = parse(read_text(file, SettingsError), str(file), SettingsError)
    document.only(("date", "source", "currency", "instances"))
    date = document.need("date")
    document.need("currency").as_choice(("USD",))
    rows = document.need("instances").as_sequence()
    instances: dict[str, Instance] = {}
    for row in rows:
        instance = _instance(row.as_mapped())
        if instance.name in instances:
            raise row.fail(f"a second row for {instance.name}")
        instances[instance.name] = instance
    if not instances:
        raise rows.fail("instances: empty")
    return PriceList(
        date=date.as_str(),
        date_ms=_date_ms(date),
        source=document.need("source").as_str(),
        instances=tuple(instances.values()),
    )


def _instance(row: Mapped) -> Instance:
    row.only((*_KEYS, *_PRICES.values()))
    rack = row.get("nodes_per_rack")
    nodes_per_rack = rack.as_int(2, 1000) if rack is not None else 0
    gpu = _gpu(row, nodes_per_rack)
    prices = {market: _price(node) for market, key in _PRICES.items() if (node := row.get(key)) is not None}
    if not prices:
        raise row.fail(f"{row.name} has no price: {' or '.join(_PRICES.values())}")
    if Market.SPOT in prices and (nodes_per_rack or gpu.startswith(_SUPERCHIPS)):
        raise row[_PRICES[Market.SPOT]].fail(f"{gpu} is not sold as spot")
    return Instance(
        name=_name(row.need("id")),
        gpu=gpu,
        gpus=row.need("gpus").as_int(1, _MOST_GPUS),
        vcpus=row.need("vcpus").as_int(1),
        memory_gib=row.need("memory_gib").as_int(1),
        interconnect=row.need("interconnect").as_choice(("nvlink", "pcie", "none")),
        fabric=row.need("fabric").as_choice(("infiniband", "ethernet")),
        prices=prices,
        zones=_zones(row.need("zones")),
        nodes_per_rack=nodes_per_rack,
    )


def _gpu(row: Mapped, nodes_per_rack: int) -> str:
    """A SKU of ours. What is sold by the rack never is one: a price of one node of it is no offer that can be taken."""
    other = row.get("other_gpu")
    if other is None:
        node = row.need("gpu", hint="or other_gpu, for a GPU that the broker has no facts of")
        gpu = node.as_str()
        if gpu not in GPUS:
            raise node.fail(f"unknown GPU {gpu!r}", did_you_mean(gpu, GPUS) or f"known are {', '.join(GPUS)}")
        if nodes_per_rack:
            raise node.fail(f"{gpu} by the rack: write other_gpu")
        return gpu
    if "gpu" in row:
        raise other.fail("either gpu or other_gpu")
    if other.as_str() in GPUS:
        raise other.fail(f"{other.as_str()} is known: write gpu")
    return other.as_str() + (f", by the rack of {nodes_per_rack} nodes" if nodes_per_rack else "")


_DIGITS = 6


def _price(node: Node) -> str:
    amount = node.as_decimal()
    if amount <= 0:
        raise node.fail(f"{node.name}: a price is more than 0")
    # Before it is written out: a number of a few letters may have a billion digits.
    if not -_DIGITS <= amount.adjusted() <= _DIGITS or len(amount.as_tuple().digits) > 2 * _DIGITS:
        raise node.fail(f"{node.name}: no price that anyone pays")
    return f"{amount:f}"


def _zones(node: Node) -> tuple[str, ...]:
    zones = tuple(_name(zone) for zone in node.as_sequence())
    if not zones:
        raise node.fail(f"{node.name}: empty")
    if len(set(zones)) < len(zones):
        raise node.fail(f"{node.name}: a zone twice")
    return zones


def _name(node: Node) -> str:
    """A part of an offer's key."""
    name = node.as_str()
    if not all(letter.isascii() and (letter.isalnum() or letter in "-._") for letter in name):
        raise node.fail(f"{node.name}: {name!r} is no name of CoreWeave's")
    return name


def _date_ms(node: Node) -> int:
    try:
        return from_iso(f"{node.as_str()}T00:00:00Z")
    except ValueError:
        raise node.fail(f"date: {node.as_str()!r} is no day; write 2026-09-20") from None
