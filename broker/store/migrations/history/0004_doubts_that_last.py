"""For how long a reading in quarantine has held, and must: time instead of polls."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

INT64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("quarantine", sa.Column("held_ms", INT64, nullable=False, server_default="0"))
    op.add_column("quarantine", sa.Column("needed_ms", INT64, nullable=True))
    # How long exactly the next poll says; here only that time counts.
    op.execute("UPDATE quarantine SET needed_ms = 43200000 WHERE polls_needed IS NOT NULL")
    op.drop_column("quarantine", "polls_needed")
    op.drop_column("quarantine", "before_micro_usd_h")
