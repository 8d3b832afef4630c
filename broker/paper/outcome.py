"""What became of a job on paper: each answer with what followed from it, and the bill."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from broker.core.model import Decision, EndedBy, Placement, Purpose, Segment
from broker.core.offer import Offer, Quote
from broker.core.size import GIB
from broker.jobs.ledger import Bill, RuleOf, bill
from broker.paper.job import PaperJob

Egress = Callable[[Offer, Offer | None], int]


class Effect(StrEnum):
    """What followed from an answer."""

    NOTHING = "nothing"
    LAUNCHED = "launched"
    REFUSED = "refused"  # its cloud had no capacity
    RECORDED = "recorded"  # mode: observe
    PAUSED = "paused"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Step:
    """One answer.

    Attributes:
        at_ms: When it was asked.
        on: Offer key where the job was then, or None.
        effect: What followed.
    """

    at_ms: int
    decision: Decision
    on: str | None
    effect: Effect

    @property
    def to(self) -> str | None:
        """Offer key of the target, for places and moves."""
        return self.decision.target.offer.key if self.decision.target else None

    @property
    def answer(self) -> tuple[object, ...]:
        """What makes it another answer than the one before: kind, target, effect, and which lines held."""
        lines = tuple((reason.line, reason.holds) for reason in self.decision.reasons)
        return self.decision.kind, self.to, self.effect, self.on, lines


@dataclass(frozen=True)
class Outcome:
    """A run that has ended, with its job finished or with its time over.

    Attributes:
        job: As it ended.
        began_ms: When the run began.
        ended_ms: When the job finished, or the time was over.
        steps: Each answer that was another one than the one before it.
        asked: How often the policy was asked.
        bills: One for each node of each placement that a cloud gave.
        egress_micro_usd: Checkpoints and data that left a place for the next.
    """

    job: PaperJob
    began_ms: int
    ended_ms: int
    steps: tuple[Step, ...]
    asked: int
    bills: tuple[Bill, ...]
    egress_micro_usd: int

    @property
    def cost_micro_usd(self) -> int:
        """Machines and egress; what is still held is counted until the end of the run."""
        return sum(b.paid_micro_usd for b in self.bills) + self.egress_micro_usd

    @property
    def finished_ms(self) -> int | None:
        """When the work was done; None when it was not."""
        return self.job.job.finished_at_ms if self.job.job.exit_code == 0 else None

    @property
    def launches(self) -> int:
        """Placements that a cloud gave."""
        return len({b.segment.placement_id for b in self.bills})

    @property
    def refusals(self) -> int:
        """Launches that a cloud refused."""
        return len(self.job.placements) - self.launches

    @property
    def moves(self) -> int:
        """Moves that were carried out: the job was handed over."""
        return sum(p.purpose is Purpose.MOVE and p.active_at_ms is not None for p in self.job.placements)

    @property
    def interruptions(self) -> int:
        """How often a cloud took the job's place away."""
        return sum(p.lost and p.active_at_ms is not None for p in self.job.placements)


def bills_of(
    job: PaperJob, points: Callable[[Offer], Sequence[Quote]], rule_of: RuleOf, now_ms: int
) -> tuple[Bill, ...]:
    """A bill for each node of each placement that was given, from the launch on: boot and probe are paid for.

    Args:
        points: Every price of an offer, oldest first.
        rule_of: How a cloud bills a market.
        now_ms: Until when what is held is counted.
    """
    return tuple(
        bill(segment, points(p.offer), rule_of(p.offer.cloud, p.offer.market), now_ms)
        for p in job.placements
        if not _refused(p)
        for segment in _segments(job, p)
    )


def segments_of(job: PaperJob) -> list[Segment]:
    """Every billable stretch so far, as the daemon would have them in its rows."""
    return [s for p in job.placements if not _refused(p) for s in _segments(job, p)]


def egress_of(job: PaperJob, egress: Egress) -> int:
    """What left one place for the next, at the same prices and sizes that a decision reckons with."""
    had = [p for p in job.placements if p.active_at_ms is not None]
    data = sum(d.size_bytes for d in job.spec.data)
    paid = 0
    for before, after in pairwise(had):
        size = data + (job.checkpoint_bytes if after.resumed_seq is not None else 0)
        paid += round(egress(before.offer, after.offer) * size / GIB)
    return paid


def _refused(placement: Placement) -> bool:
    """A cloud that refused has given nothing to pay for."""
    return placement.gone_at_ms == placement.created_at_ms and placement.active_at_ms is None


def _segments(job: PaperJob, placement: Placement) -> list[Segment]:
    ended_by = None
    if placement.gone_at_ms is not None:
        ended_by = EndedBy.CLOUD if placement.lost else EndedBy.US
    return [
        Segment(
            f"{placement.id}-{rank}",
            placement.id,
            placement.job_id,
            placement.project_id,
            placement.offer,
            placement.created_at_ms,
            placement.gone_at_ms,
            ended_by,
        )
        for rank in range(job.spec.resources.nodes)
    ]
