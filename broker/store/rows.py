"""The protocol's rows in a transaction: jobs, placements, nodes, decisions, events. Values in, values out."""

import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeVar, cast

from sqlalchemy import JSON, Boolean, Connection, Insert, Table, Update, bindparam, insert, update
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
from broker.store.fetch import fetch
from broker.store.tables import DecisionRow, EventRow, JobRow, NodeRow, PlacementRow, Row

Saved = Job | Placement | Node
_STATES: dict[type[Saved], type[JobState | PlacementState | NodeState]] = {
    Job: JobState,
    Placement: PlacementState,
    Node: NodeState,
}


@dataclass(frozen=True, eq=False)
class _Shape:
    """A table that every pass reads and writes for every job: past the ORM, which took most of the pass's time.

    Attributes:
        key: Column of the primary key.
        order: Columns.
        final: States that `open_only` leaves out.
    """

    table: Table
    key: str
    order: tuple[str, ...]
    final: tuple[str, ...]

    @cached_property
    def change(self) -> Update:
        """All columns of the row with key `of_key`."""
        return update(self.table).where(self.table.c[self.key] == bindparam("of_key"))

    @cached_property
    def add(self) -> Insert:
        """A new row."""
        return insert(self.table)

    @cached_property
    def columns(self) -> str:
        """Every column in order, for a SELECT: what `_value_of` takes."""
        return ", ".join(f'{self.table.name}."{column.name}"' for column in self.table.columns)

    @cached_property
    def readers(self) -> Sequence[tuple[str, Callable[[Any], Any] | None]]:
        """Every column's name in that order, and what makes a value of what SQLite holds, if it is another."""
        of_type: dict[type[Any], Callable[[Any], Any]] = {JSON: json.loads, Boolean: bool}
        return [(column.name, of_type.get(type(column.type))) for column in self.table.columns]

    @lru_cache(maxsize=64)  # noqa: B019 - there are three of these, for ever
    def query(self, open_only: bool, by: tuple[str, ...]) -> str:
        """Rows whose columns `by` have the values that are bound to their names."""
        open_rows = [f"state NOT IN ({', '.join(map(repr, self.final))})"] * open_only
        where = " AND ".join([*open_rows, *(f'"{name}" = :{name}' for name in by)]) or "1"
        return f"SELECT {self.columns} FROM {self.table.name} WHERE {where} ORDER BY {', '.join(self.order)}"


def _table(row: type[SQLModel]) -> Table:
    return Row.metadata.tables[str(row.__tablename__)]


_SHAPE: dict[type[Saved], _Shape] = {
    Job: _Shape(_table(JobRow), "id", ("created_at_ms", "id"), tuple(s.value for s in JobState if s.final)),
    Placement: _Shape(_table(PlacementRow), "id", ("created_at_ms", "attempt"), (PlacementState.GONE.value,)),
    Node: _Shape(
        _table(NodeRow), "token", ("created_at_ms", "placement_id", "rank"), (NodeState.GONE.value,)
    ),
}

# Job by job, by the index: rows of old jobs are not read.
_BY_REASON = f"""\
SELECT job_id, count(*) FROM placement WHERE substr(reason, 1, :length) = :reason AND job_id IN
  (SELECT id FROM job WHERE state NOT IN ({", ".join(f"'{s.value}'" for s in JobState if s.final)}))
GROUP BY job_id"""

_NEW_EVENT = insert(_table(EventRow))
_NEW_DECISION = insert(_table(DecisionRow))

CAUGHT_UP = "log.caught_up"

S = TypeVar("S", Job, Placement, Node)
V = TypeVar("V", Decision, Event)


