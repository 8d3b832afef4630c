"""First schema of state."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

INT64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "event",
        sa.Column("seq", INT64, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("at_ms", INT64, nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=True),
        sa.Column("job_id", sa.String(), nullable=True),
        sa.Column("placement_id", sa.String(), nullable=True),
        sa.Column("node_token", sa.String(), nullable=True),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_event")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("event", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_event_job_id"), ["job_id"], unique=False)

    op.create_table(
        "installation",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("created_at_ms", INT64, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_installation")),
    )
    op.create_table(
        "launch",
        sa.Column("id", INT64, nullable=False),
        sa.Column("at_ms", INT64, nullable=False),
        sa.Column("offer_key", sa.String(), nullable=False),
        sa.Column("market", sa.String(), nullable=False),
        sa.Column("ok", sa.Boolean(), nullable=False),
        sa.Column("error", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_launch")),
    )
    with op.batch_alter_table("launch", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_launch_at_ms"), ["at_ms"], unique=False)

    op.create_table(
        "lease",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("epoch", INT64, nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("taken_at_ms", INT64, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lease")),
    )
    op.create_table(
        "pool",
        sa.Column("offer_key", sa.String(), nullable=False),
        sa.Column("empty_until_ms", INT64, nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("offer_key", name=op.f("pk_pool")),
    )
    op.create_table(
        "project",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at_ms", INT64, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_project")),
    )
    op.create_table(
        "switch",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("set_by", sa.String(), nullable=False),
        sa.Column("set_at_ms", INT64, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_switch")),
    )
    op.create_table(
        "job",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at_ms", INT64, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("state_since_ms", INT64, nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("policy", sa.String(), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("active_placement_id", sa.String(), nullable=True),
        sa.Column("progress", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("commit", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("finished_at_ms", INT64, nullable=True),
        sa.Column("idempotency_key", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["project.id"],
            name=op.f("fk_job_project_id"),
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
        sa.UniqueConstraint("project_id", "idempotency_key", name=op.f("uq_job_project_id_idempotency_key")),
    )
    with op.batch_alter_table("job", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_job_created_at_ms"), ["created_at_ms"], unique=False)
        batch_op.create_index(batch_op.f("ix_job_state"), ["state"], unique=False)

    op.create_table(
        "token",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at_ms", INT64, nullable=False),
        sa.Column("revoked_at_ms", INT64, nullable=True),
        sa.Column("last_used_at_ms", INT64, nullable=True),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["project.id"],
            name=op.f("fk_token_project_id"),
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_token")),
        sa.UniqueConstraint("sha256", name=op.f("uq_token_sha256")),
    )
    op.create_table(
        "decision",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("policy_sha256", sa.String(), nullable=False),
        sa.Column("at_ms", INT64, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("acted", sa.Boolean(), nullable=False),
        sa.Column("summary", sa.String(), nullable=False),
        sa.Column("reasons", sa.JSON(), nullable=False),
        sa.Column("alternatives", sa.JSON(), nullable=False),
        sa.Column("target", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("here_micro_usd", INT64, nullable=True),
        sa.Column("saving", sa.Float(), nullable=True),
        sa.Column("holds_since_ms", INT64, nullable=True),
        sa.Column("degraded_quotes", sa.Boolean(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["job.id"], name=op.f("fk_decision_job_id"), initially="DEFERRED", deferrable=True
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["project.id"],
            name=op.f("fk_decision_project_id"),
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_decision")),
    )
    with op.batch_alter_table("decision", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_decision_at_ms"), ["at_ms"], unique=False)
        batch_op.create_index(batch_op.f("ix_decision_job_id_at_ms"), ["job_id", "at_ms"], unique=False)

    op.create_table(
        "hold",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("target_key", sa.String(), nullable=False),
        sa.Column("since_ms", INT64, nullable=False),
        sa.Column("quote_at_ms", INT64, nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["job.id"], name=op.f("fk_hold_job_id"), initially="DEFERRED", deferrable=True
        ),
        sa.PrimaryKeyConstraint("job_id", "policy", name=op.f("pk_hold")),
    )
    op.create_table(
        "placement",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("offer", sa.JSON(), nullable=False),
        sa.Column("price_micro_usd_h", INT64, nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at_ms", INT64, nullable=False),
        sa.Column("decision_id", sa.String(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("state_since_ms", INT64, nullable=False),
        sa.Column("deadline_ms", INT64, nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("replaces", sa.String(), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=True),
        sa.Column("fenced", sa.Boolean(), nullable=False),
        sa.Column("cut", sa.String(), nullable=True),
        sa.Column("verdict", sa.String(), nullable=True),
        sa.Column("ready_at_ms", INT64, nullable=True),
        sa.Column("active_at_ms", INT64, nullable=True),
        sa.Column("training_at_ms", INT64, nullable=True),
        sa.Column("stopped_at_ms", INT64, nullable=True),
        sa.Column("gone_at_ms", INT64, nullable=True),
        sa.Column("resumed_step", INT64, nullable=True),
        sa.Column("resumed_seq", INT64, nullable=True),
        sa.Column("last_step", INT64, nullable=True),
        sa.Column("steps_per_s", sa.Float(), nullable=True),
        sa.Column("drained", sa.Boolean(), nullable=False),
        sa.Column("lost", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["job.id"], name=op.f("fk_placement_job_id"), initially="DEFERRED", deferrable=True
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["project.id"],
            name=op.f("fk_placement_project_id"),
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_placement")),
        sa.UniqueConstraint("job_id", "attempt", name=op.f("uq_placement_job_id_attempt")),
    )
    with op.batch_alter_table("placement", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_placement_created_at_ms"), ["created_at_ms"], unique=False)
        batch_op.create_index(batch_op.f("ix_placement_state"), ["state"], unique=False)

    op.create_table(
        "node",
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("placement_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("cloud", sa.String(), nullable=False),
        sa.Column("region", sa.String(), nullable=False),
        sa.Column("zone", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at_ms", INT64, nullable=False),
        sa.Column("event_seq", INT64, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("state_since_ms", INT64, nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("provider_id", sa.String(), nullable=True),
        sa.Column("address", sa.String(), nullable=True),
        sa.Column("secret_sha256", sa.String(), nullable=True),
        sa.Column("seen_at_ms", INT64, nullable=True),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.Column("billed_from_ms", INT64, nullable=True),
        sa.Column("ended_at_ms", INT64, nullable=True),
        sa.Column("ended_by", sa.String(), nullable=True),
        sa.Column("gone_confirmations", sa.Integer(), nullable=False),
        sa.Column("create_sent_at_ms", INT64, nullable=True),
        sa.Column("delete_sent_at_ms", INT64, nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["job.id"], name=op.f("fk_node_job_id"), initially="DEFERRED", deferrable=True
        ),
        sa.ForeignKeyConstraint(
            ["placement_id"],
            ["placement.id"],
            name=op.f("fk_node_placement_id"),
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["project.id"],
            name=op.f("fk_node_project_id"),
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("token", name=op.f("pk_node")),
    )
    with op.batch_alter_table("node", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_node_job_id"), ["job_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_node_placement_id"), ["placement_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_node_state"), ["state"], unique=False)

    op.create_table(
        "probe_report",
        sa.Column("id", INT64, nullable=False),
        sa.Column("node_token", sa.String(), nullable=False),
        sa.Column("placement_id", sa.String(), nullable=False),
        sa.Column("at_ms", INT64, nullable=False),
        sa.Column("verdict", sa.String(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["node_token"],
            ["node.token"],
            name=op.f("fk_probe_report_node_token"),
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.ForeignKeyConstraint(
            ["placement_id"],
            ["placement.id"],
            name=op.f("fk_probe_report_placement_id"),
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_probe_report")),
    )
    with op.batch_alter_table("probe_report", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_probe_report_node_token"), ["node_token"], unique=False)
        batch_op.create_index(batch_op.f("ix_probe_report_placement_id"), ["placement_id"], unique=False)
