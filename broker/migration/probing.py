"""From probe reports to a placement's verdict. Pure. The report itself is judged on the node."""

from collections.abc import Mapping, Sequence
from typing import Any

from broker.core.model import Placement, PlacementState, Verdict
from broker.migration.view import STORE_AWAITED, Plan
from broker.policy.schema import OnInconclusive

# How the reason of a placement begins whose nodes the probe refused; counted by `refused_in_a_row`.
REFUSED = "probe refused it"

# From worst to best: a gang is as good as its worst node.
_ORDER = (Verdict.REJECT, Verdict.INCONCLUSIVE, Verdict.DEGRADED, Verdict.ACCEPT)


def judge(
    plan: Plan,
    placement: Placement,
    reports: Sequence[Mapping[str, Any] | None],
    on_inconclusive: OnInconclusive,
) -> Placement:
    """Take in the gang's reports once all are there; a node that is refused ends the landing, never the old placement."""
    if not reports or any(report is None for report in reports):
        return placement
    verdicts = [_verdict(report) for report in reports if report is not None]
    worst = min(verdicts, key=_ORDER.index)
    reasons = [str(r) for report in reports if report is not None for r in report.get("reasons", ())][:5]
    why = "; ".join(reasons) or "no reason given"
    refused = worst == Verdict.REJECT or (
        worst == Verdict.INCONCLUSIVE and on_inconclusive == OnInconclusive.REJECT
    )
    plan.note(
        "probe.rejected" if refused else "probe.accepted",
        job_id=placement.job_id,
        placement_id=placement.id,
        project_id=placement.project_id,
        verdict=worst,
        reasons=reasons,
    )
    if refused:
        plan.avoid(placement, f"probe: {why}")
        reason = f"{REFUSED}: {worst}: {why}"
        return plan.placement(placement, PlacementState.RELEASING, reason, verdict=worst)
    return plan.placement(placement, reason=f"probe says {worst}: {why}", verdict=worst)


def refused_in_a_row(placements: Sequence[Placement]) -> list[Placement]:
    """The newest placements of a job whose nodes were refused, back to the last that was not; oldest first.

    So are those that waited for a checkpoint store which did not come: the next node would wait and be paid as well. An
    empty pool is no answer about the probe, so it neither counts nor ends the row.
    """
    row: list[Placement] = []
    for placement in reversed(placements):
        if placement.verdict is None:
            continue
        if not placement.reason.startswith(REFUSED) and STORE_AWAITED not in placement.reason:
            break
        row.insert(0, placement)
    return row


def _verdict(report: Mapping[str, Any]) -> Verdict:
    try:
        return Verdict(str(report.get("verdict")))
    except ValueError:
        return Verdict.INCONCLUSIVE
