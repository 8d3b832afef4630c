"""Recordings out of price catalogues: one row for each change of a series, and the times of the polls.

The columns are those of the catalogues of SkyPilot; what is read and from where is in `docs/internals/market.md`.
"""

import csv
import gzip
import io
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import zstandard

from broker.core.offer import Market, Offer
from tests.replay.recording import Recording, Series

Row = Mapping[str, str]
Change = tuple[int, str | None]

# What our table of GPUs does not have is replayed as one that this cloud does not sell, or nobody would judge it.
_STAND_IN = "L4-24GB"
_AZURE = {
    "T4": "T4-16GB",
    "A10": "A10-24GB",
    "V100": "V100-PCIe-16GB",
    "V100-32GB": "V100-SXM2-32GB",
    "A100": "A100-SXM4-40GB",
    "H100": "H100-SXM5-80GB",
    "H200": "H200-SXM-141GB",
    "MI300X": "MI300X-192GB",
}
_AWS = {
    "g4dn": "T4-16GB",
    "g5": "A10G-24GB",
    "p3": "V100-SXM2-16GB",
    "p3dn": "V100-SXM2-32GB",
    "p4d": "A100-SXM4-40GB",
    "p4de": "A100-SXM4-80GB",
    "p5": "H100-SXM5-80GB",
}
_LAMBDA = {
    "a10": "A10-24GB",
    "a100": "A100-PCIe-40GB",
    "a100_sxm4": "A100-SXM4-40GB",
    "a100_80gb_sxm4": "A100-SXM4-80GB",
    "b200_sxm6": "B200-SXM-180GB",
    "gh200": "GH200-96GB",
    "h100_pcie": "H100-PCIe-80GB",
    "h100_sxm5": "H100-SXM5-80GB",
    "v100": "V100-SXM2-16GB",
    "v100_n": "V100-SXM2-16GB",
}
# Machine type of GCP: name and number of the GPUs in the row that is added to the host's.
_L4S = {"4": 1, "8": 1, "12": 1, "16": 1, "32": 1, "24": 2, "48": 4, "96": 8}
_GCP = {
    **{f"a2-highgpu-{n}g": ("A100", n, "A100-SXM4-40GB") for n in (1, 2, 4, 8)},
    **{f"a2-ultragpu-{n}g": ("A100-80GB", n, "A100-SXM4-80GB") for n in (1, 2, 4, 8)},
    **{f"a3-highgpu-{n}g": ("H100", n, "H100-SXM5-80GB") for n in (1, 2, 4, 8)},
    **{f"g2-standard-{size}": ("L4", n, "L4-24GB") for size, n in _L4S.items()},
    "a2-megagpu-16g": ("A100", 16, "A100-SXM4-40GB"),
    "a3-megagpu-8g": ("H100-MEGA", 8, "H100-SXM5-80GB"),
    "a3-ultragpu-8g": ("H200", 8, "H200-SXM-141GB"),
    "a4-highgpu-8g": ("B200", 8, "B200-SXM-180GB"),
}


def azure(folder: Path) -> Recording:
    """April and May 2026: two meters, rows that vanish, and steps."""
    polls = _polls(folder / "azure.polls.csv.gz")
    found: dict[str, Series] = {}
    for rows in _series(_zstd(folder / "azure.csv.zst")):
        first = rows[0]
        gpus = float(first["accelerator_count"])
        for market, column in ((Market.ON_DEMAND, "price"), (Market.SPOT, "spot_price")):
            offer = _offer(first, "azure", market, _azure_gpu(first), max(1, int(gpus)))
            _add(found, offer, polls, rows, column)
    return Recording("azure", "azure:retail", polls, found).begun()


def gcp(folder: Path) -> Recording:
    """The same weeks: everything steps by a few per cent on three days. A machine is its host and its GPUs."""
    polls = _polls(folder / "gcp.polls.csv.gz")
    hosts: list[list[Row]] = []
    gpus: dict[tuple[str, str, float], list[Row]] = {}
    for rows in _series(_zstd(folder / "gcp.csv.zst")):
        first = rows[0]
        if first["accelerator"]:
            gpus[first["zone"], first["accelerator"], float(first["accelerator_count"])] = rows
        else:
            hosts.append(rows)
    found: dict[str, Series] = {}
    for rows in hosts:
        first = rows[0]
        name, count, sku = _GCP.get(first["instance_type"], ("", 0, ""))
        parts = gpus.get((first["zone"], name, count))
        if parts is None:
            continue
        for market, column in ((Market.ON_DEMAND, "price"), (Market.SPOT, "spot_price")):
            host, devices = (_dense(polls, _changes(each, column)) for each in (rows, parts))
            texts = [
                None if None in pair else str(sum(map(Decimal, pair)))
                for pair in zip(host, devices, strict=True)
            ]  # type: ignore[arg-type]
            if any(texts):
                offer = _offer(first, "gcp", market, sku, count)
                found[offer.key] = Series(offer, texts)
    return Recording("gcp", "gcp:skus", polls, found).begun()


