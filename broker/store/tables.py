"""Tables of ``state.db``, column by column the dataclasses of `broker.core.model`; nested values are JSON.

Every row that a person causes carries `project_id` and `created_by`. Times are ms since 1970, money is micro-USD.
Rows never leave this package: `broker.store.rows` converts them.
"""

from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, Index, Integer, MetaData, UniqueConstraint
from sqlmodel import Field, SQLModel

# SQLite's batch migrations and PostgreSQL's ALTER both need every constraint to have a name.
NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}

# SQLite numbers rows by themselves only in a column that is spelled INTEGER.
Int64 = BigInteger().with_variant(Integer(), "sqlite")

Json = dict[str, Any]


def _ms(**options: Any) -> Any:
    return Field(sa_type=Int64, **options)


class Row(SQLModel):
    """Base of all tables of ``state.db``, with their own metadata."""

    metadata: ClassVar[MetaData] = MetaData(naming_convention=NAMING)


class ProjectRow(Row, table=True):
    """A team's own space: jobs, tokens and money belong to one."""

    __tablename__ = "project"

    id: str = Field(primary_key=True)
    created_by: str
    created_at_ms: int = _ms()


class TokenRow(Row, table=True):
    """A bearer token, by its hash."""

    __tablename__ = "token"

    name: str = Field(primary_key=True)
    role: str
    project_id: str = Field(foreign_key="project.id")
    sha256: str = Field(unique=True)
    created_by: str
    created_at_ms: int = _ms()
    revoked_at_ms: int | None = _ms(default=None)
    last_used_at_ms: int | None = _ms(default=None)


class JobRow(Row, table=True):
    """See `broker.core.model.Job`."""

    __tablename__ = "job"
    __table_args__ = (UniqueConstraint("project_id", "idempotency_key"),)

    id: str = Field(primary_key=True)
    spec: Json = Field(sa_type=JSON)
    project_id: str = Field(foreign_key="project.id")
    created_by: str
    created_at_ms: int = _ms(index=True)
    state: str = Field(index=True)
    state_since_ms: int = _ms()
    reason: str
    policy: str | None
    generation: int
    active_placement_id: str | None
    progress: Json | None = Field(sa_type=JSON(none_as_null=True))
    commit: Json | None = Field(sa_type=JSON(none_as_null=True))
    exit_code: int | None
    finished_at_ms: int | None = _ms()
    idempotency_key: str | None


class PlacementRow(Row, table=True):
    """See `broker.core.model.Placement`."""

    __tablename__ = "placement"
    __table_args__ = (UniqueConstraint("job_id", "attempt"),)

    id: str = Field(primary_key=True)
    job_id: str = Field(foreign_key="job.id")
    attempt: int
    offer: Json = Field(sa_type=JSON)
    price_micro_usd_h: int = _ms()
    purpose: str
    project_id: str = Field(foreign_key="project.id")
    created_by: str
    created_at_ms: int = _ms(index=True)
    decision_id: str | None
    state: str = Field(index=True)
    state_since_ms: int = _ms()
    deadline_ms: int | None = _ms()
    reason: str
    replaces: str | None
    generation: int | None
    fenced: bool
    cut: str | None
    verdict: str | None
    ready_at_ms: int | None = _ms()
    active_at_ms: int | None = _ms()
    training_at_ms: int | None = _ms()
    stopped_at_ms: int | None = _ms()
    gone_at_ms: int | None = _ms()
    resumed_step: int | None = _ms()
    resumed_seq: int | None = _ms()
    last_step: int | None = _ms()
    steps_per_s: float | None
    drained: bool
    lost: bool


class NodeRow(Row, table=True):
    """See `broker.core.model.Node`."""

    __tablename__ = "node"

    token: str = Field(primary_key=True)
    placement_id: str = Field(foreign_key="placement.id", index=True)
    job_id: str = Field(foreign_key="job.id", index=True)
    rank: int
    cloud: str
    region: str
    zone: str
    project_id: str = Field(foreign_key="project.id")
    created_by: str
    created_at_ms: int = _ms()
    event_seq: int = _ms()
    state: str = Field(index=True)
    state_since_ms: int = _ms()
    reason: str
    provider_id: str | None
    address: str | None
    secret_sha256: str | None
    seen_at_ms: int | None = _ms()
    report: Json = Field(sa_type=JSON)
    billed_from_ms: int | None = _ms()
    ended_at_ms: int | None = _ms()
    ended_by: str | None
    gone_confirmations: int
    create_sent_at_ms: int | None = _ms()
    delete_sent_at_ms: int | None = _ms()


