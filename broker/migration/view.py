"""Rows as the planner sees them, and changes as it wants them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from broker.core.errors import BrokerError
from broker.core.model import Event, Job, JobState, Node, NodeState, Placement, PlacementState
from broker.core.offer import Offer
from broker.migration.effects import Effect
from broker.migration.rules import Rules
from broker.migration.states import check_edge
from broker.wire.messages import Beat, decode

# How the reason of a placement begins on which the job could not be started; counted over the job's life.
START_FAILED = "could not start"
STORE_AWAITED = "waits for its checkpoint store"
# How the reason of a job begins that its policy has ended.
STOPPED = "stopped by policy"


def beat_of(node: Node) -> Beat | None:
    """The agent's last beat, or None before its first."""
    if not node.report:
        return None
    try:
        return decode(Beat, node.report)
    except (ValueError, TypeError, BrokerError):
        # The API validates beats before they are stored; a row written by a newer version may still not decode.
        return None


@dataclass(frozen=True)
class Avoided:
    """An offer that refused, and how far the refusal reaches.

    Attributes:
        scope: ``zone`` (this offer), ``region`` or ``cloud`` (every offer of the same market there).
    """

    offer: Offer
    why: str
    scope: str

    def covers(self, other: Offer) -> bool:
        """Whether `other` is to be avoided too."""
        near = other.cloud == self.offer.cloud and other.market == self.offer.market
        match self.scope:
            case "cloud":
                return near
            case "region":
                return near and other.region == self.offer.region
            case _:
                return other.key == self.offer.key


@dataclass
class Plan:
    """Working copy of the open rows while one pass is planned, and what the pass has decided.

    Every change goes through `job`, `placement` and `node`: they check the edge, stamp the time and write the event,
    so that no rule can forget to.

    Attributes:
        start_failures: By job: how many placements could not start it.
        avoided: Offers that refused in this pass.
        ahead: Why the world is newer than these rows, which then are a restored backup; or None.
    """

    now_ms: int
    rules: Rules
    jobs: dict[str, Job]
    placements: dict[str, Placement]
    nodes: dict[str, Node]
    paused: bool = False
    report_only: bool = False
    start_failures: Mapping[str, int] = field(default_factory=dict)
    avoided: list["Avoided"] = field(default_factory=list)
    ahead: str | None = None
    changed: dict[str, Job | Placement | Node] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        now_ms: int,
        rules: Rules,
        jobs: Iterable[Job],
        placements: Iterable[Placement],
        nodes: Iterable[Node],
        **more: Any,
    ) -> "Plan":
        """A plan over these rows."""
        return cls(
            now_ms,
            rules,
            {j.id: j for j in jobs},
            {p.id: p for p in placements},
            {n.token: n for n in nodes},
            **more,
        )

    def nodes_of(self, placement: Placement) -> list[Node]:
        """The gang, by rank."""
        return sorted(
            (n for n in self.nodes.values() if n.placement_id == placement.id), key=lambda n: n.rank
        )

    def placements_of(self, job: Job) -> list[Placement]:
        """Open placements of a job, oldest first."""
        return sorted((p for p in self.placements.values() if p.job_id == job.id), key=lambda p: p.attempt)

    def job(self, job: Job, state: JobState | None = None, reason: str | None = None, **fields: Any) -> Job:
        """Change a job."""
        after = state or job.state
        check_edge(job.state, after)
        if after != job.state:
            fields |= {"state": after, "state_since_ms": self.now_ms}
            fields["reason"] = reason or job.reason
            if after.final:
                fields["finished_at_ms"] = self.now_ms
            self._event(
                f"job.{after}",
                job_id=job.id,
                project_id=job.project_id,
                before=job.state,
                reason=fields["reason"],
            )
        elif reason is not None:
            fields["reason"] = reason
        new = replace(job, **fields)
        if new == job:
            return job
        self.jobs[job.id] = self.changed[f"job {job.id}"] = new
        return new

    def placement(
        self,
        placement: Placement,
        state: PlacementState | None = None,
        reason: str | None = None,
        **fields: Any,
    ) -> Placement:
        """Change a placement; a new state brings its deadline."""
        after = state or placement.state
        check_edge(placement.state, after)
        if after != placement.state:
            fields |= {
                "state": after,
                "state_since_ms": self.now_ms,
                "deadline_ms": self.rules.deadline_ms(after, self.now_ms),
            }
            fields["reason"] = reason or placement.reason
            self._event(
                f"placement.{after}",
                job_id=placement.job_id,
                placement_id=placement.id,
                project_id=placement.project_id,
                before=placement.state,
                offer=placement.offer.key,
                reason=fields["reason"],
            )
        elif reason is not None:
            fields["reason"] = reason
        new = replace(placement, **fields)
        if new == placement:
            return placement
        self.placements[placement.id] = self.changed[f"placement {placement.id}"] = new
        return new

    def node(
        self, node: Node, state: NodeState | None = None, reason: str | None = None, **fields: Any
    ) -> Node:
        """Change a node."""
        after = state or node.state
        check_edge(node.state, after)
        if after != node.state:
            fields |= {"state": after, "state_since_ms": self.now_ms, "reason": reason or node.reason}
            self._event(
                f"node.{after}",
                job_id=node.job_id,
                placement_id=node.placement_id,
                node_token=node.token,
                project_id=node.project_id,
                before=node.state,
                reason=fields["reason"],
                provider_id=fields.get("provider_id", node.provider_id),
            )
        elif reason is not None:
            fields["reason"] = reason
        new = replace(node, **fields)
        if new == node:
            return node
        self.nodes[node.token] = self.changed[f"node {node.token}"] = new
        return new

    def avoid(self, placement: Placement, why: str, scope: str = "zone") -> None:
        """Take the pool of a placement for empty for a while; `scope` says how far around it."""
        self.avoided.append(Avoided(placement.offer, why, scope))

    def start_failed(self, placement: Placement, error: str) -> Placement:
        """Source, setup or restore failed here. Elsewhere it may work; too often is the job's own fault."""
        job = self.jobs[placement.job_id]
        failures = self.start_failures.get(job.id, 0) + 1
        placement = self.placement(placement, PlacementState.RELEASING, f"{START_FAILED}: {error}", lost=True)
        if failures >= self.rules.start_failures and not job.state.final and job.state != JobState.CANCELLING:
            self.job(
                job,
                JobState.FAILED,
                f"{START_FAILED} on {failures} placements: {error}",
                active_placement_id=None,
            )
        return placement

    def note(self, kind: str, **data: Any) -> None:
        """An event without a change of state."""
        self._event(kind, **data)

    def _event(
        self,
        kind: str,
        *,
        job_id: str | None = None,
        placement_id: str | None = None,
        node_token: str | None = None,
        project_id: str | None = None,
        **data: Any,
    ) -> None:
        shown = {
            name: str(value) if hasattr(value, "value") else value
            for name, value in data.items()
            if value is not None
        }
        self.events.append(
            Event(
                kind=kind,
                at_ms=self.now_ms,
                job_id=job_id,
                placement_id=placement_id,
                node_token=node_token,
                project_id=project_id,
                data=shown,
            )
        )
