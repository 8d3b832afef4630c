"""What a reading in quarantine replaces, and how many polls must say so before it is believed."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

INT64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("quarantine", sa.Column("polls_needed", sa.Integer(), nullable=True))
    op.add_column("quarantine", sa.Column("before_micro_usd_h", INT64, nullable=True))
