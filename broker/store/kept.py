"""Answers of a database that are kept until somebody has written into it, whichever process that was."""

import sqlite3
from collections.abc import Callable
from threading import Lock
from typing import TypeVar, cast

from sqlalchemy import Engine

T = TypeVar("T")


class Kept:
    """Asked in every pass and at every request, while a poll changes them once in minutes.

    ``PRAGMA data_version`` on a connection of our own differs when any other one has committed
    (https://sqlite.org/pragma.html#pragma_data_version). It is asked before the read: what is committed in between is
    seen at once and read again, and nothing old is ever kept for new.

    What is handed out is shared: nobody may change it.
    """

    def __init__(self, reader: Engine) -> None:
        self._connection = reader.raw_connection()
        self._driver = cast(sqlite3.Connection, self._connection.driver_connection)
        self._lock = Lock()
        self._answers: dict[str, tuple[int, object]] = {}

    def get(self, name: str, read: Callable[[], T]) -> T:
        """The kept answer, or what `read` says now."""
        with self._lock:
            version = int(self._driver.execute("PRAGMA data_version").fetchone()[0])
            kept = self._answers.get(name)
            if kept is None or kept[0] != version:
                kept = version, read()
                self._answers[name] = kept
        return cast(T, kept[1])

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()
