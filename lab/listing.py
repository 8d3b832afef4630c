"""The words of a catalogue: instance type, zone, listing."""

from dataclasses import dataclass
from decimal import Decimal

# Clouds that have one price list for all their regions.
_ONE_LIST = ("lambda", "coreweave")


@dataclass(frozen=True)
class InstanceType:
    """One machine type.

    Attributes:
        gpu: Our SKU, a key of `broker.core.gpu.GPUS`.
        vendor_gpu: What the cloud's API calls it.
        gpu_mib: Memory of one GPU as the API tells it.
        memory_gib: Of the host.
        fabric: ``efa``, ``gpudirect`` or ``ethernet``.
    """

    cloud: str
    name: str
    gpu: str
    vendor_gpu: str
    gpus: int
    gpu_mib: int
    vcpus: int
    memory_gib: int
    interconnect: str = "pcie"
    fabric: str = "ethernet"


@dataclass(frozen=True)
class Zone:
    """A zone. `id` names it in offer keys; `name` is what this account calls it (differs on AWS only)."""

    cloud: str
    region: str
    id: str
    name: str


@dataclass(frozen=True)
class Listing:
    """One pool as it is sold at the start.

    Attributes:
        stock: How many machines may exist in it at once; None is unlimited.
    """

    zone: Zone
    type: InstanceType
    market: str
    price_micro_usd_h: int
    stock: int | None = None

    @property
    def key(self) -> str:
        """The offer key: ``aws/use1-az6/p5.48xlarge/spot``."""
        return f"{self.zone.cloud}/{self.zone.id}/{self.type.name}/{self.market}"

    @property
    def tariff(self) -> tuple[str, str, str, str]:
        """What has one price: listings of equal tariff are always equally dear."""
        if self.zone.cloud in _ONE_LIST:
            place = ""
        else:
            zonal = self.zone.cloud == "aws" and self.market == "spot"
            place = self.zone.id if zonal else self.zone.region
        return (self.zone.cloud, place, self.type.name, self.market)


def micro_usd(text: str) -> int:
    """Dollars an hour, as micro-USD."""
    return int(Decimal(text) * 1_000_000)
