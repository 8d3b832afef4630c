"""A made-up market of any size, the same for the same seed: as offers of ours, and as files that gpuhunt reads.

Prices are spread around what a GPU usually costs, so that none of them is doubted. There is one SKU for each name and
memory, since gpuhunt knows no more than these two.
"""

import csv
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from broker.core.gpu import GPUS
from broker.core.offer import Market, Offer, RawQuote

# Usual dollars an hour of one GPU on demand.
_USD_H = {
    "T4-16GB": 0.6,
    "V100-SXM2-16GB": 2.0,
    "V100-SXM2-32GB": 2.4,
    "A10-24GB": 1.1,
    "A10G-24GB": 1.4,
    "L4-24GB": 0.8,
    "L40S-48GB": 1.8,
    "A100-SXM4-40GB": 2.8,
    "A100-SXM4-80GB": 3.6,
    "H100-SXM5-80GB": 5.0,
    "H100-NVL-94GB": 4.8,
    "H200-SXM-141GB": 6.0,
    "GH200-96GB": 3.0,
    "B200-SXM-180GB": 9.0,
    "B300-SXM-288GB": 12.0,
    "MI300X-192GB": 4.0,
    "MI325X-256GB": 5.0,
}
_SKU = {(GPUS[sku].family, GPUS[sku].memory_gib): sku for sku in _USD_H}
assert len(_SKU) == len(_USD_H), "one SKU for each name and memory"

# Share of all offers, and regions.
_CLOUDS = {"aws": (0.35, 34), "azure": (0.33, 60), "gcp": (0.30, 42), "lambda": (0.02, 15)}
# What gpuhunt calls a cloud.
PROVIDERS = {"aws": "aws", "azure": "azure", "gcp": "gcp", "lambda": "lambdalabs"}
_OURS = {provider: cloud for cloud, provider in PROVIDERS.items()}
_COUNTS = (1, 1, 1, 2, 4, 8, 8)
_SIZES = 40  # machines with the same GPUs and more or less around them
_COLUMNS = (
    *("instance_name", "location", "price", "cpu", "memory", "gpu_count", "gpu_name", "gpu_memory", "spot"),
    *("disk_size", "gpu_vendor", "flags", "cpu_arch", "provider_data"),
)


@dataclass(frozen=True)
class Listed:
    """An offer at a price.

    Attributes:
        price_micro_usd_h: Of the whole instance.
    """

    offer: Offer
    price_micro_usd_h: int


def draw(count: int, seed: int) -> list[Listed]:
    """`count` different offers."""
    rng = random.Random(seed)
    found: dict[str, Listed] = {}
    while len(found) < count:
        offer = _offer(rng)
        if offer.key not in found:
            low, high = (0.25, 0.8) if offer.market is Market.SPOT else (1, 1)
            usd = _USD_H[offer.gpu] * offer.gpus * rng.uniform(0.7, 1.6) * rng.uniform(low, high)
            found[offer.key] = Listed(offer, round(usd * 1_000_000))
    return list(found.values())


def redraw(listed: list[Listed], share: float, seed: int) -> list[Listed]:
    """The same offers after a share of their prices has moved by up to a tenth.

    Azure's stay: its list may say one meter for another, so that a change there is doubted for several polls.
    """
    rng = random.Random(seed)
    moving = [entry for entry in listed if entry.offer.cloud != "azure"]
    moved = {
        entry.offer.key: Listed(entry.offer, round(entry.price_micro_usd_h * rng.uniform(0.9, 1.1)))
        for entry in rng.sample(moving, min(len(moving), round(share * len(listed))))
    }
    return [moved.get(entry.offer.key, entry) for entry in listed]


def write(listed: Iterable[Listed], folder: Path) -> None:
    """A file a cloud, cheapest first as published catalogues are."""
    folder.mkdir(parents=True, exist_ok=True)
    of_cloud: dict[str, list[Listed]] = {cloud: [] for cloud in _CLOUDS}
    for entry in listed:
        of_cloud[entry.offer.cloud].append(entry)
    for cloud, entries in of_cloud.items():
        with (folder / f"{PROVIDERS[cloud]}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(_COLUMNS)
            writer.writerows(map(_row, sorted(entries, key=lambda entry: entry.price_micro_usd_h)))


def read(folder: Path) -> Iterator[RawQuote]:
    """The same files, as a provider of ours would read them."""
    for path in sorted(folder.glob("*.csv")):
        cloud = _OURS[path.stem]
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                yield _raw(cloud, row)


def _offer(rng: random.Random) -> Offer:
    cloud = rng.choices(list(_CLOUDS), [share for share, _ in _CLOUDS.values()])[0]
    region = f"{cloud}-region-{rng.randrange(_CLOUDS[cloud][1])}"
    sku, gpus = rng.choice(list(_USD_H)), rng.choice(_COUNTS)
    return Offer(
        cloud,
        region,
        region,
        f"{sku.lower()}.{gpus}x.{rng.randrange(_SIZES)}",
        rng.choice((Market.SPOT, Market.ON_DEMAND)),
        sku,
        gpus,
        vcpus=gpus * 12,
        memory_gib=gpus * 120,
    )


def _row(entry: Listed) -> tuple[object, ...]:
    offer, model = entry.offer, entry.offer.model
    return (
        *(offer.instance_type, offer.region, f"{entry.price_micro_usd_h / 1_000_000:.6f}"),
        *(offer.vcpus, float(offer.memory_gib), offer.gpus, model.family, float(model.memory_gib)),
        *(offer.market is Market.SPOT, "", "amd" if model.runtime == "rocm" else "nvidia", "", "x86", "{}"),
    )


def _raw(cloud: str, row: dict[str, str]) -> RawQuote:
    gpu, memory = row["gpu_name"], int(float(row["gpu_memory"]))
    offer = Offer(
        cloud,
        row["location"],
        row["location"],
        row["instance_name"],
        Market.SPOT if row["spot"] == "True" else Market.ON_DEMAND,
        _SKU.get((gpu, memory), gpu),
        int(row["gpu_count"]),
        int(row["cpu"]),
        int(float(row["memory"])),
    )
    return RawQuote(offer, row["price"], "USD", None, "bench:file")
