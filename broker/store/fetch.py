"""Queries straight from the driver, for what every pass asks for every job.

Making SQLAlchemy's result object takes four times as long as such a query.
"""

import sqlite3
from collections.abc import Mapping
from typing import Any, cast

from sqlalchemy import Connection


def fetch(
    connection: Connection, statement: str, values: Mapping[str, object] | None = None
) -> list[tuple[Any, ...]]:
    """All rows of a query, in the connection's transaction.

    Raises:
        DBAPIError: as from SQLAlchemy, or what its listeners make of it: after an error it asks once more itself.
    """
    driver = cast(sqlite3.Connection, connection.connection.driver_connection)
    try:
        return driver.execute(statement, values or {}).fetchall()
    except sqlite3.Error:
        return [tuple(row) for row in connection.exec_driver_sql(statement, dict(values or {}))]
