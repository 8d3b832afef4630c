"""Which GPUs a size of virtual machine has. A size is looked up by its whole name; nothing is read out of a name.

The retail price list has no GPU facts, and the resource manager tells counts and no models, calls a sixth of a GPU one
GPU, and tells nothing for the newest sizes. So this table decides, and what the resource manager says of a count is
compared with it. Source: learn.microsoft.com/azure/virtual-machines/sizes/gpu-accelerated, one page a series, 2026-11.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

# The N series have accelerators; a size of them that is not known here is told, and never dropped in silence.
GPU_SERIES = "Standard_N"


@dataclass(frozen=True)
class Size:
    """One size.

    Attributes:
        name: As ``armSkuName`` has it.
        gpu: Exact SKU, a key of `broker.core.gpu.GPUS`; another text where we have no SKU.
        gpus: Whole GPUs of one machine; 0 when nobody says.
        vcpus: Of one machine.
        memory_gib: Of the host.
        interconnect: Between the GPUs of one machine.
        fabric: Between machines.
    """

    name: str
    gpu: str
    gpus: int
    vcpus: int = 0
    memory_gib: int = 0
    interconnect: str = "none"
    fabric: str = "ethernet"


@dataclass(frozen=True)
class Told:
    """What the resource manager says of a size in one region.

    Attributes:
        gpus: Capability ``GPUs``; None when it has none.
        vcpus, memory_gib: Capabilities ``vCPUs`` and ``MemoryGB``; None when it has none.
        family: Name of its quota.
        restricted: Why this subscription may not use it in the region; empty when it may.
    """

    gpus: int | None = None
    vcpus: int | None = None
    memory_gib: int | None = None
    family: str = ""
    restricted: str = ""


_TABLE = (
    # NCasT4_v3
    Size("Standard_NC4as_T4_v3", "T4-16GB", 1, 4, 28),
    Size("Standard_NC8as_T4_v3", "T4-16GB", 1, 8, 56),
    Size("Standard_NC16as_T4_v3", "T4-16GB", 1, 16, 110),
    Size("Standard_NC64as_T4_v3", "T4-16GB", 4, 64, 440, "pcie"),
    # NCv3; only the r size has InfiniBand
    Size("Standard_NC6s_v3", "V100-PCIe-16GB", 1, 6, 112),
    Size("Standard_NC12s_v3", "V100-PCIe-16GB", 2, 12, 224, "pcie"),
    Size("Standard_NC24s_v3", "V100-PCIe-16GB", 4, 24, 448, "pcie"),
    Size("Standard_NC24rs_v3", "V100-PCIe-16GB", 4, 24, 448, "pcie", "infiniband"),
    # NC A10 v4
    Size("Standard_NC8ads_A10_v4", "A10-24GB", 1, 8, 100),
    Size("Standard_NC16ads_A10_v4", "A10-24GB", 1, 16, 200),
    Size("Standard_NC32ads_A10_v4", "A10-24GB", 2, 32, 400, "pcie"),
    # NC A100 v4; bridges join pairs only, so more than one GPU counts as PCIe
    Size("Standard_NC24ads_A100_v4", "A100-PCIe-80GB", 1, 24, 220),
    Size("Standard_NC48ads_A100_v4", "A100-PCIe-80GB", 2, 48, 440, "pcie"),
    Size("Standard_NC96ads_A100_v4", "A100-PCIe-80GB", 4, 96, 880, "pcie"),
    # NCads H100 v5, and its confidential sister
    Size("Standard_NC40ads_H100_v5", "H100-NVL-94GB", 1, 40, 320),
    Size("Standard_NC80adis_H100_v5", "H100-NVL-94GB", 2, 80, 640, "pcie"),
    Size("Standard_NCC40ads_H100_v5", "H100-NVL-94GB", 1, 40, 320),
    # ND: eight GPUs behind NVLink; with an r, one InfiniBand port a GPU
    Size("Standard_ND40rs_v2", "V100-SXM2-32GB", 8, 40, 672, "nvlink", "infiniband"),
    Size("Standard_ND96asr_v4", "A100-SXM4-40GB", 8, 96, 900, "nvlink", "infiniband"),
    Size("Standard_ND96amsr_A100_v4", "A100-SXM4-80GB", 8, 96, 1800, "nvlink", "infiniband"),
    Size("Standard_ND96is_H100_v5", "H100-SXM5-80GB", 8, 96, 1900, "nvlink"),
    Size("Standard_ND96isr_H100_v5", "H100-SXM5-80GB", 8, 96, 1900, "nvlink", "infiniband"),
    Size("Standard_ND96isr_H200_v5", "H200-SXM-141GB", 8, 96, 1850, "nvlink", "infiniband"),
    # AMD; Infinity Fabric joins the eight as NVLink does
    Size("Standard_ND96is_MI300X_v5", "MI300X-192GB", 8, 96, 1850, "nvlink"),
    Size("Standard_ND96isr_MI300X_v5", "MI300X-192GB", 8, 96, 1850, "nvlink", "infiniband"),
    # Grace machines, GPUs that we have no facts about
    Size("Standard_ND128isr_NDR_GB200_v6", "GB200-192GB", 4, 128, 864, "nvlink", "infiniband"),
    Size("Standard_ND128isr_GB300_v6", "GB300-288GB", 4, 128, 864, "nvlink", "infiniband"),
    # NVads A10 v5, the whole ones
    Size("Standard_NV36ads_A10_v5", "A10-24GB", 1, 36, 440),
    Size("Standard_NV36adms_A10_v5", "A10-24GB", 1, 36, 880),
    Size("Standard_NV72ads_A10_v5", "A10-24GB", 2, 72, 880, "pcie"),
    # For screens; no SKU of ours
    Size("Standard_NV12s_v3", "M60-8GB", 1, 12, 112),
    Size("Standard_NV24s_v3", "M60-8GB", 2, 24, 224, "pcie"),
    Size("Standard_NV48s_v3", "M60-8GB", 4, 48, 448, "pcie"),
    Size("Standard_NV32as_v4", "MI25-16GB", 1, 32, 112),
    Size("Standard_NG32ads_V620_v1", "Radeon-PRO-V620-32GB", 1, 32, 64),
    Size("Standard_NG32adms_V620_v1", "Radeon-PRO-V620-32GB", 1, 32, 176),
    Size("Standard_NV24ads_V710_v5", "Radeon-PRO-V710-24GB", 1, 24, 128),
    Size("Standard_NV28adms_V710_v5", "Radeon-PRO-V710-24GB", 1, 28, 160),
)
SIZES: Mapping[str, Size] = {size.name: size for size in _TABLE}

# A part of a GPU cannot be compared with a whole one, and training does not fit into it.
FRACTIONAL = frozenset(
    {
        "Standard_NV6ads_A10_v5",  # 1/6
        "Standard_NV12ads_A10_v5",  # 1/3
        "Standard_NV18ads_A10_v5",  # 1/2
        "Standard_NV4as_v4",  # 1/8
        "Standard_NV8as_v4",  # 1/4
        "Standard_NV16as_v4",  # 1/2
        "Standard_NG8ads_V620_v1",  # 1/4
        "Standard_NG16ads_V620_v1",  # 1/2
        "Standard_NV4ads_V710_v5",  # 1/6
        "Standard_NV8ads_V710_v5",  # 1/3
        "Standard_NV12ads_V710_v5",  # 1/2
    }
)
# Of the N series, and without a GPU: FPGAs.
NO_GPU = frozenset({"Standard_NP10s", "Standard_NP20s", "Standard_NP40s"})


def size_of(name: str, told: Told | None) -> Size | None:
    """A size's facts; None when it has no whole GPU.

    A size that the table does not know, and one whose count Azure and the table do not agree on, come with a text
    that is no SKU: the market keeps their prices and believes none.

    Args:
        name: As ``armSkuName`` has it.
        told: By the resource manager; None without an account, or when it does not list the size.
    """
    if name in FRACTIONAL or name in NO_GPU:
        return None
    known = SIZES.get(name)
    if known is None:
        gpus = (told.gpus if told else None) or 0
        if not gpus and not name.startswith(GPU_SERIES):
            return None
        known = Size(name, name, gpus)
    if told is None:
        return known
    found = replace(known, vcpus=told.vcpus or known.vcpus, memory_gib=told.memory_gib or known.memory_gib)
    if known.gpus and told.gpus is not None and told.gpus != known.gpus:
        return replace(found, gpu=f"{known.gpu} ({known.gpus} by our table, {told.gpus} by Azure)")
    return found
