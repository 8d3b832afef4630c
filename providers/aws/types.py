"""Instance types: what EC2 says of them, into the facts of an offer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.core.gpu import GPUS
from providers.offers import interconnect_of

# EC2's GPU name -> our SKUs that it may be; memory decides. p4d and p4de are both "A100".
_SKUS = {
    "T4": ("T4-16GB",),
    "V100": ("V100-SXM2-16GB", "V100-SXM2-32GB"),
    "A10G": ("A10G-24GB",),
    "L4": ("L4-24GB",),
    "L40S": ("L40S-48GB",),
    "A100": ("A100-SXM4-40GB", "A100-SXM4-80GB"),
    "H100": ("H100-SXM5-80GB",),
    "H200": ("H200-SXM-141GB",),
    "B200": ("B200-SXM-180GB",),
    "B300": ("B300-SXM-288GB",),
}

# EC2 tells memory sometimes as sold (24576 MiB) and sometimes as the driver sees it (22888 MiB).
_MEMORY_TOLERANCE = 0.08


@dataclass(frozen=True)
class TypeFacts:
    """What an offer needs to know of an instance type.

    Attributes:
        gpu: SKU, or EC2's own text when it is none of ours; the market puts that in quarantine.
    """

    name: str
    gpu: str
    gpus: int
    vcpus: int
    memory_gib: int
    interconnect: str
    fabric: str


def facts(kind: Mapping[str, Any]) -> TypeFacts | None:
    """Facts of one `DescribeInstanceTypes` entry; None for a type without a whole GPU.

    A fraction of a GPU (``GpuPartitionSize`` below 1, ``Count`` 0) cannot be probed or compared: it is dropped.
    """
    devices = kind.get("GpuInfo", {}).get("Gpus", [])
    if len(devices) != 1:
        return None
    device = devices[0]
    count = int(device.get("Count", 0))
    if count < 1 or float(device.get("GpuPartitionSize") or 1) < 1:
        return None
    gpu = _sku(device)
    return TypeFacts(
        name=kind["InstanceType"],
        gpu=gpu,
        gpus=count,
        vcpus=int(kind.get("VCpuInfo", {}).get("DefaultVCpus", 0)),
        memory_gib=int(kind.get("MemoryInfo", {}).get("SizeInMiB", 0)) // 1024,
        interconnect=interconnect_of(gpu, count),
        fabric="efa" if kind.get("NetworkInfo", {}).get("EfaSupported") else "ethernet",
    )


def _sku(device: Mapping[str, Any]) -> str:
    name = str(device.get("Name", ""))
    mib = int(device.get("MemoryInfo", {}).get("SizeInMiB", 0))
    for sku in _SKUS.get(name, ()):
        model = GPUS[sku]
        expected = (model.memory_gib * 1024, model.nvml_memory_mib)
        if any(abs(mib - value) <= _MEMORY_TOLERANCE * value for value in expected):
            return sku
    return f"{device.get('Manufacturer', '')} {name} {mib}MiB".strip()
