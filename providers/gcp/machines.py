"""Machine types: what Compute Engine says of them, into the facts of an offer, and which SKUs they are made of."""

from dataclasses import dataclass
from typing import Any

from providers.offers import interconnect_of

# Accelerator type -> our SKU. Both H100 names are the same board with another network.
_SKUS = {
    "nvidia-l4": "L4-24GB",
    "nvidia-tesla-t4": "T4-16GB",
    "nvidia-tesla-a100": "A100-SXM4-40GB",
    "nvidia-a100-80gb": "A100-SXM4-80GB",
    "nvidia-h100-80gb": "H100-SXM5-80GB",
    "nvidia-h100-mega-80gb": "H100-SXM5-80GB",
    "nvidia-h200-141gb": "H200-SXM-141GB",
    "nvidia-b200": "B200-SXM-180GB",
    "nvidia-b300": "B300-SXM-288GB",
}

LOCAL_SSD_GIB = 375  # one partition; cloud.google.com/compute/docs/disks/local-ssd


@dataclass(frozen=True)
class Recipe:
    """Names that the price list uses for the parts of a machine, lower case.

    Attributes:
        instance: Of core and RAM: ``a3`` in "A3 Instance Core running in Americas".
        gpus: Of the GPU, all spellings seen.
        slices: The GPU's SKU covers core and RAM too ("1 gpu slice").
    """

    instance: str
    gpus: tuple[str, ...]
    slices: bool = False


# By the machine type without its size. The price list has no machine types, so this has to be written down.
_RECIPES = {
    "a2-highgpu": Recipe("a2", ("tesla a100", "a100 40gb")),
    "a2-megagpu": Recipe("a2", ("tesla a100", "a100 40gb")),
    "a2-ultragpu": Recipe("a2", ("tesla a100 80gb", "a100 80gb")),
    "a3-highgpu": Recipe("a3", ("h100 80gb",)),
    "a3-megagpu": Recipe("a3plus", ("h100 80gb plus", "h100 80gb mega")),
    "a3-ultragpu": Recipe("a3ultra", ("h200 141gb", "h200 141gb ultra")),
    "a4-highgpu": Recipe("a4", ("b200",), slices=True),
    "g2-standard": Recipe("g2", ("l4",)),
}

# The price list prices their parts on demand all the same; an insert of provisioning model STANDARD is not for them.
# cloud.google.com/compute/docs/accelerator-optimized-machines#consumption_option_availability_by_machine_type
_NOT_ON_DEMAND = frozenset(
    {"a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g", "a3-ultragpu-8g", "a4-highgpu-8g"}
)


@dataclass(frozen=True)
class MachineFacts:
    """What an offer and its price need to know of a machine type.

    Attributes:
        gpu: SKU, or the cloud's own text when it is none of ours; the market puts that in quarantine.
        local_ssd_gib: Comes with it and is billed beside it.
    """

    name: str
    gpu: str
    gpus: int
    vcpus: int
    memory_mib: int
    local_ssd_gib: int
    recipe: Recipe

    @property
    def on_demand(self) -> bool:
        """Whether Google starts it without an end and without a reservation, or only as Spot and Flex-start."""
        return self.name not in _NOT_ON_DEMAND

    @property
    def memory_gib(self) -> int:
        """Of the host."""
        return self.memory_mib // 1024

    @property
    def interconnect(self) -> str:
        """Between its GPUs."""
        return interconnect_of(self.gpu, self.gpus)

    @property
    def fabric(self) -> str:
        """A3 and A4 machines have GPUDirect networks."""
        return "gpudirect" if self.name.startswith(("a3-", "a4-")) else "ethernet"


def facts(machine_type: Any) -> MachineFacts | None:
    """Facts of a `compute_v1.MachineType`; None when it has no GPU of its own, or we do not know its SKUs."""
    recipe = _RECIPES.get(machine_type.name.rpartition("-")[0])
    if recipe is None or len(machine_type.accelerators) != 1:
        return None
    accelerator = machine_type.accelerators[0]
    kind = accelerator.guest_accelerator_type
    return MachineFacts(
        name=machine_type.name,
        gpu=_SKUS.get(kind, kind),
        gpus=accelerator.guest_accelerator_count,
        vcpus=machine_type.guest_cpus,
        memory_mib=machine_type.memory_mb,
        local_ssd_gib=machine_type.bundled_local_ssds.partition_count * LOCAL_SSD_GIB,
        recipe=recipe,
    )
