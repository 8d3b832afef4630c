"""Whose machines are ours, read off a state database without opening it as a daemon does."""

import sqlite3
from contextlib import closing
from pathlib import Path


def installation_of(database: Path) -> str | None:
    """The installation id in a ``state.db``, also beside a daemon that has it open; None where there is none to read."""
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            row = connection.execute("SELECT id FROM installation").fetchone()
    except sqlite3.Error:
        return None
    return None if row is None else str(row[0])
