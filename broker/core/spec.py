"""What the engineer wrote in a job file, as frozen values. Parsing and its errors: `broker.jobs.spec`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from broker.core.offer import Market


class Priority(StrEnum):
    """Order in the queue, first to last."""

    URGENT = "urgent"
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"
    SCAVENGER = "scavenger"

    @property
    def rank(self) -> int:
        """0 for urgent, 4 for scavenger."""
        return list(Priority).index(self)


# Slips, not shapes: the largest machine that can be rented has 72 GPUs in one rack, and a gang starts in one zone at once.
MAX_GPUS_PER_NODE = 1024
MAX_NODES = 1024


@dataclass(frozen=True)
class GpuRequest:
    """One acceptable kind of GPU.

    Attributes:
        type: A family (``H100``) or an exact SKU (``H100-SXM5-80GB``).
        count: GPUs per node; 1 to `MAX_GPUS_PER_NODE`.
        memory_gib_min: Per GPU; 0 when any will do.
        form: ``SXM``, ``PCIe``, ``NVL`` or None for any.
    """

    type: str
    count: int = 1
    memory_gib_min: int = 0
    form: str | None = None


@dataclass(frozen=True)
class Resources:
    """What a placement must offer.

    Attributes:
        nodes: Size of the gang; 1 to `MAX_NODES`.
        gpus: Alternatives; any of them will do.
        markets: Which markets the job accepts.
        allow: Patterns ``cloud[/region[/zone]]`` with ``*``; empty allows all.
        deny: Patterns of the same form.
    """

    gpus: tuple[GpuRequest, ...]
    nodes: int = 1
    markets: tuple[Market, ...] = (Market.OWNED, Market.SPOT, Market.ON_DEMAND)
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """The job's files as a tarball named by its hash.

    Attributes:
        sha256: Of the gzipped tarball.
        size_bytes: Of the same.
    """

    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class DataSet:
    """Data that the job reads; its size prices egress.

    Attributes:
        size_bytes: As declared.
        name: For people.
    """

    size_bytes: int
    name: str = ""


@dataclass(frozen=True)
class KeepBest:
    """Keep the best checkpoint by a metric.

    Attributes:
        metric: Name in the metrics lines.
        mode: ``min`` or ``max``.
    """

    metric: str
    mode: str = "min"


@dataclass(frozen=True)
class Checkpoint:
    """How the job checkpoints.

    Attributes:
        dir: Path on the node, relative to the working directory or absolute; `$BROKER_CHECKPOINT_DIR`.
        every_s: The interval the job keeps by itself; the broker expects it and bounds a hand-over by it.
        keep_last: Commits that stay in the store.
        keep_best: One more that stays, or None.
    """

    dir: str
    every_s: int = 600
    keep_last: int = 3
    keep_best: KeepBest | None = None


@dataclass(frozen=True)
class JobSpec:
    """One job file, parsed and with defaults filled in."""

    name: str
    run: str
    resources: Resources
    team: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: Priority = Priority.NORMAL
    source: Source | None = None
    setup: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    data: tuple[DataSet, ...] = ()
    checkpoint: Checkpoint | None = None
    deadline_ms: int | None = None
    policy: str | None = None
