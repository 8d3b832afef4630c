"""What the lab's clouds sell: real instance types, zones and the prices they start with.

Prices are dollars an hour as published in 2026 (AWS: EC2 on-demand pages after the June 2025 P5 cut; GCP: accelerator
-optimised pages); spot prices are of the size seen in 2026. GCP sells SKUs by region (core, RAM, GPU), so its prices
are the same in all zones of a region, and the lab sells one machine type for each GPU family there.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatchcase


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
        zonal = self.zone.cloud == "aws" and self.market == "spot"
        return (self.zone.cloud, self.zone.id if zonal else self.zone.region, self.type.name, self.market)


@dataclass(frozen=True)
class SkuParts:
    """A GCP machine's price as its three SKUs, in nano-USD an hour: per vCPU, per GiB of RAM, per GPU."""

    core_nano_usd_h: int
    ram_nano_usd_gib_h: int
    gpu_nano_usd_h: int


TYPES: dict[str, InstanceType] = {
    kind.name: kind
    for kind in (
        InstanceType("aws", "p5.48xlarge", "H100-SXM5-80GB", "H100", 8, 81920, 192, 2048, "nvlink", "efa"),
        InstanceType("aws", "p5.4xlarge", "H100-SXM5-80GB", "H100", 1, 81920, 16, 256, "none", "efa"),
        InstanceType("aws", "p4d.24xlarge", "A100-SXM4-40GB", "A100", 8, 40960, 96, 1152, "nvlink", "efa"),
        InstanceType("aws", "g6.xlarge", "L4-24GB", "L4", 1, 22888, 4, 16, "none"),
        InstanceType("aws", "g5.xlarge", "A10G-24GB", "A10G", 1, 22888, 4, 16, "none"),
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
}

ZONES: dict[str, Zone] = {
    zone.id: zone
    for zone in (
        # Names are shuffled by account on AWS, as they really are.
        Zone("aws", "us-east-1", "use1-az6", "us-east-1a"),
        Zone("aws", "us-east-1", "use1-az1", "us-east-1b"),
        Zone("aws", "us-east-1", "use1-az2", "us-east-1c"),
        Zone("aws", "us-west-2", "usw2-az2", "us-west-2a"),
        Zone("aws", "us-west-2", "usw2-az1", "us-west-2b"),
        Zone("gcp", "us-central1", "us-central1-a", "us-central1-a"),
        Zone("gcp", "us-central1", "us-central1-b", "us-central1-b"),
        Zone("gcp", "us-east4", "us-east4-a", "us-east4-a"),
    )
}

_AWS_ON_DEMAND = {
    "p5.48xlarge": "55.04",
    "p5.4xlarge": "6.88",
    "p4d.24xlarge": "21.957642",
    "g6.xlarge": "0.8048",
    "g5.xlarge": "1.006",
}

# Zone -> type -> dollars; a type that is missing is not sold in that zone.
_AWS_SPOT = {
    "use1-az6": {
        "p5.48xlarge": "27.4108",
        "p5.4xlarge": "3.1046",
        "p4d.24xlarge": "10.2137",
        "g6.xlarge": "0.3371",
        "g5.xlarge": "0.4523",
    },
    "use1-az1": {
        "p5.4xlarge": "3.4212",
        "p4d.24xlarge": "11.0469",
        "g6.xlarge": "0.3528",
        "g5.xlarge": "0.4711",
    },
    "use1-az2": {
        "p5.4xlarge": "3.2875",
        "p4d.24xlarge": "10.8854",
        "g6.xlarge": "0.3419",
        "g5.xlarge": "0.4602",
    },
    "usw2-az2": {
        "p5.48xlarge": "25.9033",
        "p5.4xlarge": "2.9814",
        "p4d.24xlarge": "9.8745",
        "g6.xlarge": "0.3115",
        "g5.xlarge": "0.4318",
    },
    "usw2-az1": {
        "p5.48xlarge": "26.7716",
        "p5.4xlarge": "3.0629",
        "g6.xlarge": "0.3240",
        "g5.xlarge": "0.4407",
    },
}

# Region -> type -> (on demand, spot).
_GCP = {
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


def _micro(usd: str) -> int:
    return int(Decimal(usd) * 1_000_000)


def listings() -> Iterator[Listing]:
    """Every pool that the lab sells, in a fixed order."""
    for zone in ZONES.values():
        if zone.cloud == "aws":
            for name, spot in _AWS_SPOT[zone.id].items():
                yield Listing(zone, TYPES[name], "spot", _micro(spot))
                yield Listing(zone, TYPES[name], "on_demand", _micro(_AWS_ON_DEMAND[name]))
        else:
            for name, (on_demand, spot) in _GCP[zone.region].items():
                yield Listing(zone, TYPES[name], "spot", _micro(spot))
                yield Listing(zone, TYPES[name], "on_demand", _micro(on_demand))


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


@dataclass(frozen=True)
class Image:
    """What the machines of a pool boot with.

    Attributes:
        python: Path of the interpreter that `python3` starts there; None is the lab's own, which has torch.
        env: More variables for everything on the machine.
    """

    python: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Scenario:
    """What differs from the catalogue in one run. Keys may be patterns: ``gcp/*/on_demand``.

    Attributes:
        prices: Offer key or pattern -> micro-USD an hour.
        stock: Offer key or pattern -> machines, None for unlimited.
        boot_s: Cloud -> seconds from running to user-data, on the lab's clock.
        pending_s: Request to running.
        stop_s: Request of an end to terminated.
        seed: Of ids and of the price history before the start.
        images: Offer key or pattern -> what its machines boot with; the last that matches counts.
    """

    prices: Mapping[str, int]
    stock: Mapping[str, int | None]
    boot_s: Mapping[str, float]
    pending_s: int = 3
    stop_s: int = 5
    seed: int = 1
    images: Mapping[str, Image] = field(default_factory=dict)

    def image(self, offer_key: str) -> Image:
        """What a machine of that pool boots with."""
        found = [image for pattern, image in self.images.items() if fnmatchcase(offer_key, pattern)]
        return found[-1] if found else Image()

    @classmethod
    def of(cls, document: Mapping[str, object] | None = None) -> "Scenario":
        """From a JSON object; prices are dollars as text or number, e.g. ``{"prices": {"gcp/*/spot": "2.95"}}``.

        Raises:
            ValueError: an unknown key, or a value of the wrong kind.
        """
        given = dict(document or {})
        known = {"prices", "stock", "boot_s", "pending_s", "stop_s", "seed", "images"}
        if unknown := set(given) - known:
            raise ValueError(f"scenario: unknown {sorted(unknown)}; known are {sorted(known)}")
        prices, stock, boot_s = (_mapping(given, name) for name in ("prices", "stock", "boot_s"))
        return cls(
            prices={key: _micro(str(value)) for key, value in prices.items()},
            stock={key: None if value is None else int(str(value)) for key, value in stock.items()},
            boot_s={"aws": 40.0, "gcp": 25.0} | {key: float(str(value)) for key, value in boot_s.items()},
            pending_s=int(str(given.get("pending_s", 3))),
            stop_s=int(str(given.get("stop_s", 5))),
            seed=int(str(given.get("seed", 1))),
            images={key: _image(key, value) for key, value in _mapping(given, "images").items()},
        )


def _image(key: str, document: object) -> Image:
    if not isinstance(document, Mapping) or set(document) - {"python", "env"}:
        raise ValueError(f"scenario: images: {key}: known are python and env")
    python = document.get("python")
    env = {name: str(value) for name, value in _mapping(document, "env").items()}
    return Image(None if python is None else str(python), env)


def _mapping(document: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = document.get(name, {})
    if not isinstance(value, Mapping):
        raise ValueError(f"scenario: {name} must be an object")
    return value
