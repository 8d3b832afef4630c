"""Queries that go past SQLAlchemy behave as those that do not."""

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from broker.store.engines import open_engines
from broker.store.fetch import fetch


@pytest.fixture
def engines(tmp_path):
    made = open_engines(tmp_path / "some.db", synchronous="NORMAL")
    with made.writer.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE some (n INTEGER)")
    yield made
    made.dispose()


def test_a_fetch_is_part_of_its_transaction(engines):
    with engines.writer.begin() as connection:
        connection.exec_driver_sql("INSERT INTO some VALUES (7)")
        assert fetch(connection, "SELECT n FROM some") == [(7,)]
        connection.rollback()
    with engines.reader.begin() as connection:
        assert fetch(connection, "SELECT n FROM some") == []


def test_a_reader_sees_one_moment(engines):
    with engines.reader.begin() as reader:
        assert fetch(reader, "SELECT n FROM some") == []
        with engines.writer.begin() as writer:
            writer.exec_driver_sql("INSERT INTO some VALUES (1)")
        assert fetch(reader, "SELECT n FROM some") == []


def test_an_error_is_the_one_that_callers_know(engines):
    with engines.reader.begin() as connection, pytest.raises(OperationalError, match="no such table"):
        fetch(connection, "SELECT n FROM other")


def test_listeners_hear_of_it(engines):
    heard = []
    event.listen(engines.reader, "handle_error", lambda context: heard.append(context.statement))
    with engines.reader.begin() as connection, pytest.raises(OperationalError):
        fetch(connection, "SELECT n FROM other WHERE n = :n", {"n": 1})
    assert heard == ["SELECT n FROM other WHERE n = :n"]
