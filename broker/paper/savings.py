"""What an observing policy would have saved: the job as it really went on, beside the job as that policy would have had it.

Both begin at the policy's first recorded wish, in the same place with the same work done, and both are billed by the
same prices and rules. Where one of them has done more of the work when the account is closed, the other owes the rest, at
the price of the place where it is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from broker.core.model import Placement, Purpose, Segment
from broker.core.money import MS_PER_HOUR
from broker.core.offer import Offer
from broker.core.size import GIB
from broker.core.spec import JobSpec
from broker.core.time import MS
from broker.decision.subject import Hold
from broker.jobs.ledger import Bill, RuleOf, ledger
from broker.paper.history import HistoryMarket
from broker.paper.outcome import Egress, Outcome
from broker.paper.past import Course, as_of
from broker.paper.run import Terms, play
from broker.policy.schema import Mode, Policy


@dataclass(frozen=True)
class Wish:
    """The first move that an observing policy has recorded for a job, of those that are looked at.

    Attributes:
        at_ms: When.
        target_key: Offer key.
        holds_since_ms: Since when it had wanted to move.
        count: Wishes from then on, repeated ones included.
    """

    at_ms: int
    target_key: str
    holds_since_ms: int
    count: int = 1


@dataclass(frozen=True)
class Side:
    """What happened from the wish on.

    Attributes:
        paid_micro_usd: Machines and egress, from the wish on.
        owed_micro_usd: What the work that only the other one has done would cost here.
        done_steps: Of the work, when the account is closed.
        ended_ms: When it finished, or the account was closed.
        finished: All of the work is done.
        at: Offer key of its last place.
        moves, interruptions: From the wish on.
    """

    paid_micro_usd: int
    owed_micro_usd: int
    done_steps: float
    ended_ms: int
    finished: bool
    at: str | None
    moves: int
    interruptions: int

    @property
    def cost_micro_usd(self) -> int:
        """Paid and owed."""
        return self.paid_micro_usd + self.owed_micro_usd


@dataclass(frozen=True)
class Saving:
    """One job and one observing policy.

    Attributes:
        real: What it did.
        paper: What the policy would have done.
        until_ms: When the account was closed.
    """

    job_id: str
    job_name: str
    policy: str
    wish: Wish
    real: Side
    paper: Side
    until_ms: int

    @property
    def saved_micro_usd(self) -> int:
        """Less than nothing where the policy would have cost more."""
        return self.real.cost_micro_usd - self.paper.cost_micro_usd


def acting(policy: Policy) -> Policy:
    """The same policy, let loose. Its budget is left out: what others of its jobs would have cost is not played."""
    return replace(policy, mode=Mode.ACT, budget=None)


def saving(
    course: Course, policy: Policy, wish: Wish, market: HistoryMarket, terms: Terms, until_ms: int
) -> Saving | None:
    """What that policy would have saved; None where the job had no place at the time of the wish.

    Args:
        market: From ``wish.at_ms`` on, with the prices of every offer that the job has really been on.
        until_ms: When the account is closed. One of a job that ended without finishing is closed at its end.
    """
    # That the hold was over is on record: it was a wish to move.
    proven_ms = wish.holds_since_ms + policy.migrate.hold_s * MS
    hold = Hold(wish.target_key, wish.holds_since_ms, proven_ms)
    job = as_of(course, wish.at_ms, policy.name, hold)
    if job is None or job.active is None:
        return None
    if course.ran.job.state.final and not course.finished:
        until_ms = course.ended_ms
    outcome = play(job, acting(policy), market, terms, until_ms)
    first = job.active.attempt
    common = _common(course, job.active, market, terms, wish.at_ms)
    real = _real_side(course, first, common, market, terms, until_ms)
    paper = _paper_side(outcome, first, common, terms, until_ms)
    ahead = real.done_steps - paper.done_steps
    if ahead > 0 and not paper.finished:
        owed = _owed(ahead, last_offer_of(outcome), course, market, paper.ended_ms)
        paper = replace(paper, owed_micro_usd=owed)
    elif ahead < 0 and not real.finished:
        real = replace(real, owed_micro_usd=_owed(-ahead, course.last_offer, course, market, real.ended_ms))
    row = course.ran.job
    return Saving(row.id, row.spec.name, policy.name, wish, real, paper, until_ms)


def last_offer_of(outcome: Outcome) -> Offer | None:
    """Where a job on paper was last."""
    last = outcome.job.active or outcome.job.former
    return last.offer if last else None


def _common(course: Course, active: Placement, market: HistoryMarket, terms: Terms, at_ms: int) -> int:
    """What the place where both begin had cost by then."""
    open_then = [
        replace(segment, ended_at_ms=None, ended_by=None)
        for segment in course.ran.segments
        if segment.placement_id == active.id
    ]
    return _paid(_bills(open_then, market, terms.rule_of, at_ms))


def _real_side(
    course: Course, first: int, common: int, market: HistoryMarket, terms: Terms, until_ms: int
) -> Side:
    ran = course.ran
    mine = [p for p in ran.placements if p.attempt >= first and p.created_at_ms < until_ms]
    ids = {placement.id for placement in mine}
    segments = [s for s in ran.segments if s.placement_id in ids]
    size = ran.job.commit.bytes if ran.job.commit else 0
    paid = _paid(_bills(segments, market, terms.rule_of, until_ms)) - common
    after = [p for p in mine if p.attempt > first]
    last = course.last_offer
    return Side(
        paid_micro_usd=paid + _egress(mine, size, ran.job.spec, terms.egress),
        owed_micro_usd=0,
        done_steps=course.done_steps,
        ended_ms=min(course.ended_ms, until_ms),
        finished=course.finished,
        at=last.key if last else None,
        moves=sum(p.active_at_ms is not None and p.purpose is Purpose.MOVE for p in after),
        interruptions=sum(p.lost and p.active_at_ms is not None for p in mine),
    )


def _paper_side(outcome: Outcome, first: int, common: int, terms: Terms, until_ms: int) -> Side:
    job = outcome.job
    mine = [p for p in job.placements if p.attempt >= first]
    ids = {placement.id for placement in mine}
    paid = sum(b.paid_micro_usd for b in outcome.bills if b.segment.placement_id in ids) - common
    egress = _egress(mine, job.checkpoint_bytes, job.spec, terms.egress)
    at = last_offer_of(outcome)
    return Side(
        paid_micro_usd=paid + egress,
        owed_micro_usd=0,
        done_steps=job.done_steps if outcome.finished_ms is None else float(job.total_steps),
        ended_ms=outcome.finished_ms or until_ms,
        finished=outcome.finished_ms is not None,
        at=at.key if at else None,
        moves=sum(
            p.purpose is Purpose.MOVE and p.active_at_ms is not None for p in mine if p.attempt > first
        ),
        interruptions=sum(p.lost and p.active_at_ms is not None for p in mine),
    )


def _bills(segments: Sequence[Segment], market: HistoryMarket, rule_of: RuleOf, at_ms: int) -> list[Bill]:
    points = {segment.offer.key: market.points(segment.offer) for segment in segments}
    return ledger(segments, points, rule_of, at_ms)


def _paid(bills: Iterable[Bill]) -> int:
    return sum(bill.paid_micro_usd for bill in bills)


def _egress(placements: Sequence[Placement], checkpoint_bytes: int, spec: JobSpec, egress: Egress) -> int:
    """What left one place for the next, as `broker.paper.outcome.egress_of` counts it."""
    data = sum(data.size_bytes for data in spec.data)
    had = [placement for placement in placements if placement.active_at_ms is not None]
    paid = 0
    for before, after in pairwise(had):
        size = data + (checkpoint_bytes if after.resumed_seq is not None else 0)
        paid += round(egress(before.offer, after.offer) * size / GIB)
    return paid


def _owed(steps: float, offer: Offer | None, course: Course, market: HistoryMarket, at_ms: int) -> int:
    """What so much work costs at a place, at its last price by then; nothing where it has no price."""
    if offer is None:
        return 0
    known = [point for point in market.points(offer) if point.effective_at_ms <= at_ms]
    if not known:
        return 0
    took_ms = steps / course.pace.on(offer) * MS
    nodes = course.ran.job.spec.resources.nodes
    return round(known[-1].price_micro_usd_h * nodes * took_ms / MS_PER_HOUR)
