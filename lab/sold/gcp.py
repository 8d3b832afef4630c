"""Compute Engine: dollars an hour as published in 2026 (accelerator-optimised pages).

Google sells SKUs by region (core, RAM, GPU), so prices are the same in all zones of a region, and the lab sells one
machine type for each GPU family there.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from lab.listing import InstanceType, Listing, Zone, micro_usd

TYPES = (
    InstanceType(
        "gcp",
        "a3-highgpu-1g",
        "H100-SXM5-80GB",
        "nvidia-h100-80gb",
        1,
        81920,
        26,
        234,
        "none",
        "gpudirect",
    ),
    InstanceType("gcp", "a2-highgpu-1g", "A100-SXM4-40GB", "nvidia-tesla-a100", 1, 40960, 12, 85, "none"),
    InstanceType("gcp", "g2-standard-4", "L4-24GB", "nvidia-l4", 1, 24576, 4, 16, "none"),
)

ZONES = (
    Zone("gcp", "us-central1", "us-central1-a", "us-central1-a"),
    Zone("gcp", "us-central1", "us-central1-b", "us-central1-b"),
    Zone("gcp", "us-east4", "us-east4-a", "us-east4-a"),
)

# Region -> type -> (on demand, spot).
_PRICES = {
    "us-central1": {
        "a3-highgpu-1g": ("11.061275", "2.945620"),
        "a2-highgpu-1g": ("3.673385", "1.469354"),
        "g2-standard-4": ("0.706832", "0.282732"),
    },
    "us-east4": {
        "a3-highgpu-1g": ("12.457360", "3.318740"),
        "g2-standard-4": ("0.796084", "0.318432"),
    },
}

# Priced on demand by their parts, and never started so: Spot and Flex-start only.
# cloud.google.com/compute/docs/accelerator-optimized-machines#consumption_option_availability_by_machine_type
SPOT_ONLY = frozenset({"a3-highgpu-1g"})

_BY_NAME = {kind.name: kind for kind in TYPES}


@dataclass(frozen=True)
class SkuParts:
    """A GCP machine's price as its three SKUs, in nano-USD an hour: per vCPU, per GiB of RAM, per GPU."""

    core_nano_usd_h: int
    ram_nano_usd_gib_h: int
    gpu_nano_usd_h: int


def listings() -> Iterator[Listing]:
    """Every pool, in a fixed order."""
    for zone in ZONES:
        for name, (on_demand, spot) in _PRICES[zone.region].items():
            yield Listing(zone, _BY_NAME[name], "spot", micro_usd(spot))
            yield Listing(zone, _BY_NAME[name], "on_demand", micro_usd(on_demand))


def sku_parts(kind: InstanceType, price_micro_usd_h: int) -> SkuParts:
    """Three SKU prices that add up to the machine's price to the nano-dollar.

    Core and RAM carry about a fifth and a tenth, rounded down; the GPU takes what is left, so that the sum is exact
    for any price set by hand. All GCP types here have one GPU; with more the remainder would not divide.
    """
    assert kind.gpus == 1, kind.name
    total = price_micro_usd_h * 1000
    core = total // 5 // kind.vcpus
    ram = total // 10 // kind.memory_gib
    return SkuParts(core, ram, total - core * kind.vcpus - ram * kind.memory_gib)
