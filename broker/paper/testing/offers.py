"""``prices``, ``stock`` and ``offers`` of a test: which offers there are, and what becomes of them over time."""

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, TypeVar

from broker.core.errors import Place, PolicyError
from broker.core.gpu import GPUS
from broker.core.offer import Market, Offer
from broker.core.size import GIB, parse_size
from broker.core.spec import MAX_GPUS_PER_NODE
from broker.core.yaml_text import Node, did_you_mean
from broker.paper.machines import MACHINES, Machine, known_offer
from broker.paper.market import OfferSeries, SeriesMarket
from broker.paper.series import Track, price_micro_usd_h, read_series, share, stock
from broker.paper.testing.section import Section
from broker.policy import fields
from broker.policy.sections import CLOUDS

T = TypeVar("T")

_FACTS: Final = ("region", "gpu", "gpus", "vcpus", "memory", "interconnect", "fabric")
_INTERCONNECTS: Final = ("nvlink", "pcie", "none")
_FABRICS: Final = ("efa", "infiniband", "gpudirect", "ethernet")
_MOST_OFFERS: Final = 100


@dataclass(frozen=True)
class Told:
    """What the file says of an instance type.

    Attributes:
        pattern: ``cloud/zone/instance_type`` with ``*``.
        machine: None where the shipped facts do, and only the region is told.
    """

    pattern: str
    machine: Machine | None
    region: str | None


@dataclass(frozen=True)
class Found:
    """The market of a case.

    Attributes:
        offers: By key, in the order of the file.
        first_prices: Micro-USD an hour at the start, of those that have one.
        lengths_ms: How long each series is written out.
    """

    market: SeriesMarket
    offers: dict[str, Offer]
    first_prices: dict[str, int]
    lengths_ms: tuple[int, ...]


def read_machines(part: Section) -> tuple[Told, ...]:
    """``offers``: facts of instance types that are not known, or a region that no zone's name tells."""
    node = part.section("offers")
    if node is None:
        return ()
    told = [_machine(key, inside) for key, inside in node.sections()]
    return tuple(row for row in told if row is not None)


def read_market(part: Section, told: tuple[Told, ...], start_ms: int, poll_s: int) -> Found | None:
    """The market; None with a mistake in it."""
    before = len(part.errors)
    prices = _series(part, "prices", price_micro_usd_h, start_ms)
    left = _series(part, "stock", stock, start_ms)
    if "prices" not in part.node:
        hint = 'prices: {aws/use1-az6/p5.48xlarge/spot: "32.0x30m 61.0"}'
        part.note(
            PolicyError("prices is missing: without them there is nothing to decide", part.node.at, hint)
        )
    offers: dict[str, Offer] = {}
    for key, (_, at) in prices.items():
        try:
            offers[key] = _offer(key, told, at)
        except PolicyError as error:
            part.note(error)
    for key, (_, at) in left.items():
        if key not in prices:
            part.note(PolicyError(f"stock of {key}, which has no price", at, did_you_mean(key, prices)))
    failures = part.read("spot_failure_rate", lambda node: read_series(node, share, start_ms), None)
    lives = _lives(part)
    if len(part.errors) > before:
        return None
    series = {
        key: OfferSeries(offers[key], track, left[key][0] if key in left else None)
        for key, (track, _) in prices.items()
    }
    first = {key: price for key, (track, _) in prices.items() if (price := track.at(start_ms)) is not None}
    lengths_ms = [track.length_ms for track, _ in prices.values()]
    lengths_ms += [track.length_ms for track, _ in left.values()]
    market = SeriesMarket(series, start_ms, poll_s * 1000, failures, lives)
    return Found(market, offers, first, tuple(lengths_ms))


def _series(
    part: Section, name: str, value: Callable[[str], T], start_ms: int
) -> dict[str, tuple[Track[T], Place]]:
    section = part.section(name)
    if section is None:
        return {}
    mapped = section.node
    if len(mapped) > _MOST_OFFERS:
        section.note(PolicyError(f"{name} has {len(mapped)} offers; {_MOST_OFFERS} are allowed", mapped.at))
        return {}
    found = {}
    for key, node in mapped.items():
        try:
            _check_key(key, mapped.place(key))
            found[key] = (read_series(node, value, start_ms), mapped.place(key))
        except PolicyError as error:
            section.note(error)
    return found


