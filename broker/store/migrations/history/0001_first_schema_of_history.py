"""First schema of history."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

INT64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "offer",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("cloud", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("zone", sa.Text(), nullable=False),
        sa.Column("instance_type", sa.Text(), nullable=False),
        sa.Column("market", sa.Text(), nullable=False),
        sa.Column("gpu", sa.Text(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_gib", sa.Integer(), nullable=False),
        sa.Column("interconnect", sa.Text(), nullable=False),
        sa.Column("fabric", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_offer")),
        sa.UniqueConstraint("key", name=op.f("uq_offer_key")),
        sqlite_strict=True,
    )
    op.create_table(
        "poll",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("cloud", sa.Text(), nullable=False),
        sa.Column("started_at_ms", INT64, nullable=False),
        sa.Column("ended_at_ms", INT64, nullable=False),
        sa.Column("ok", sa.Integer(), nullable=False),
        sa.Column("offers", sa.Integer(), nullable=False),
        sa.Column("changes", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_poll")),
        sqlite_strict=True,
    )
    with op.batch_alter_table("poll", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_poll_cloud_started_at_ms"), ["cloud", "started_at_ms"], unique=False
        )

    op.create_table(
        "quarantine",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("offer_key", sa.Text(), nullable=False),
        sa.Column("offer", sa.Text(), nullable=False),
        sa.Column("price_text", sa.Text(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("effective_at_ms", INT64, nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("first_seen_ms", INT64, nullable=False),
        sa.Column("last_seen_ms", INT64, nullable=False),
        sa.Column("times_seen", sa.Integer(), nullable=False),
        sa.Column("released_at_ms", INT64, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_quarantine")),
        sqlite_strict=True,
    )
    with op.batch_alter_table("quarantine", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_quarantine_offer_key_released_at_ms"),
            ["offer_key", "released_at_ms"],
            unique=False,
        )

    op.create_table(
        "source",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_source")),
        sa.UniqueConstraint("name", name=op.f("uq_source_name")),
        sqlite_strict=True,
    )
    op.create_table(
        "price_now",
        sa.Column("offer_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("effective_at_ms", INT64, nullable=False),
        sa.Column("observed_at_ms", INT64, nullable=False),
        sa.Column("price_micro_usd_h", INT64, nullable=False),
        sa.Column("source_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["offer_id"], ["offer.id"], name=op.f("fk_price_now_offer_id")),
        sa.ForeignKeyConstraint(["source_id"], ["source.id"], name=op.f("fk_price_now_source_id")),
        sa.PrimaryKeyConstraint("offer_id", name=op.f("pk_price_now")),
        sqlite_strict=True,
    )
    op.create_table(
        "price_point",
        sa.Column("offer_id", sa.Integer(), nullable=False),
        sa.Column("effective_at_ms", INT64, nullable=False),
        sa.Column("observed_at_ms", INT64, nullable=False),
        sa.Column("price_micro_usd_h", INT64, nullable=False),
        sa.Column("source_id", sa.Integer(), nullable=False),
        sa.CheckConstraint("price_micro_usd_h > 0", name="ck_price_point_positive"),
        sa.ForeignKeyConstraint(["offer_id"], ["offer.id"], name=op.f("fk_price_point_offer_id")),
        sa.ForeignKeyConstraint(["source_id"], ["source.id"], name=op.f("fk_price_point_source_id")),
        sa.PrimaryKeyConstraint("offer_id", "effective_at_ms", "observed_at_ms", name=op.f("pk_price_point")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
