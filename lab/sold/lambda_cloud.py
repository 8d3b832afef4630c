"""Lambda: dollars an hour as its API listed them on 2026-05-07 (github.com/anycloud-sh/catalog); no spot is sold.

One price for all regions. The lab sells in a few of them, and in some it has nothing left at the start, so that a type
is listed here and not there, and one of them nowhere.
"""

from collections.abc import Iterator, Mapping

from lab.listing import InstanceType, Listing, Zone, micro_usd

TYPES = (
    InstanceType("lambda", "gpu_1x_a10", "A10-24GB", "A10 (24 GB PCIe)", 1, 24576, 30, 200, "none"),
    InstanceType(
        "lambda", "gpu_1x_h100_pcie", "H100-PCIe-80GB", "H100 (80 GB PCIe)", 1, 81920, 26, 200, "none"
    ),
    InstanceType(
        "lambda", "gpu_1x_h100_sxm5", "H100-SXM5-80GB", "H100 (80 GB SXM5)", 1, 81920, 26, 225, "none"
    ),
    InstanceType(
        "lambda", "gpu_8x_h100_sxm5", "H100-SXM5-80GB", "H100 (80 GB SXM5)", 8, 81920, 208, 1800, "nvlink"
    ),
    InstanceType(
        "lambda",
        "gpu_8x_a100_80gb_sxm4",
        "A100-SXM4-80GB",
        "A100 (80 GB SXM4)",
        8,
        81920,
        240,
        1800,
        "nvlink",
    ),
    InstanceType(
        "lambda", "gpu_8x_b200_sxm6", "B200-SXM-180GB", "B200 (180 GB SXM6)", 8, 184320, 208, 2900, "nvlink"
    ),
    InstanceType("lambda", "gpu_1x_gh200", "GH200-96GB", "GH200 (96 GB)", 1, 98304, 64, 432, "none"),
)

ZONES = tuple(
    Zone("lambda", name, name, name)
    for name in ("us-east-1", "us-west-1", "us-west-2", "us-south-1", "europe-central-1")
)

PLACES: Mapping[str, str] = {
    "us-east-1": "Virginia, USA",
    "us-west-1": "California, USA",
    "us-west-2": "Arizona, USA",
    "us-south-1": "Texas, USA",
    "europe-central-1": "Germany",
}

STORAGE_GIB: Mapping[str, int] = {
    "gpu_1x_a10": 1434,
    "gpu_1x_h100_pcie": 1024,
    "gpu_1x_h100_sxm5": 2867,
    "gpu_8x_h100_sxm5": 22528,
    "gpu_8x_a100_80gb_sxm4": 20480,
    "gpu_8x_b200_sxm6": 22528,
    "gpu_1x_gh200": 4096,
}

_PRICES = {
    "gpu_1x_a10": "1.29",
    "gpu_1x_h100_pcie": "3.29",
    "gpu_1x_h100_sxm5": "4.29",
    "gpu_8x_h100_sxm5": "31.92",
    "gpu_8x_a100_80gb_sxm4": "22.32",
    "gpu_8x_b200_sxm6": "53.52",
    "gpu_1x_gh200": "2.29",
}

# Type -> regions with machines left, how many; none is left elsewhere.
_LEFT: Mapping[str, Mapping[str, int]] = {
    "gpu_1x_a10": {"us-east-1": 12, "us-west-1": 4, "us-west-2": 6, "europe-central-1": 3},
    "gpu_1x_h100_pcie": {"us-west-1": 2, "us-west-2": 5},
    "gpu_1x_h100_sxm5": {"us-east-1": 3, "us-south-1": 8},
    "gpu_8x_h100_sxm5": {"us-south-1": 2},
    "gpu_8x_a100_80gb_sxm4": {"us-east-1": 1},
    "gpu_1x_gh200": {"us-east-1": 7},
}


def listings() -> Iterator[Listing]:
    """Every pool, in a fixed order."""
    for kind in TYPES:
        for zone in ZONES:
            left = _LEFT.get(kind.name, {}).get(zone.id, 0)
            yield Listing(zone, kind, "on_demand", micro_usd(_PRICES[kind.name]), left)