def _check_key(key: str, at: Place) -> None:
    parts = key.split("/")
    if len(parts) != 4 or not all(parts):
        raise PolicyError(
            f"{key!r} is not an offer",
            at,
            "cloud/zone/instance_type/market, as in aws/use1-az6/p5.48xlarge/spot",
        )
    if parts[0] not in CLOUDS:
        raise PolicyError(f"unknown cloud {parts[0]!r}", at, did_you_mean(parts[0], CLOUDS))
    if parts[3] not in list(Market):
        raise PolicyError(
            f"unknown market {parts[3]!r}",
            at,
            did_you_mean(parts[3], Market) or f"one of {', '.join(Market)}",
        )


def _offer(key: str, told: tuple[Told, ...], at: Place) -> Offer:
    kind = key.rpartition("/")[0]
    row = next((row for row in told if fnmatchcase(kind, row.pattern)), None)
    offer = known_offer(key, row.machine if row else None, row.region if row else None)
    if offer is not None:
        return offer
    cloud, zone, name = kind.split("/")
    if (row is None or row.machine is None) and name not in MACHINES.get(cloud, {}):
        near = did_you_mean(name, MACHINES.get(cloud, {}))
        hint = near or f"offers: {{{kind}: {{gpu: H100-SXM5-80GB, gpus: 8}}}}"
        raise PolicyError(f"what is a {name} of {cloud}?", at, hint)
    raise PolicyError(
        f"in which region is {zone} of {cloud}?", at, f"offers: {{{cloud}/{zone}/*: {{region: us-east-1}}}}"
    )


def _machine(pattern: str, part: Section) -> Told | None:
    part.only(_FACTS)
    if pattern.count("/") != 2:
        part.note(
            PolicyError(
                f"{pattern!r} is not cloud/zone/instance_type", part.node.at, "* stands for any: local/*/box"
            )
        )
        return None
    region = part.read("region", Node.as_str, None)
    gpu = part.read("gpu", _sku, None)
    gpus = part.read("gpus", lambda node: node.as_int(1, MAX_GPUS_PER_NODE), None)
    if gpu is None and "gpu" not in part.node and gpus is None:
        return Told(pattern, None, region)
    if gpu is None or gpus is None:
        if "gpu" not in part.node or "gpus" not in part.node:
            part.note(
                PolicyError("gpu and gpus belong together", part.node.at, "{gpu: H100-SXM5-80GB, gpus: 8}")
            )
        return None
    joined = gpus > 1 and GPUS[gpu].form == "SXM"
    machine = Machine(
        gpu,
        gpus,
        part.read("vcpus", lambda node: node.as_int(1, 10_000), 0),
        part.read("memory", _memory_gib, 0),
        part.read(
            "interconnect", lambda node: node.as_choice(_INTERCONNECTS), "nvlink" if joined else "none"
        ),
        part.read("fabric", lambda node: node.as_choice(_FABRICS), "ethernet"),
    )
    return Told(pattern, machine, region)


def _sku(node: Node) -> str:
    return node.as_choice(GPUS)


def _memory_gib(node: Node) -> int:
    try:
        return parse_size(node.as_str()) // GIB
    except ValueError as error:
        raise node.fail(f"{node.name}: {error}") from None


def _lives(part: Section) -> dict[str, float]:
    section = part.section("spot_life")
    if section is None:
        return {}
    lives: dict[str, float] = {}
    for key in section.node:
        if key.count("/") != 2:
            at = section.node.place(key)
            section.note(
                PolicyError(
                    f"{key!r} is not cloud/zone/instance_type",
                    at,
                    "spot_life: {aws/use1-az6/p5.48xlarge: 2h}",
                )
            )
            continue
        lives[key] = float(section.read(key, fields.positive_duration, 1))
    return lives