class Rows:
    """One transaction. Use it in the thread that opened it, and never across an await.

    Attributes:
        last_emitted: Number of the newest event written in this transaction, or None.
    """

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self.last_emitted: int | None = None

    @cached_property
    def _session(self) -> Session:
        """Made when it is asked for: most transactions do without an ORM."""
        return Session(self._connection, expire_on_commit=False)

    def flush(self) -> None:
        """Send what the session still holds back."""
        if "_session" in self.__dict__:
            self._session.flush()

    def close(self) -> None:
        """Let go of the session; the transaction is somebody else's."""
        if "_session" in self.__dict__:
            self._session.close()

    # -- jobs, placements, nodes ------------------------------------------------------------------------------------

    def jobs(self, *, open_only: bool = False, project_id: str | None = None) -> list[Job]:
        """Jobs, oldest first.

        Args:
            open_only: Leave out those to which nothing more will happen.
        """
        return self._find(Job, open_only, project_id=project_id)

    def job(self, job_id: str) -> Job | None:
        """One job, or None."""
        return next(iter(self._find(Job, id=job_id)), None)

    def job_by_key(self, project_id: str, idempotency_key: str) -> Job | None:
        """The job that was submitted under this key, or None."""
        return next(iter(self._find(Job, project_id=project_id, idempotency_key=idempotency_key)), None)

    def placements(self, *, open_only: bool = False, job_id: str | None = None) -> list[Placement]:
        """Placements, oldest first.

        Args:
            open_only: Leave out those that are gone.
        """
        return self._find(Placement, open_only, job_id=job_id)

    def placement(self, placement_id: str) -> Placement | None:
        """One placement, or None."""
        return next(iter(self._find(Placement, id=placement_id)), None)

    def nodes(
        self, *, open_only: bool = False, job_id: str | None = None, placement_id: str | None = None
    ) -> list[Node]:
        """Nodes by placement and rank.

        Args:
            open_only: Leave out those that are gone.
        """
        return self._find(Node, open_only, job_id=job_id, placement_id=placement_id)

    def nodes_of_open_placements(self) -> list[Node]:
        """Nodes, gone ones too, by placement and rank: everything that the placements that can still change have."""
        found = fetch(self._connection, _of_open_placements())
        return [cast(Node, _value_of(Node, row)) for row in found]

    def placements_that_ended(self, reason: str) -> dict[str, int]:
        """How many placements of each open job have a reason that begins with this; jobs with none are left out."""
        found = fetch(self._connection, _BY_REASON, {"reason": reason, "length": len(reason)})
        return {str(job_id): int(count) for job_id, count in found}

    def node(self, token: str) -> Node | None:
        """One node, or None."""
        return next(iter(self._find(Node, token=token)), None)

    def save(self, value: Saved) -> None:
        """Write a job, a placement or a node: a new row, or the one with its primary key."""
        assert isinstance(value.state, _STATES[type(value)]), value.state
        connection, shape, plain = self._connection, _SHAPE[type(value)], to_plain(value)
        changed = connection.execute(shape.change, plain | {"of_key": plain[shape.key]})
        if changed.rowcount == 0:
            connection.execute(shape.add, plain)

    def segments(self, *, job_id: str | None = None, project_id: str | None = None) -> list[Segment]:
        """Billable stretches by start: of every node whose meter has run, by the cloud's word."""
        by = {"job_id": job_id, "project_id": project_id}
        values = {name: value for name, value in by.items() if value is not None}
        found = fetch(self._connection, _metered(tuple(values)), values)
        return [_segment(cast(Node, _value_of(Node, row[:-1])), _offer(row[-1])) for row in found]

    # -- events and decisions -----------------------------------------------------------------------------------------

    def emit(self, event: Event) -> int:
        """Append an event; returns the number that the store gave it."""
        assert event.seq == 0, "the store numbers events"
        added = self._connection.execute(_NEW_EVENT, to_plain(event) | {"seq": None})
        (number,) = added.inserted_primary_key or (None,)
        assert number is not None
        self.last_emitted = int(number)
        return self.last_emitted

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

    def event(self, seq: int) -> Event | None:
        """One event, or None when there is none of that number."""
        row = self._session.get(EventRow, seq)
        return None if row is None else _value(Event, row)

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
        self._connection.execute(_NEW_DECISION, to_plain(decision))

    def decisions(
        self,
        job_id: str | None = None,
        limit: int = 50,
        *,
        since_ms: int | None = None,
        kind: DecisionKind | None = None,
    ) -> list[Decision]:
        """Decisions, newest first; of one kind, when it is given."""
        query = (
            select(DecisionRow)
            .order_by(col(DecisionRow.at_ms).desc(), col(DecisionRow.id).desc())
            .limit(limit)
        )
        if job_id is not None:
            query = query.where(DecisionRow.job_id == job_id)
        if since_ms is not None:
            query = query.where(DecisionRow.at_ms >= since_ms)
        if kind is not None:
            query = query.where(DecisionRow.kind == kind.value)
        return [_value(Decision, row) for row in self._session.exec(query)]

    def decision(self, decision_id: str) -> Decision | None:
        """One decision, or None."""
        row = self._session.get(DecisionRow, decision_id)
        return None if row is None else _value(Decision, row)

    def _find(self, kind: type[S], open_only: bool = False, /, **by: str | None) -> list[S]:
        """Rows whose columns have these values; None is any."""
        values = {name: value for name, value in by.items() if value is not None}
        query = _SHAPE[kind].query(open_only, tuple(values))
        found = fetch(self._connection, query, values)
        return [cast(S, _value_of(cast(Hashable, kind), row)) for row in found]

    def _merge(self, row: SQLModel) -> None:
        self._session.merge(row)
        self._session.flush()  # `Session.get` does not see what has not been flushed