class DecisionRow(Row, table=True):
    """See `broker.core.model.Decision`. Keeps the quotes that it saw."""

    __tablename__ = "decision"
    __table_args__ = (Index(None, "job_id", "at_ms"),)

    id: str = Field(primary_key=True)
    job_id: str = Field(foreign_key="job.id")
    project_id: str = Field(foreign_key="project.id")
    policy: str
    policy_sha256: str
    at_ms: int = _ms(index=True)
    kind: str
    acted: bool
    summary: str
    reasons: list[Any] = Field(sa_type=JSON)
    alternatives: list[Any] = Field(sa_type=JSON)
    target: Json | None = Field(sa_type=JSON(none_as_null=True))
    here_micro_usd: int | None = _ms()
    saving: float | None
    holds_since_ms: int | None = _ms()
    degraded_quotes: bool
    created_by: str


class EventRow(Row, table=True):
    """See `broker.core.model.Event`. Append-only; a number is never given twice, whatever is deleted."""

    __tablename__ = "event"
    __table_args__: ClassVar[Any] = ({"sqlite_autoincrement": True},)

    seq: int | None = _ms(default=None, primary_key=True)
    kind: str
    at_ms: int = _ms()
    actor: str
    project_id: str | None
    job_id: str | None = Field(index=True)
    placement_id: str | None
    node_token: str | None
    data: Json = Field(sa_type=JSON)


class HoldRow(Row, table=True):
    """Since when a policy has wanted the same move for a job."""

    __tablename__ = "hold"

    job_id: str = Field(primary_key=True, foreign_key="job.id")
    policy: str = Field(primary_key=True)
    target_key: str
    since_ms: int = _ms()
    quote_at_ms: int = _ms()


class PoolRow(Row, table=True):
    """A pool that refused a launch: taken for empty until then."""

    __tablename__ = "pool"

    offer_key: str = Field(primary_key=True)
    empty_until_ms: int = _ms()
    reason: str


class LaunchRow(Row, table=True):
    """One launch and whether it got a node: our own measure of obtainability."""

    __tablename__ = "launch"

    id: int | None = _ms(default=None, primary_key=True)
    at_ms: int = _ms(index=True)
    offer_key: str
    market: str
    ok: bool
    error: str


class ProbeReportRow(Row, table=True):
    """What the probe said of a node."""

    __tablename__ = "probe_report"

    id: int | None = _ms(default=None, primary_key=True)
    node_token: str = Field(foreign_key="node.token", index=True)
    placement_id: str = Field(foreign_key="placement.id", index=True)
    at_ms: int = _ms()
    verdict: str
    report: Json = Field(sa_type=JSON)


class SwitchRow(Row, table=True):
    """``paused`` and ``report_only``: who set it, and why."""

    __tablename__ = "switch"

    name: str = Field(primary_key=True)
    value: bool
    reason: str
    set_by: str
    set_at_ms: int = _ms()


class LeaseRow(Row, table=True):
    """Who may write: one row. A write under an older epoch is refused."""

    __tablename__ = "lease"

    id: int = Field(primary_key=True)
    epoch: int = _ms()
    holder: str
    taken_at_ms: int = _ms()


class InstallationRow(Row, table=True):
    """The name of this broker, made once; every node that it rents is tagged with it."""

    __tablename__ = "installation"

    id: str = Field(primary_key=True)
    created_at_ms: int = _ms()


# One transaction may write a job, its placement and its nodes in any order; the references are checked at commit.
for _table in Row.metadata.tables.values():
    for _constraint in _table.foreign_key_constraints:
        _constraint.deferrable = True
        _constraint.initially = "DEFERRED"
