"""The protocol's rows in a transaction: jobs, placements, nodes, decisions, events. Values in, values out."""

from typing import Any, TypeVar

from sqlmodel import Session, SQLModel, col, func, select

from broker.core.model import (
    Decision,
    DecisionKind,
    Event,
    Job,
    JobState,
    Node,
    NodeState,
    Placement,
    PlacementState,
    Segment,
)
from broker.core.offer import Offer
from broker.core.plain import from_plain, to_plain
from broker.core.ports import Clock
from broker.store.tables import DecisionRow, EventRow, JobRow, NodeRow, PlacementRow

Saved = Job | Placement | Node
_TABLE: dict[type[Saved], type[SQLModel]] = {Job: JobRow, Placement: PlacementRow, Node: NodeRow}
_STATES: dict[type[Saved], type[JobState | PlacementState | NodeState]] = {
    Job: JobState,
    Placement: PlacementState,
    Node: NodeState,
}
_OPEN_JOBS = [state.value for state in JobState if not state.final]

CAUGHT_UP = "log.caught_up"

V = TypeVar("V", Job, Placement, Node, Decision, Event)


class Rows:
    """One transaction. Use it in the thread that opened it, and never across an await.

    Attributes:
        last_emitted: Number of the newest event written in this transaction, or None.
    """

    def __init__(self, session: Session, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self.last_emitted: int | None = None

    # -- jobs, placements, nodes ------------------------------------------------------------------------------------

    def jobs(self, *, open_only: bool = False, project_id: str | None = None) -> list[Job]:
        """Jobs, oldest first.

        Args:
            open_only: Leave out those to which nothing more will happen.
        """
        query = select(JobRow).order_by(col(JobRow.created_at_ms), col(JobRow.id))
        if open_only:
            query = query.where(col(JobRow.state).in_(_OPEN_JOBS))
        if project_id is not None:
            query = query.where(JobRow.project_id == project_id)
        return [_value(Job, row) for row in self._session.exec(query)]

    def job(self, job_id: str) -> Job | None:
        """One job, or None."""
        row = self._session.get(JobRow, job_id)
        return None if row is None else _value(Job, row)

    def job_by_key(self, project_id: str, idempotency_key: str) -> Job | None:
        """The job that was submitted under this key, or None."""
        query = select(JobRow).where(
            JobRow.project_id == project_id, JobRow.idempotency_key == idempotency_key
        )
        row = self._session.exec(query).one_or_none()
        return None if row is None else _value(Job, row)

    def placements(self, *, open_only: bool = False, job_id: str | None = None) -> list[Placement]:
        """Placements, oldest first.

        Args:
            open_only: Leave out those that are gone.
        """
        query = select(PlacementRow).order_by(col(PlacementRow.created_at_ms), col(PlacementRow.attempt))
        if open_only:
            query = query.where(PlacementRow.state != PlacementState.GONE.value)
        if job_id is not None:
            query = query.where(PlacementRow.job_id == job_id)
        return [_value(Placement, row) for row in self._session.exec(query)]

    def placement(self, placement_id: str) -> Placement | None:
        """One placement, or None."""
        row = self._session.get(PlacementRow, placement_id)
        return None if row is None else _value(Placement, row)

    def nodes(
        self, *, open_only: bool = False, job_id: str | None = None, placement_id: str | None = None
    ) -> list[Node]:
        """Nodes by placement and rank.

        Args:
            open_only: Leave out those that are gone.
        """
        query = select(NodeRow).order_by(
            col(NodeRow.created_at_ms), col(NodeRow.placement_id), col(NodeRow.rank)
        )
        if open_only:
            query = query.where(NodeRow.state != NodeState.GONE.value)
        if job_id is not None:
            query = query.where(NodeRow.job_id == job_id)
        if placement_id is not None:
            query = query.where(NodeRow.placement_id == placement_id)
        return [_value(Node, row) for row in self._session.exec(query)]

    def node(self, token: str) -> Node | None:
        """One node, or None."""
        row = self._session.get(NodeRow, token)
        return None if row is None else _value(Node, row)

    def save(self, value: Saved) -> None:
        """Write a job, a placement or a node: a new row, or the one with its primary key."""
        assert isinstance(value.state, _STATES[type(value)]), value.state
        self._merge(_TABLE[type(value)](**to_plain(value)))

    def segments(self, *, job_id: str | None = None, project_id: str | None = None) -> list[Segment]:
        """Billable stretches by start: of every node whose meter has run, by the cloud's word."""
        query = (
            select(NodeRow, PlacementRow)
            .join(PlacementRow, col(PlacementRow.id) == col(NodeRow.placement_id))
            .where(col(NodeRow.billed_from_ms).is_not(None))
            .order_by(col(NodeRow.billed_from_ms), col(NodeRow.token))
        )
        if job_id is not None:
            query = query.where(NodeRow.job_id == job_id)
        if project_id is not None:
            query = query.where(NodeRow.project_id == project_id)
        return [_segment(_value(Node, node), placement) for node, placement in self._session.exec(query)]

    # -- events and decisions -----------------------------------------------------------------------------------------

    def emit(self, event: Event) -> int:
        """Append an event; returns the number that the store gave it."""
        assert event.seq == 0, "the store numbers events"
        row = EventRow(**to_plain(event) | {"seq": None})
        self._session.add(row)
        self._session.flush()
        assert row.seq is not None
        self.last_emitted = row.seq
        return row.seq

    def events(
        self, after: int = 0, job_id: str | None = None, limit: int = 1000, *, project_id: str | None = None
    ) -> list[Event]:
        """Events with a number above `after`, in order, at most `limit`."""
        query = select(EventRow).where(col(EventRow.seq) > after).order_by(col(EventRow.seq)).limit(limit)
        if job_id is not None:
            query = query.where(EventRow.job_id == job_id)
        if project_id is not None:
            query = query.where(EventRow.project_id == project_id)
        return [_value(Event, row) for row in self._session.exec(query)]

    def event_kind(self, seq: int) -> str | None:
        """Kind of one event, or None when there is none of that number."""
        row = self._session.get(EventRow, seq)
        return None if row is None else row.kind

    def caught_up_to(self) -> int:
        """Number of the last `catch_up`; 0 when there has been none."""
        newest = select(func.max(EventRow.seq)).where(EventRow.kind == CAUGHT_UP)
        return self._session.exec(newest).one() or 0

    def catch_up(self, seq: int, actor: str) -> int:
        """Go on numbering events above `seq`: a restored database leaves out what it does not know.

        Returns:
            Number of the event that says so; every event of the world that was left out has a lower one.
        """
        number = max(seq, self.last_seq() + 1)
        event = Event(CAUGHT_UP, self._clock.now_ms(), actor, data={"after": self.last_seq()}, seq=number)
        self._session.add(EventRow(**to_plain(event)))
        self._session.flush()
        self.last_emitted = number
        return number

    def last_seq(self) -> int:
        """Number of the newest event; 0 when there is none. A tag above it unmasks a restored database."""
        return self._session.exec(select(func.max(EventRow.seq))).one() or 0

    def save_decision(self, decision: Decision) -> None:
        """Keep an answer with the quotes that it saw."""
        assert isinstance(decision.kind, DecisionKind), decision.kind
        self._merge(DecisionRow(**to_plain(decision)))

    def decisions(
        self, job_id: str | None = None, limit: int = 50, *, since_ms: int | None = None
    ) -> list[Decision]:
        """Decisions, newest first."""
        query = (
            select(DecisionRow)
            .order_by(col(DecisionRow.at_ms).desc(), col(DecisionRow.id).desc())
            .limit(limit)
        )
        if job_id is not None:
            query = query.where(DecisionRow.job_id == job_id)
        if since_ms is not None:
            query = query.where(DecisionRow.at_ms >= since_ms)
        return [_value(Decision, row) for row in self._session.exec(query)]

    def decision(self, decision_id: str) -> Decision | None:
        """One decision, or None."""
        row = self._session.get(DecisionRow, decision_id)
        return None if row is None else _value(Decision, row)

    def _merge(self, row: SQLModel) -> None:
        self._session.merge(row)
        self._session.flush()  # `Session.get` does not see what has not been flushed


def _value(kind: type[V], row: SQLModel) -> V:
    plain: dict[str, Any] = row.model_dump()
    return from_plain(kind, plain)


def _segment(node: Node, placement: PlacementRow) -> Segment:
    assert node.billed_from_ms is not None
    return Segment(
        node_token=node.token,
        placement_id=node.placement_id,
        job_id=node.job_id,
        project_id=node.project_id,
        offer=from_plain(Offer, placement.offer),
        started_at_ms=node.billed_from_ms,
        ended_at_ms=node.ended_at_ms,
        ended_by=node.ended_by,
    )
