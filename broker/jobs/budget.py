"""What budgets are held against: bills added up by job, by epoch and by policy. Pure.

A bill's money lies where its lines say: a month or an epoch that begins in the middle of a line gets the part of it from
then on. Time without a known price is charged at the price of the decision that rented the node, since a budget that
takes the unknown for nothing is none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from broker.core.model import Job, Placement
from broker.core.money import cost_micro_usd
from broker.core.time import MS, from_datetime
from broker.jobs.ledger import Bill

_BY = "policy:"


@dataclass(frozen=True)
class Tally:
    """Money paid, in micro-USD.

    Attributes:
        run: By job: all of it.
        epoch: By job: since its epoch began.
        month: By name of the policy that decided on the placement: in this calendar month, UTC.
    """

    run: Mapping[str, int] = field(default_factory=dict)
    epoch: Mapping[str, int] = field(default_factory=dict)
    month: Mapping[str, int] = field(default_factory=dict)


def month_start_ms(now_ms: int) -> int:
    """The first moment of the month, UTC."""
    now = datetime.fromtimestamp(now_ms / MS, UTC)
    return from_datetime(datetime(now.year, now.month, 1, tzinfo=UTC))


def tally(
    bills: Iterable[Bill], placements: Mapping[str, Placement], jobs: Mapping[str, Job], now_ms: int
) -> Tally:
    """Add bills up.

    Args:
        bills: Of every segment of the jobs that are asked about, and of all that were open in this month.
        placements: Theirs, by id.
        jobs: By id; of others only the month counts.
    """
    run: dict[str, int] = {}
    epoch: dict[str, int] = {}
    month: dict[str, int] = {}
    since_ms = month_start_ms(now_ms)
    for bill in bills:
        job_id = bill.segment.job_id
        placement = placements.get(bill.segment.placement_id)
        unpriced = _unpriced(bill, placement)
        job = jobs.get(job_id)
        if job is not None:
            run[job_id] = run.get(job_id, 0) + bill.paid_micro_usd + unpriced
            began_ms = (job.progress and job.progress.epoch_since_ms) or 0
            epoch[job_id] = epoch.get(job_id, 0) + _since(bill, unpriced, began_ms)
        if placement is not None and placement.created_by.startswith(_BY):
            name = placement.created_by.removeprefix(_BY)
            month[name] = month.get(name, 0) + _since(bill, unpriced, since_ms)
    return Tally(run, epoch, month)


def _unpriced(bill: Bill, placement: Placement | None) -> int:
    if placement is None or bill.unpriced_s <= 0:
        return 0
    return cost_micro_usd(placement.price_micro_usd_h, round(bill.unpriced_s * MS))


def _since(bill: Bill, unpriced: int, since_ms: int) -> int:
    """The part of a bill from a moment on. What has no price came first."""
    paid = unpriced if bill.segment.started_at_ms >= since_ms else 0
    for line in bill.lines:
        within_ms = max(0, line.to_ms - max(line.from_ms, since_ms))
        paid += line.paid_micro_usd * within_ms // max(1, line.to_ms - line.from_ms)
    return paid
