"""What alembic runs for each command. `broker.store.migrate` gives it the connection and the tables."""

from typing import Any, Literal

from alembic import context
from sqlmodel import AutoString


def short_types(kind: str, item: Any, _autogen: Any) -> str | Literal[False]:
    """Types as a person would write them in a version, without names of ours that may change."""
    if kind == "type" and isinstance(item, AutoString):
        return "sa.String()"
    if kind == "type" and repr(item) == "BigInteger()":
        return "INT64"
    return False


attributes = context.config.attributes
context.configure(
    connection=attributes["connection"],
    target_metadata=attributes["metadata"],
    render_as_batch=True,  # SQLite cannot alter a table in place
    render_item=short_types,
)
with context.begin_transaction():
    context.run_migrations()
