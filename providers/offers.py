"""From what a cloud says of a kind of machine to what is offered of it."""

from typing import Protocol

from broker.core.gpu import GPUS
from broker.core.offer import Market, Offer


class Kind(Protocol):
    """A kind of machine, in the words of `broker.core.offer.Offer`: each cloud has a type of its own with these."""

    @property
    def name(self) -> str:
        """The cloud's own."""

    @property
    def gpu(self) -> str:
        """SKU, or the cloud's own text when it is none of ours: the market puts that in quarantine."""

    @property
    def gpus(self) -> int:
        """Of one machine, as the next three."""

    @property
    def vcpus(self) -> int:
        """0 when nobody says."""

    @property
    def memory_gib(self) -> int:
        """Of the host; 0 when nobody says."""

    @property
    def interconnect(self) -> str:
        """``nvlink``, ``pcie`` or ``none``."""

    @property
    def fabric(self) -> str:
        """``efa``, ``infiniband``, ``gpudirect`` or ``ethernet``."""


def offer_of(cloud: str, region: str, zone: str, kind: Kind, market: Market) -> Offer:
    """One kind of machine in one place."""
    return Offer(
        cloud=cloud,
        region=region,
        zone=zone,
        instance_type=kind.name,
        market=market,
        gpu=kind.gpu,
        gpus=kind.gpus,
        vcpus=kind.vcpus,
        memory_gib=kind.memory_gib,
        interconnect=kind.interconnect,
        fabric=kind.fabric,
    )


def interconnect_of(gpu: str, gpus: int) -> str:
    """SXM boards talk over NVLink; a single GPU has nobody to talk to."""
    if gpus == 1:
        return "none"
    return "nvlink" if gpu in GPUS and GPUS[gpu].form == "SXM" else "pcie"