def _value(kind: type[V], row: SQLModel) -> V:
    plain: dict[str, Any] = row.model_dump()
    return from_plain(kind, plain)


@lru_cache(maxsize=4096)
def _value_of(kind: Any, row: tuple[Any, ...]) -> Saved:
    """What a row says. A pass reads each row several times and most never change, so it is worked out once.

    Values are frozen all the way down by convention: nobody changes a mapping that came out of a row.
    """
    plain = {
        name: each if read is None or each is None else read(each)
        for (name, read), each in zip(_SHAPE[kind].readers, row, strict=True)
    }
    return cast(Saved, from_plain(kind, plain))


@lru_cache(maxsize=1)
def _of_open_placements() -> str:
    node, placement = _SHAPE[Node], _SHAPE[Placement].table.name
    return (
        f"SELECT {node.columns} FROM {node.table.name} "
        f"JOIN {placement} ON {placement}.id = {node.table.name}.placement_id "
        f"WHERE {placement}.state <> '{PlacementState.GONE.value}' "
        f"ORDER BY {placement}.created_at_ms, {placement}.attempt, {node.table.name}.rank"
    )


@lru_cache(maxsize=16)
def _metered(by: tuple[str, ...]) -> str:
    node, placement = _SHAPE[Node], _SHAPE[Placement].table.name
    where = "".join(f" AND {node.table.name}.{name} = :{name}" for name in by)
    return (
        f"SELECT {node.columns}, {placement}.offer FROM {node.table.name} "
        f"JOIN {placement} ON {placement}.id = {node.table.name}.placement_id "
        f"WHERE billed_from_ms IS NOT NULL{where} ORDER BY billed_from_ms, token"
    )


@lru_cache(maxsize=1024)
def _offer(text: str) -> Offer:
    return from_plain(Offer, json.loads(text))


def _segment(node: Node, offer: Offer) -> Segment:
    assert node.billed_from_ms is not None
    return Segment(
        node_token=node.token,
        placement_id=node.placement_id,
        job_id=node.job_id,
        project_id=node.project_id,
        offer=offer,
        started_at_ms=node.billed_from_ms,
        ended_at_ms=node.ended_at_ms,
        ended_by=node.ended_by,
    )
