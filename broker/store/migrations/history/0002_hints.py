"""What clouds say about obtaining an offer; polls of several kinds."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

INT64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "hint",
        sa.Column("offer_key", sa.Text(), nullable=False),
        sa.Column("signal", sa.Text(), nullable=False),
        sa.Column("low", sa.REAL(), nullable=False),
        sa.Column("high", sa.REAL(), nullable=False),
        sa.Column("observed_at_ms", INT64, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("offer_key", "signal", name=op.f("pk_hint")),
        sqlite_with_rowid=False,
        sqlite_strict=True,
    )
    op.add_column("poll", sa.Column("kind", sa.Text(), server_default="prices", nullable=False))
