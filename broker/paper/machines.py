"""What common instance types are, so that a test of a policy need not say it.

A test compares the rows with the tables by which the broker reads Azure and CoreWeave, and with what the lab's clouds
sell. Sources, 2026-11: aws.amazon.com/ec2/instance-types (accelerated computing), cloud.google.com/compute/docs/gpus,
learn.microsoft.com/azure/virtual-machines/sizes/gpu-accelerated, lambda.ai/instances, docs.coreweave.com/platform/instances.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.core.offer import Market, Offer


@dataclass(frozen=True)
class Machine:
    """One instance type.

    Attributes:
        gpu: Exact SKU.
        gpus: Of one instance.
        memory_gib: Of the host.
    """

    gpu: str
    gpus: int
    vcpus: int = 0
    memory_gib: int = 0
    interconnect: str = "none"
    fabric: str = "ethernet"


_V16, _V32, _A40, _A80 = "V100-SXM2-16GB", "V100-SXM2-32GB", "A100-SXM4-40GB", "A100-SXM4-80GB"
_H100, _H200, _B200, _L4 = "H100-SXM5-80GB", "H200-SXM-141GB", "B200-SXM-180GB", "L4-24GB"

MACHINES: Final[Mapping[str, Mapping[str, Machine]]] = {
    "aws": {
        "p3.2xlarge": Machine(_V16, 1, 8, 61),
        "p3.8xlarge": Machine(_V16, 4, 32, 244, "nvlink"),
        "p3.16xlarge": Machine(_V16, 8, 64, 488, "nvlink"),
        "p3dn.24xlarge": Machine(_V32, 8, 96, 768, "nvlink", "efa"),
        "p4d.24xlarge": Machine(_A40, 8, 96, 1152, "nvlink", "efa"),
        "p4de.24xlarge": Machine(_A80, 8, 96, 1152, "nvlink", "efa"),
        "p5.4xlarge": Machine(_H100, 1, 16, 256, "none", "efa"),
        "p5.48xlarge": Machine(_H100, 8, 192, 2048, "nvlink", "efa"),
        "p5e.48xlarge": Machine(_H200, 8, 192, 2048, "nvlink", "efa"),
        "p5en.48xlarge": Machine(_H200, 8, 192, 2048, "nvlink", "efa"),
        "p6-b200.48xlarge": Machine(_B200, 8, 192, 2048, "nvlink", "efa"),
        "g4dn.xlarge": Machine("T4-16GB", 1, 4, 16),
        "g5.xlarge": Machine("A10G-24GB", 1, 4, 16),
        "g6.xlarge": Machine(_L4, 1, 4, 16),
        "g6.2xlarge": Machine(_L4, 1, 8, 32),
        "g6.4xlarge": Machine(_L4, 1, 16, 64),
        "g6e.xlarge": Machine("L40S-48GB", 1, 4, 32),
    },
    "gcp": {
        "g2-standard-4": Machine(_L4, 1, 4, 16),
        "g2-standard-8": Machine(_L4, 1, 8, 32),
        "a2-highgpu-1g": Machine(_A40, 1, 12, 85),
        "a2-highgpu-8g": Machine(_A40, 8, 96, 680, "nvlink"),
        "a2-ultragpu-1g": Machine(_A80, 1, 12, 170),
        "a2-ultragpu-8g": Machine(_A80, 8, 96, 1360, "nvlink"),
        "a3-highgpu-1g": Machine(_H100, 1, 26, 234, "none", "gpudirect"),
        "a3-highgpu-8g": Machine(_H100, 8, 208, 1872, "nvlink", "gpudirect"),
        "a3-megagpu-8g": Machine(_H100, 8, 208, 1872, "nvlink", "gpudirect"),
        "a3-ultragpu-8g": Machine(_H200, 8, 224, 2952, "nvlink", "gpudirect"),
        "a4-highgpu-8g": Machine(_B200, 8, 224, 3968, "nvlink", "gpudirect"),
    },
    "azure": {
        "Standard_NC24ads_A100_v4": Machine("A100-PCIe-80GB", 1, 24, 220),
        "Standard_NC40ads_H100_v5": Machine("H100-NVL-94GB", 1, 40, 320),
        "Standard_ND96amsr_A100_v4": Machine(_A80, 8, 96, 1800, "nvlink", "infiniband"),
        "Standard_ND96isr_H100_v5": Machine(_H100, 8, 96, 1900, "nvlink", "infiniband"),
        "Standard_ND96isr_H200_v5": Machine(_H200, 8, 96, 1850, "nvlink", "infiniband"),
    },
    "lambda": {
        "gpu_1x_a10": Machine("A10-24GB", 1, 30, 200),
        "gpu_1x_gh200": Machine("GH200-96GB", 1, 64, 432),
        "gpu_1x_h100_pcie": Machine("H100-PCIe-80GB", 1, 26, 200),
        "gpu_1x_h100_sxm5": Machine(_H100, 1, 26, 225),
        "gpu_8x_a100_80gb_sxm4": Machine(_A80, 8, 240, 1800, "nvlink"),
        "gpu_8x_h100_sxm5": Machine(_H100, 8, 208, 1800, "nvlink"),
    },
    "coreweave": {
        "b200-8x": Machine(_B200, 8, 128, 2048, "nvlink", "infiniband"),
        "gd-8xa100-i128": Machine(_A80, 8, 128, 2048, "nvlink"),
        "gd-8xh100ib-i128": Machine(_H100, 8, 128, 2048, "nvlink", "infiniband"),
        "gd-8xh200ib-i128": Machine(_H200, 8, 128, 2048, "nvlink", "infiniband"),
    },
}

# use1-az6, apne2-az1: an AWS zone id is its region's name, shortened.
_AWS_ZONE: Final = re.compile(r"(us|ca|mx|sa|eu|ap|me|il|af|cn)(ne|nw|se|sw|n|s|e|w|c)([0-9])-az[0-9]{1,2}")
_DIRECTIONS: Final = {
    "n": "north",
    "s": "south",
    "e": "east",
    "w": "west",
    "c": "central",
    "ne": "northeast",
    "nw": "northwest",
    "se": "southeast",
    "sw": "southwest",
}


def region_of(cloud: str, zone: str) -> str | None:
    """The region that a zone's name tells, or None where it tells none."""
    match cloud:
        case "aws":
            found = _AWS_ZONE.fullmatch(zone)
            return f"{found[1]}-{_DIRECTIONS[found[2]]}-{found[3]}" if found else None
        case "gcp":
            return zone.rpartition("-")[0] if re.fullmatch(r"[a-z]+-[a-z]+[0-9]+-[a-z]", zone) else None
        case "azure" | "lambda":
            return zone  # sold by the region
        case "coreweave":
            return zone.rpartition("-")[0] if re.fullmatch(r"[A-Z]+-[A-Z]+-[0-9]+[A-Z]", zone) else None
    return None


def known_offer(key: str, machine: Machine | None = None, region: str | None = None) -> Offer | None:
    """The offer of a key ``cloud/zone/instance_type/market``; None where its machine or region is not known.

    Args:
        machine: What the instance type is, where it is told.
        region: The same for its region.
    """
    cloud, zone, kind, market = key.split("/")
    machine = machine or MACHINES.get(cloud, {}).get(kind)
    region = region or region_of(cloud, zone)
    if machine is None or region is None:
        return None
    return Offer(
        cloud,
        region,
        zone,
        kind,
        Market(market),
        machine.gpu,
        machine.gpus,
        machine.vcpus,
        machine.memory_gib,
        machine.interconnect,
        machine.fabric,
    )
