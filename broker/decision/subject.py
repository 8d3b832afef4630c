"""What a decision is made from, as values: the job's situation and the world around it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from broker.core.model import Job, Placement
from broker.core.offer import MarketSnapshot, Offer


@dataclass(frozen=True)
class Hold:
    """Since when a policy has wanted the same move.

    Attributes:
        target_key: Offer key that was wanted last.
        since_ms: When the wish to move first held, without a break.
        quote_at_ms: Newest `observed_at_ms` of the quotes behind it: a hold advances on fresh quotes only.
    """

    target_key: str
    since_ms: int
    quote_at_ms: int


@dataclass(frozen=True)
class Spent:
    """What the ledger says has been paid, in micro-USD.

    Attributes:
        run_micro_usd: For the job, over all its placements.
        epoch_micro_usd: The part of it since its epoch began; all of it before it has reported one.
        month_micro_usd: For every placement that the policy has decided on, in this calendar month, UTC.
    """

    run_micro_usd: int = 0
    epoch_micro_usd: int = 0
    month_micro_usd: int = 0


@dataclass(frozen=True)
class Subject:
    """One job's situation.

    Attributes:
        active: The placement that trains, or None.
        landing: Placements of the job on their way to READY, or READY.
        lost: The placement whose end makes this a recovery, or None. Its offer's pool is avoided at first.
        moved_at_ms: When the job last moved by choice.
        moves_24h: Voluntary moves in the last 24 hours.
        hold: Memory of the last answer, or None.
        measured_steps_per_s: By GPU SKU: what this job did there, on our clock.
        trained_s: Seconds trained over all placements; None takes the age of the current one.
        handles_term: Whether the running job saves when it is asked to stop; None when nobody knows.
        spent: None when nobody knows, or no budget asks.
    """

    job: Job
    active: Placement | None = None
    landing: tuple[Placement, ...] = ()
    lost: Placement | None = None
    moved_at_ms: int | None = None
    moves_24h: int = 0
    hold: Hold | None = None
    measured_steps_per_s: Mapping[str, float] = field(default_factory=dict)
    trained_s: float | None = None
    handles_term: bool | None = None
    spent: Spent | None = None


@dataclass(frozen=True)
class Caps:
    """Deployment-wide bounds; they bind every policy. None is no bound."""

    max_micro_usd_per_hour: int | None = None
    max_nodes: int | None = None


@dataclass(frozen=True)
class Timing:
    """What a landing takes until own measurements say otherwise, in seconds of our clock.

    Attributes:
        boot_s: Request to hello.
        probe_s: Hello to verdict.
        restore_s: Stop there to training here, without transfer.
        transfer_gib_s: Checkpoint transfer rate.
    """

    boot_s: float = 240.0
    probe_s: float = 75.0
    restore_s: float = 60.0
    transfer_gib_s: float = 0.5


@dataclass(frozen=True)
class World:
    """Everything around the job at one moment.

    Attributes:
        burn_micro_usd_h: What all open placements cost an hour now; policy_burn_micro_usd_h: of this policy's jobs.
        open_nodes: Nodes not gone.
        migrations_running: Moves under way under this policy.
        egress_micro_usd_per_gib: (from, to) -> price; to None is the checkpoint store.
        store_place: Where the checkpoint store is, ``cloud/region``, or empty when unknown.
    """

    now_ms: int
    snapshot: MarketSnapshot
    egress_micro_usd_per_gib: Callable[[Offer, Offer | None], int]
    caps: Caps = field(default_factory=Caps)
    timing: Timing = field(default_factory=Timing)
    burn_micro_usd_h: int = 0
    policy_burn_micro_usd_h: int = 0
    open_nodes: int = 0
    migrations_running: int = 0
