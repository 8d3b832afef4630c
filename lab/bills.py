"""What a machine costs, by its cloud's rule: the truth that a ledger is compared with.

Shares no code with the broker's ledger: two that agree have been computed twice. Exact until the last step.

    AWS   per second, 60 seconds at least; spot that AWS ends within its first hour is free (Linux), and each hour of
          a spot machine costs what the price was when that hour began
    GCP   per second, 60 seconds at least; a preempted machine pays for what it ran
"""

from dataclasses import dataclass
from fractions import Fraction

from lab.machines import EndedBy, Machine
from lab.pools import Pool

MINIMUM_S = 60
FREE_IF_INTERRUPTED_S = 3600


@dataclass(frozen=True)
class BillLine:
    """One machine's line.

    Attributes:
        from_s: Start of the meter, None when it never ran.
        to_s: End of the meter, None while it runs.
        seconds: Billed, after the minimum; 0 when free.
        cost_micro_usd: Of those seconds, rounded half to even once.
        why: The rule that decided: ``per_second``, ``minimum``, ``interrupted_in_first_hour``, ``never_ran``.
    """

    machine: str
    cloud: str
    offer_key: str
    name: str
    token: str | None
    from_s: int | None
    to_s: int | None
    seconds: int
    cost_micro_usd: int
    ended_by: str | None
    why: str


def line(machine: Machine, pool: Pool, now_s: int) -> BillLine:
    """The line of one machine as of now. A running one pays for the whole seconds until now, at least the minimum."""
    seconds, why = _billed(machine, now_s)
    start = machine.running_s
    return BillLine(
        machine=machine.id,
        cloud=machine.cloud,
        offer_key=machine.offer_key,
        name=machine.name,
        token=machine.token,
        from_s=start,
        to_s=machine.stopping_s if start is not None else None,
        seconds=seconds,
        cost_micro_usd=0 if start is None else rounded(integral(pool, start, start + seconds)),
        ended_by=None if machine.ended_by is None else str(machine.ended_by),
        why=why,
    )


def integral(pool: Pool, from_s: int, to_s: int) -> int:
    """What a machine of the pool owes from then to then, in micro-USD an hour times seconds."""
    if pool.listing.zone.cloud == "aws" and pool.listing.market == "spot":
        return pool.micro_usd_seconds_by_the_hour(from_s, to_s)
    return pool.micro_usd_seconds(from_s, to_s)


def _billed(machine: Machine, now_s: int) -> tuple[int, str]:
    if machine.running_s is None:
        return 0, "never_ran"
    ran = (now_s if machine.stopping_s is None else machine.stopping_s) - machine.running_s
    interrupted = machine.ended_by is EndedBy.CLOUD
    if machine.cloud == "aws" and machine.market == "spot" and interrupted and ran < FREE_IF_INTERRUPTED_S:
        return 0, "interrupted_in_first_hour"
    if ran < MINIMUM_S:
        return MINIMUM_S, "minimum"
    return ran, "per_second"


def rounded(micro_usd_seconds: int) -> int:
    """Micro-USD an hour times seconds, as micro-USD."""
    return round(Fraction(micro_usd_seconds, 3600))
