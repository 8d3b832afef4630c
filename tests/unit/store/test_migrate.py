"""The schema in the files is the schema in the code, from empty and from every version."""

import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from broker.core.errors import BrokerError, SettingsError
from broker.store.engines import migration_engine, open_engines
from broker.store.migrate import METADATA, config, migrate
from broker.store.state import StateStore
from tests.clocks import CountingIds, ManualClock

DATABASES = ("state", "history")


@pytest.mark.parametrize("database", DATABASES)
def test_migrated_schema_is_the_one_in_code(tmp_path: Path, database: str):
    path = tmp_path / "x.db"
    migrate(path, database)
    migrate(path, database)  # again is nothing
    engine = migration_engine(path)
    with engine.begin() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA[database]) == []
    engine.dispose()


@pytest.mark.parametrize("database", DATABASES)
def test_tables_are_created_as_declared(tmp_path: Path, database: str):
    """What comparing cannot see: STRICT, WITHOUT ROWID, AUTOINCREMENT, CHECK and deferred references."""
    migrated, declared = tmp_path / "migrated.db", tmp_path / "declared.db"
    migrate(migrated, database)
    engine = migration_engine(declared)
    METADATA[database].create_all(engine)
    engine.dispose()

    def tables(path: Path) -> dict[str, list[str]]:
        with sqlite3.connect(path) as connection:
            rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        shape = {name: sorted("".join(sql.split()).replace(",", "")) for name, sql in rows}
        return {
            name: sql for name, sql in shape.items() if name not in ("alembic_version", "sqlite_sequence")
        }

    assert tables(migrated) == tables(declared)


@pytest.mark.parametrize("database", DATABASES)
def test_versions_are_one_line(database: str):
    scripts = ScriptDirectory.from_config(config(database))
    assert len(scripts.get_heads()) == 1
    assert len(scripts.get_bases()) == 1


def test_a_database_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path):
    path = tmp_path / "state.db"
    StateStore.open(path, ManualClock(), CountingIds()).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    for _ in range(2):  # the lock was let go
        with pytest.raises(BrokerError, match=r"written by a newer broker \(schema 9999\)"):
            StateStore.open(path, ManualClock(), CountingIds())


def test_a_migration_that_fails_leaves_the_old_schema(tmp_path: Path):
    path = tmp_path / "state.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE probe_report (id INTEGER)")  # in the way of the last table of 0001
    with pytest.raises(Exception, match="probe_report already exists"):
        migrate(path, "state")
    with sqlite3.connect(path) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert names == ["probe_report"]


@pytest.mark.parametrize(("synchronous", "number"), [("FULL", 2), ("NORMAL", 1)])
def test_engines_are_set_up_as_measured(tmp_path: Path, synchronous: str, number: int):
    engines = open_engines(tmp_path / "x.db", synchronous=synchronous)
    with engines.writer.begin() as connection:
        found = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]
        assert found == ["wal", number, 1, 5000]
    engines.dispose()


def test_a_path_that_is_no_place_for_a_database(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"cannot open .*/file/state\.db"):
        open_engines(tmp_path / "file" / "state.db", synchronous="FULL")
