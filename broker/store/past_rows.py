"""Rows of a history file as quotes, or why they are none. Pure."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any

from broker.core.gpu import GPUS
from broker.core.offer import Market, Offer, Quote
from broker.core.time import LAST_MS, from_iso, to_iso
from broker.core.whole import parse_whole
from broker.core.yaml_text import did_you_mean
from broker.store.ingest import OFFER_FIELDS

COLUMNS: Mapping[str, str] = {
    "cloud": "`aws`, `gcp` ...",
    "region": "the cloud's own name",
    "zone": "zone; on AWS the zone id",
    "instance_type": "the cloud's own name",
    "market": "`spot`, `on_demand`, `reserved`, `owned`",
    "gpu": "exact SKU: `H100-SXM5-80GB`",
    "gpus": "of one instance",
    "vcpus": "of one instance; 0 when unknown",
    "memory_gib": "host memory; 0 when unknown",
    "interconnect": "`nvlink`, `pcie`, `none`",
    "fabric": "`efa`, `infiniband`, `gpudirect`, `ethernet`",
    "price_micro_usd_h": "of the instance, millionths of a dollar an hour",
    "effective_at": "since when, by the cloud's word",
    "observed_at": "when a broker first knew",
    "source": "which call said so",
}
TIMES = ("effective_at", "observed_at")
INTEGERS = ("gpus", "vcpus", "memory_gib", "price_micro_usd_h")
# What a file may leave out.
OPTIONAL: Mapping[str, Any] = {
    "vcpus": 0,
    "memory_gib": 0,
    "interconnect": "pcie",
    "fabric": "ethernet",
    "observed_at": None,
    "source": "",
}
# The first instance of the first of these clouds: https://aws.amazon.com/about-aws/whats-new/2006/08/24/. Before, a number
# has another unit.
_FIRST_MS = 1_156_377_600_000
_MOST = {"gpus": 1024, "vcpus": 100_000, "memory_gib": 1_000_000, "price_micro_usd_h": 10**12}


class Observed(StrEnum):
    """When what a file tells was known."""

    FILE = "file"
    """As the file says: it was written by a broker that saw it then."""
    IMPORT = "import"
    """Now. A back-test must not know before what nobody here knew."""


def quote_of(row: Mapping[str, Any], now_ms: int, observed: Observed, clouds: Collection[str]) -> Quote:
    """A row as a quote.

    Args:
        row: By column; times are RFC 3339 or milliseconds since 1970, numbers are text or int.
        now_ms: The import's.
        clouds: Names that are known.

    Raises:
        ValueError: why it is none.
    """
    try:
        offer = _offer(*(row[name] for name in OFFER_FIELDS))
    except TypeError:  # a list, in a Parquet file
        raise ValueError("a cell is neither text nor a number") from None
    price = _integer(row, "price_micro_usd_h", least=1)
    if offer.cloud not in clouds:
        raise ValueError(f"cloud: {offer.cloud!r} is not known{_near(offer.cloud, clouds)}")
    effective_at_ms = _moment(row, "effective_at")
    observed_at_ms = _moment(row, "observed_at") if observed is Observed.FILE else now_ms
    for name, at_ms in (("effective_at", effective_at_ms), ("observed_at", observed_at_ms)):
        if at_ms > now_ms:
            raise ValueError(f"{name}: {to_iso(at_ms)} is still to come")
    if effective_at_ms > observed_at_ms:
        raise ValueError("observed_at: known before it was so")
    source = row.get("source") or ""
    if not isinstance(source, str) or len(source) > 200:
        raise ValueError("source: no text, or too long")
    if observed is Observed.IMPORT:
        source = f"import:{source}" if source else "import"
    elif not source:
        raise ValueError("source: empty")
    return Quote(offer, price, effective_at_ms, observed_at_ms, source)


# Typed: True is 1, and no number of GPUs. A file has some thousand offers and millions of rows.
@lru_cache(maxsize=65_536, typed=True)
def _offer(*cells: Any) -> Offer:
    row = dict(zip(OFFER_FIELDS, cells, strict=True))
    market = _text(row, "market")
    if market not in tuple(Market):
        raise ValueError(f"market: {market!r} is not one of {', '.join(Market)}")
    parts = [_text(row, name) for name in ("cloud", "region", "zone", "instance_type")]
    for name, part in zip(("cloud", "region", "zone", "instance_type"), parts, strict=True):
        if "/" in part and name != "region":
            raise ValueError(f"{name}: {part!r} has a slash")
    gpu = _text(row, "gpu")
    if gpu not in GPUS:
        raise ValueError(f"gpu: {gpu!r} is not known{_near(gpu, GPUS)}")
    cloud, region, zone, instance_type = parts
    return Offer(
        cloud,
        region,
        zone,
        instance_type,
        Market(market),
        gpu,
        gpus=_integer(row, "gpus", least=1),
        vcpus=_integer(row, "vcpus", least=0),
        memory_gib=_integer(row, "memory_gib", least=0),
        interconnect=_text(row, "interconnect"),
        fabric=_text(row, "fabric"),
    )


def _near(word: str, known: Collection[str]) -> str:
    hint = did_you_mean(word, known)
    return f"; {hint}" if hint else ""


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row[name]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name}: empty" if value in (None, "") else f"{name}: {value!r} is no text")
    if len(value) > 200 or not value.isprintable():
        raise ValueError(f"{name}: too long, or with characters that cannot be seen")
    return value


def _integer(row: Mapping[str, Any], name: str, least: int) -> int:
    value = row[name]
    try:
        number = parse_whole(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f"{name}: {value!r} is no whole number")
    if not least <= number <= _MOST[name]:
        raise ValueError(f"{name}: {number} is not between {least} and {_MOST[name]}")
    return number


def _moment(row: Mapping[str, Any], name: str) -> int:
    value = row[name]
    if isinstance(value, int):
        at_ms = value
    elif isinstance(value, str) and value:
        try:
            at_ms = from_iso(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    else:
        raise ValueError(f"{name}: empty" if value in (None, "") else f"{name}: {value!r} is no moment")
    if at_ms > LAST_MS:
        raise ValueError(f"{name}: {value!r} is no moment")
    if at_ms < _FIRST_MS:
        raise ValueError(f"{name}: {value!r} is before there was a cloud")
    return at_ms