def lambda_cloud(folder: Path) -> Recording:
    """The same weeks: one day on which most prices step up, and one poll that has lost two series in three."""
    polls = _polls(folder / "lambda.polls.csv.gz")
    found: dict[str, Series] = {}
    for rows in _series(_zstd(folder / "lambda.csv.zst")):
        first = rows[0]
        name = first["instance_type"].partition("x_")[2]
        gpu = _LAMBDA.get(name, first["accelerator"])
        offer = _offer(first, "lambda", Market.ON_DEMAND, gpu, int(first["accelerator_count"]))
        _add(found, offer, polls, rows, "price")
    return Recording("lambda", "lambda:instance-types", polls, found).begun()


def aws(folder: Path) -> Recording:
    """A year from December 2022 on: twelve types, a poll every seven hours, in which a third of all spot prices change."""
    with gzip.open(folder / "aws_focus_2022-12_2023-11.csv.gz", "rt") as file:
        all_rows = list(_series(file.read()))
    last_ms = max(_ms(rows[-1]["time"]) for rows in all_rows)
    polls = [at_ms for at_ms in _polls(folder / "polls.csv.gz") if at_ms <= last_ms]
    found: dict[str, Series] = {}
    for rows in all_rows:
        first = rows[0]
        gpu = _AWS[first["instance_type"].partition(".")[0]]
        for market, column in ((Market.ON_DEMAND, "price"), (Market.SPOT, "spot_price")):
            offer = _offer(first, "aws", market, gpu, int(float(first["accelerator_count"])))
            _add(found, offer, polls, rows, column, dated=True)
    return Recording("aws", "aws:spot_history", polls, found).begun()


def _azure_gpu(row: Row) -> str:
    if not float(row["accelerator_count"]).is_integer():
        return _STAND_IN
    if row["accelerator"] == "A100-80GB":
        return "A100-PCIe-80GB" if row["instance_type"].startswith("Standard_NC") else "A100-SXM4-80GB"
    if row["accelerator"] == "H100" and row["instance_type"].startswith("Standard_NC"):
        return "H100-NVL-94GB"
    return _AZURE.get(row["accelerator"], _STAND_IN)


def _offer(row: Row, cloud: str, market: Market, gpu: str, gpus: int) -> Offer:
    return Offer(
        cloud,
        row["region"],
        row["zone"] or row["region"],
        row["instance_type"],
        market,
        gpu,
        gpus,
        vcpus=int(float(row["vcpus"] or 0)),
        memory_gib=int(float(row["memory_gib"] or 0)),
    )


def _add(
    found: dict[str, Series],
    offer: Offer,
    polls: list[int],
    rows: list[Row],
    column: str,
    dated: bool = False,
) -> None:
    changes = _changes(rows, column)
    texts = _dense(polls, changes)
    if any(texts):
        found[offer.key] = Series(offer, texts, _dates(polls, texts) if dated else [])


def _changes(rows: list[Row], column: str) -> list[Change]:
    return [(_ms(row["time"]), None if row["event"] == "gone" else row[column] or None) for row in rows]


def _dense(polls: list[int], changes: list[Change]) -> list[str | None]:
    """What each poll read."""
    texts: list[str | None] = []
    now, following = None, 0
    for at_ms in polls:
        while following < len(changes) and changes[following][0] <= at_ms:
            now = changes[following][1]
            following += 1
        texts.append(now)
    return texts


def _dates(polls: list[int], texts: list[str | None]) -> list[int]:
    """Since when each reading has been the price."""
    dates: list[int] = []
    for poll, text in enumerate(texts):
        dates.append(dates[-1] if poll and text == texts[poll - 1] else polls[poll])
    return dates


def _series(text: str) -> Iterator[list[Row]]:
    """The rows of each series, which stand together and in order of time."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        key = (row["region"], row["zone"], row["instance_type"], row["accelerator"], row["accelerator_count"])
        found.setdefault(key, []).append(row)
    yield from found.values()


def _zstd(path: Path) -> str:
    with path.open("rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file).read().decode()


def _polls(path: Path) -> list[int]:
    with gzip.open(path, "rt") as file:
        return sorted(int(line) * 1000 for line in file.read().split()[1:])


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)
