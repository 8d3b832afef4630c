"""CoreWeave: dollars an hour for a whole node, as its pricing page said in September 2026; superchips have no spot.

One price for all zones. There is no API of prices, so the lab writes a list as an operator would: `price_file`. In some
places nothing is left at the start.
"""

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal

from lab.listing import InstanceType, Listing, Zone, micro_usd

_MICRO_USD = 1_000_000

TYPES = (
    InstanceType(
        "coreweave", "b200-8x", "B200-SXM-180GB", "B200", 8, 184320, 128, 2048, "nvlink", "infiniband"
    ),
    InstanceType(
        "coreweave",
        "gd-8xh200ib-i128",
        "H200-SXM-141GB",
        "H200",
        8,
        144384,
        128,
        2048,
        "nvlink",
        "infiniband",
    ),
    InstanceType(
        "coreweave", "gd-8xh100ib-i128", "H100-SXM5-80GB", "H100", 8, 81920, 128, 2048, "nvlink", "infiniband"
    ),
    InstanceType("coreweave", "gd-8xa100-i128", "A100-SXM4-80GB", "A100", 8, 81920, 128, 2048, "nvlink"),
    InstanceType("coreweave", "gd-1xgh200", "GH200-96GB", "GH200", 1, 98304, 72, 480, "none"),
)

ZONES = tuple(
    Zone("coreweave", name.rpartition("-")[0], name, name) for name in ("US-EAST-04A", "US-WEST-04A")
)
CLUSTER_ZONE = "US-EAST-04A"

# Type -> (on demand, spot).
_PRICES: Mapping[str, tuple[str, str | None]] = {
    "b200-8x": ("68.80", "34.11"),
    "gd-8xh200ib-i128": ("50.44", "20.93"),
    "gd-8xh100ib-i128": ("49.24", "19.71"),
    "gd-8xa100-i128": ("21.60", "9.65"),
    "gd-1xgh200": ("6.50", None),
}

# Zone -> type -> nodes left of (on demand, spot).
_LEFT: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "US-EAST-04A": {
        "gd-8xh200ib-i128": (0, 4),
        "gd-8xh100ib-i128": (2, 0),
        "gd-8xa100-i128": (6, 6),
        "gd-1xgh200": (3, 0),
    },
    "US-WEST-04A": {"b200-8x": (0, 1), "gd-8xh200ib-i128": (1, 2), "gd-8xh100ib-i128": (0, 8)},
}

_BY_NAME = {kind.name: kind for kind in TYPES}


def listings() -> Iterator[Listing]:
    """Every pool, in a fixed order."""
    for zone in ZONES:
        for name, (on_demand_left, spot_left) in _LEFT[zone.id].items():
            on_demand, spot = _PRICES[name]
            yield Listing(zone, _BY_NAME[name], "on_demand", micro_usd(on_demand), on_demand_left)
            if spot is not None:
                yield Listing(zone, _BY_NAME[name], "spot", micro_usd(spot), spot_left)


def price_file(date: str, prices_micro_usd_h: Mapping[str, int]) -> str:
    """The list that an operator would have typed in on that day, for ``price_file``.

    Args:
        date: ``2026-11-30``.
        prices_micro_usd_h: By offer key; those of CoreWeave are written down.
    """
    rows: dict[str, dict[str, object]] = {}
    for key, price in prices_micro_usd_h.items():
        cloud, zone, name, market = key.split("/")
        if cloud != "coreweave":
            continue
        kind = _BY_NAME[name]
        row = rows.setdefault(
            name,
            {
                "id": name,
                "gpu": kind.gpu,
                "gpus": kind.gpus,
                "vcpus": kind.vcpus,
                "memory_gib": kind.memory_gib,
                "interconnect": kind.interconnect,
                "fabric": kind.fabric,
                "zones": [],
            },
        )
        zones = row["zones"]
        assert isinstance(zones, list)
        if zone not in zones:
            zones.append(zone)
        row[f"{market}_usd_per_node_h"] = Decimal(price) / _MICRO_USD
    lines = [f"date: {date}", "source: the lab", "currency: USD", "instances:"]
    for row in rows.values():
        lines += [f"  {'-' if first else ' '} {key}: {_yaml(value)}" for first, (key, value) in _marked(row)]
    return "\n".join([*lines, ""])


def _marked(row: Mapping[str, object]) -> Iterator[tuple[bool, tuple[str, object]]]:
    return ((number == 0, item) for number, item in enumerate(row.items()))


def _yaml(value: object) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else json.dumps(value)
