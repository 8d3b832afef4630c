"""Answers of policies as they are kept: what makes one news, how it is written, and what is said where none came."""

from collections.abc import Sequence
from dataclasses import replace

import structlog

from broker.core.model import Decision, DecisionKind, Event, Job, Reason
from broker.policy.select import RESCUER_NAME
from broker.store.state import Tx

log = structlog.get_logger(__name__)

_ONE_SPEAKS = "one policy speaks for the job"


def signature(decision: Decision) -> object:
    """What makes an answer news: kind, target and which lines hold. Numbers drift with every poll and are none."""
    lines: Sequence[tuple[str, bool | None]] = [(reason.line, reason.holds) for reason in decision.reasons]
    target = decision.target.offer.key if decision.target else None
    return (decision.kind, decision.acted, target, tuple(lines))


def with_note(decision: Decision, instead: str) -> Decision:
    """Say with the answer why this policy gave it, and not the one that the files should name."""
    summary = f"{decision.summary} ({instead})"
    return replace(
        decision, summary=summary, reasons=(*decision.reasons, Reason(_ONE_SPEAKS, False, instead))
    )


def nobody_decides(job: Job, refused: str, decision_id: str, now_ms: int) -> Decision:
    """No policy speaks for a job and none has before: that is an answer too, to be found where answers are."""
    return Decision(
        id=decision_id,
        job_id=job.id,
        project_id=job.project_id,
        policy=RESCUER_NAME,
        policy_sha256="0" * 64,
        at_ms=now_ms,
        kind=DecisionKind.STAY,
        acted=False,
        summary=refused,
        reasons=(Reason(_ONE_SPEAKS, False, refused),),
    )


def write(tx: Tx, job: Job, decision: Decision) -> None:
    """The row, and the event that tells of it."""
    tx.save_decision(decision)
    data = {
        "decision": decision.id,
        "acted": decision.acted,
        "summary": decision.summary,
        "policy": decision.policy,
    }
    tx.emit(
        Event(
            f"decision.{decision.kind}", decision.at_ms, project_id=job.project_id, job_id=job.id, data=data
        )
    )
    log.info("decision.made", job=job.id, kind=decision.kind, acted=decision.acted, summary=decision.summary)
