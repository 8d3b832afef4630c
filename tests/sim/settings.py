"""What a history is a function of, and the numbers that every seed has in common."""

from dataclasses import dataclass
from random import Random

from tests.sim.faults import Kind

HOUR_S = 3600.0
_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
_POLICY = """\
policy: sim
mode: act
objective: cheapest
candidates: {{max_quote_age: {age}s}}
place: {{order: [spot, on_demand]}}
migrate: {{min_saving: 15%, min_saving_usd: 0, max_payback: 12h, hold: 2m, cooldown: {cooldown}s}}
verify: {{on_inconclusive: accept}}
limits: {{migrations_per_job_per_day: {day}, concurrent_migrations: {once}}}
"""


@dataclass(frozen=True)
class Settings:
    """What a history is a function of, beside the commit.

    Attributes:
        hours: Of faults; the calm comes after.
        without: Kinds of faults left out; also: kinds that are on whatever the seed says.
        eager: How many times as often the latter strike.
    """

    seed: int
    hours: float = 1.0
    without: frozenset[Kind] = frozenset()
    also: frozenset[Kind] = frozenset()
    eager: float = 1.0


@dataclass(frozen=True)
class PolicyNumbers:
    """What the policy of every seed says."""

    max_quote_age_s: float = 300.0
    cooldown_s: float = 600.0
    moves_per_day: int = 4
    moves_at_once: int = 2

    def written(self) -> str:
        """The policy's file."""
        return _POLICY.format(
            age=round(self.max_quote_age_s), cooldown=round(self.cooldown_s), day=self.moves_per_day,
            once=self.moves_at_once,
        )  # fmt: skip


class SeededIds:
    """Names from the seed."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def base32(self, length: int) -> str:
        return "".join(self._random.choice(_BASE32) for _ in range(length))
