"""A policy as frozen values: filters narrow, the objective chooses, `migrate` vetoes.

Reading the file, with line and column of every mistake, is `broker.policy.load`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from broker.core.errors import Place as FilePlace
from broker.core.offer import Market
from broker.core.spec import Priority

Fact = bool | int | float | str


class Condition(Protocol):
    """One CEL line with its place in the file. Its own truth value is what makes `why` free."""

    @property
    def text(self) -> str:
        """As the author wrote it."""

    @property
    def place(self) -> str:
        """``policies/night.yaml:14``."""

    @property
    def at(self) -> FilePlace:
        """Where it starts, with the line of the file."""

    def evaluate(self, facts: Mapping[str, Fact]) -> bool | None:
        """True, False, or None when a fact that it needs is missing or the evaluation failed."""


class Mode(StrEnum):
    """OBSERVE places and recovers, but only records moves, pauses and stops; ACT does them."""

    OBSERVE = "observe"
    ACT = "act"


class Objective(StrEnum):
    """What the best candidate is."""

    CHEAPEST = "cheapest"
    CHEAPEST_BY_DEADLINE = "cheapest_by_deadline"


class OnInconclusive(StrEnum):
    """What to do with a node that the probe could not judge."""

    ACCEPT = "accept"
    REJECT = "reject"


@dataclass(frozen=True)
class Match:
    """Which jobs a policy speaks for. An empty part matches everything.

    Attributes:
        teams: Any of these.
        labels: All of these.
        priorities: Any of these.
        projects: Any of these.
    """

    teams: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    priorities: tuple[Priority, ...] = ()
    projects: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidates:
    """Which offers may be considered at all.

    Attributes:
        clouds: Empty means every configured cloud.
        regions_allow, regions_deny: Patterns on the region name with ``*``.
        max_quote_age_s: An older quote justifies nothing voluntary.
        where: Every line must hold; a missing fact makes it false.
    """

    clouds: tuple[str, ...] = ()
    regions_allow: tuple[str, ...] = ()
    regions_deny: tuple[str, ...] = ()
    max_quote_age_s: int = 600
    where: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Place:
    """Order of markets: the first obtainable one that the objective can live with."""

    order: tuple[Market, ...] = (Market.OWNED, Market.SPOT, Market.ON_DEMAND)
    skip_spot_when: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Migrate:
    """What vetoes a move.

    Attributes:
        enabled: False when the file says ``migrate: never``.
        min_saving: Share 0..1 of the cost to finish here.
        min_saving_micro_usd: And at least this much money.
        max_payback_s: The cost of moving is earned back within this.
        hold_s: Must stay true this long, on fresh quotes.
        cooldown_s: Since the job's last move.
        where: Further lines; a missing fact makes one false.
    """

    enabled: bool = True
    min_saving: float = 0.20
    min_saving_micro_usd: int = 25_000_000
    max_payback_s: int = 3 * 3600
    hold_s: int = 600
    cooldown_s: int = 2 * 3600
    where: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Verify:
    """How a landing node is judged."""

    profile: str = "standard"
    min_speed: float = 0.90
    on_inconclusive: OnInconclusive = OnInconclusive.REJECT


@dataclass(frozen=True)
class Limits:
    """Blast radius of one policy. None is no bound."""

    migrations_per_job_per_day: int | None = 4
    concurrent_migrations: int | None = 10
    max_micro_usd_per_hour: int | None = None


@dataclass(frozen=True)
class Budget:
    """What may be spent, in money that was paid already. None is no bound.

    Attributes:
        run_micro_usd: By one job, over all its placements.
        epoch_micro_usd: By one job in one epoch of its own count.
        month_micro_usd: By all jobs of the policy in a calendar month, UTC.
        spot_only_at_80_percent: From 80 % of the month's on nothing but spot and owned nodes is rented.
    """

    run_micro_usd: int | None = None
    epoch_micro_usd: int | None = None
    month_micro_usd: int | None = None
    spot_only_at_80_percent: bool = False


@dataclass(frozen=True)
class Stop:
    """When a job is ended, by its own metrics.

    Attributes:
        when: Any line that holds; a missing reading makes one false.
        nan_loss: Whether a loss that is no finite number does.
        hold_readings: Of so many readings in a row it must be true.
    """

    when: tuple[Condition, ...] = ()
    nan_loss: bool = False
    hold_readings: int = 3


@dataclass(frozen=True)
class Policy:
    """One policy file.

    Attributes:
        name: Unique in its folder.
        sha256: Of the file's bytes, and of those that it extends; decisions keep it.
        file: Path, for messages.
        precedence: The highest that matches wins; a tie of acting policies is an error.
        selectable_by: Roles whose jobs may name it; None is everybody.
    """

    name: str
    sha256: str
    file: str
    description: str = ""
    mode: Mode = Mode.OBSERVE
    match: Match = field(default_factory=Match)
    precedence: int = 0
    selectable_by: tuple[str, ...] | None = None
    candidates: Candidates = field(default_factory=Candidates)
    objective: Objective = Objective.CHEAPEST
    place: Place = field(default_factory=Place)
    migrate: Migrate = field(default_factory=Migrate)
    verify: Verify = field(default_factory=Verify)
    budget: Budget | None = None
    stop: Stop | None = None
    limits: Limits = field(default_factory=Limits)
