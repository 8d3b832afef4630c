"""Bring a database to this release's schema, in one transaction, when it is opened.

Two databases, two lines of versions: ``migrations/state`` and ``migrations/history``. A new version is written with

    python -m broker.store.migrate state "what changes"

which compares the tables in code with a fresh database and leaves a file to read and correct.
"""

import sys
import tempfile
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, MetaData
from sqlalchemy.exc import DatabaseError

from broker.core.errors import BrokerError
from broker.store.engines import migration_engine
from broker.store.prices import METADATA as HISTORY
from broker.store.tables import Row

METADATA: dict[str, MetaData] = {"state": Row.metadata, "history": HISTORY}
_FOLDER = Path(__file__).parent / "migrations"


def config(database: str) -> Config:
    """Alembic's configuration for ``state`` or ``history``; there is no ini file."""
    made = Config()
    made.set_main_option("script_location", str(_FOLDER))
    made.set_main_option("version_locations", str(_FOLDER / database))
    made.set_main_option("path_separator", "newline")
    made.attributes["metadata"] = METADATA[database]
    return made


def migrate(path: Path, database: str) -> None:
    """Upgrade the file to the newest version that this code knows; nothing happens when it is there already.

    Raises:
        BrokerError: the file is damaged, or was written by a newer release.
    """
    engine = migration_engine(path)
    try:
        made = config(database)
        _refuse_damaged(engine, path, database)
        _refuse_newer(engine, made, path)
        # One transaction for all versions: SQLite's DDL is transactional as long as nobody commits in between, so a
        # crash leaves the old schema and not half of the new one.
        with engine.begin() as connection:
            made.attributes["connection"] = connection
            command.upgrade(made, "head")
    finally:
        engine.dispose()


def is_current(path: Path, database: str) -> bool:
    """Whether the file has the newest schema that this code knows. Changes nothing."""
    engine = migration_engine(path)
    try:
        with engine.connect() as connection:
            current = MigrationContext.configure(connection).get_current_revision()
    finally:
        engine.dispose()
    return current == ScriptDirectory.from_config(config(database)).get_current_head()


def _refuse_damaged(engine: Engine, path: Path, database: str) -> None:
    """Find out before anything is written into it that a file has been truncated or overwritten.

    The state is small and read whole; of a history, which may be large, only the schema is read.
    """
    question = "PRAGMA quick_check(1)" if database == "state" else "SELECT 'ok' FROM sqlite_master LIMIT 1"
    try:
        with engine.connect() as connection:
            answer = connection.exec_driver_sql(question).scalar()
    except DatabaseError as error:
        answer = str(error.orig)
    if answer not in ("ok", None):
        raise BrokerError(
            f"{path} is damaged ({answer}); move it away and restore a backup (docs/how-to/backup.md)"
        )


def _refuse_newer(engine: Engine, made: Config, path: Path) -> None:
    with engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    known = {script.revision for script in ScriptDirectory.from_config(made).walk_revisions()}
    if current is not None and current not in known:
        raise BrokerError(
            f"{path} was written by a newer broker (schema {current}); install that version again, "
            f"or move the file away to start from an empty one"
        )


def _write_version(database: str, message: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fresh.db"
        migrate(path, database)
        engine = migration_engine(path)
        with engine.begin() as connection:
            made = config(database)
            made.attributes["connection"] = connection
            number = len(list((_FOLDER / database).glob("*.py"))) + 1
            command.revision(made, message, autogenerate=True, rev_id=f"{number:04d}")
        engine.dispose()


if __name__ == "__main__":
    _write_version(sys.argv[1], sys.argv[2])
