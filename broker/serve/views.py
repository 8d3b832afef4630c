"""Bodies of the API where they differ from the values of `broker.core`: less (secrets), or more (ages, places).

Everything else is sent as the core's own dataclass: times in ms, money in micro-USD, names as in the glossary.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from pydantic import BaseModel

from broker.core.model import Decision, Job, JobState, Node, NodeState, Placement, Verdict
from broker.core.spec import JobSpec, Priority
from broker.core.time import MS, to_iso
from broker.store.access import Role, Token

T = TypeVar("T")

HIDDEN = "(hidden)"


class Listing(BaseModel, Generic[T]):
    """Items, and the daemon's time, from which ages are counted."""

    at_ms: int
    items: Sequence[T]


@dataclass(frozen=True)
class JobLine:
    """One line of `broker jobs`.

    Attributes:
        place: Offer key of the placement that trains, or else of the newest one that is not gone.
        price_micro_usd_h: Of all its nodes.
        restarts: Placements before that one.
    """

    id: str
    name: str
    team: str | None
    project_id: str
    created_by: str
    created_at_ms: int
    priority: Priority
    state: JobState
    state_since_ms: int
    reason: str
    gpu: str
    nodes: int
    place: str | None
    price_micro_usd_h: int | None
    step: int | None
    total_steps: int | None
    restarts: int


@dataclass(frozen=True)
class JobDetail:
    """All about one job.

    Attributes:
        paid_micro_usd: So far, by the ledger.
        decision: The newest answer of its policy.
    """

    job: Job
    placements: tuple[Placement, ...]
    paid_micro_usd: int
    decision: Decision | None


@dataclass(frozen=True)
class NodeView:
    """A node without its secret and without the whole of its last report."""

    token: str
    job_id: str
    placement_id: str
    rank: int
    cloud: str
    region: str
    zone: str
    state: NodeState
    state_since_ms: int
    reason: str
    provider_id: str | None
    address: str | None
    created_at_ms: int
    seen_at_ms: int | None
    billed_from_ms: int | None
    ended_at_ms: int | None
    phase: str


@dataclass(frozen=True)
class TokenView:
    """A token without its hash."""

    name: str
    role: Role
    project_id: str
    created_by: str
    created_at_ms: int
    last_used_at_ms: int | None
    revoked_at_ms: int | None


@dataclass(frozen=True)
class ProbeView:
    """A probe's verdict for one node."""

    node_token: str
    placement_id: str
    at_ms: int
    verdict: Verdict
    reasons: tuple[str, ...]


def without_secrets(job: Job) -> Job:
    """The job with the values of its environment hidden: people put keys there whatever the manual says."""
    return replace(job, spec=_without_secrets(job.spec), idempotency_key=None)


def _without_secrets(spec: JobSpec) -> JobSpec:
    return replace(spec, env=dict.fromkeys(spec.env, HIDDEN))


def told_reason(job: Job, nodes: Iterable[Node], run_lease_s: int, report_only: bool) -> str:
    """Why the job is in its state, and what is to come while nodes of the placement that trains are silent.

    Silence changes no state of a job: nobody knows yet whether it trains. So its row goes on to say that it does.

    Args:
        nodes: Any; only those of the job's active placement count.
        run_lease_s: Of settings; what is silent for longer is given up.
    """
    active = [node for node in nodes if node.placement_id == job.active_placement_id]
    silent = [node for node in active if node.state == NodeState.UNREACHABLE and node.seen_at_ms is not None]
    if job.active_placement_id is None or not silent:
        return job.reason
    since_ms = min(node.seen_at_ms or 0 for node in silent)
    who = "its node" if len(active) == 1 else f"{len(silent)} of its {len(active)} nodes"
    then = (
        "nothing follows while report-only is latched"
        if report_only
        else "the cloud is asked each pass; the job is recovered elsewhere once that says it has ended, or at "
        f"{_second(since_ms + run_lease_s * MS)}"
    )
    return f"no word from {who} since {_second(since_ms)}: {then}"


def _second(at_ms: int) -> str:
    return to_iso(at_ms // MS * MS)


def job_line(job: Job, placements: Sequence[Placement], reason: str) -> JobLine:
    """Summary of a job and all its placements; `reason` as `told_reason` has it."""
    current = next((p for p in placements if p.id == job.active_placement_id), None)
    current = current or next((p for p in reversed(placements) if p.gone_at_ms is None), None)
    nodes = job.spec.resources.nodes
    wanted = job.spec.resources.gpus
    return JobLine(
        id=job.id,
        name=job.spec.name,
        team=job.spec.team,
        project_id=job.project_id,
        created_by=job.created_by,
        created_at_ms=job.created_at_ms,
        priority=job.spec.priority,
        state=job.state,
        state_since_ms=job.state_since_ms,
        reason=reason,
        gpu=f"{current.offer.gpus}x {current.offer.gpu}"
        if current
        else " | ".join(f"{gpu.count}x {gpu.type}" for gpu in wanted),
        nodes=nodes,
        place=current.offer.key if current else None,
        price_micro_usd_h=current.price_micro_usd_h * nodes if current else None,
        step=job.progress.step if job.progress else None,
        total_steps=job.progress.total_steps if job.progress else None,
        restarts=max(0, len(placements) - 1),
    )


def node_view(node: Node) -> NodeView:
    """What may be shown of a node."""
    shown = {name: getattr(node, name) for name in NodeView.__dataclass_fields__ if name != "phase"}
    return NodeView(**shown, phase=str(node.report.get("phase", "")))


def token_view(token: Token) -> TokenView:
    """What may be shown of a token."""
    return TokenView(**{name: getattr(token, name) for name in TokenView.__dataclass_fields__})
