"""Creating and upgrading the tables through Alembic; the only module that imports it.

`python -m hacpo.registry.upgrade "what changes"` drafts the next migration from models.py;
set `models.SCHEMA` to its number.
"""

import contextlib
import fcntl
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection

from hacpo.errors import RegistryError
from hacpo.registry.database import Database, make_engine
from hacpo.registry.models import SCHEMA

MIGRATIONS = Path(__file__).with_name("migrations")


def upgrade(database: Database) -> None:
    """Bring the tables to this code's schema; of several processes one does it, the others wait."""
    with _alone(database) as connection:
        if database.schema(connection) != SCHEMA:
            try:
                command.upgrade(alembic_config(connection), "head")
            except CommandError as error:
                raise RegistryError(
                    f"registry {database.name} cannot be upgraded: {error}"
                ) from None
            if database.is_sqlite:
                broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
                assert not broken, f"the migration broke references: {broken[:3]}"


def alembic_config(connection: Connection) -> Config:
    """What an alembic.ini would say; `migrations/env.py` takes the connection from it."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


@contextlib.contextmanager
def _alone(database: Database) -> Iterator[Connection]:
    """A writing transaction that no other upgrade overlaps.

    On SQLite without enforcement of foreign keys, since changing a table there means to drop and
    rebuild it.
    """
    if not database.is_sqlite:
        with database.writing() as connection:
            database.one_writer(connection)
            yield connection
        return
    with _locked_file(database):
        engine = make_engine(database.url, foreign_keys=False)
        try:
            with engine.connect() as connection:
                connection = connection.execution_options(hacpo_write=True)
                raw = connection.connection.driver_connection
                assert raw is not None
                raw.execute("PRAGMA journal_mode=WAL")  # refused inside a transaction
                with connection.begin():
                    yield connection
        finally:
            engine.dispose()


@contextlib.contextmanager
def _locked_file(database: Database) -> Iterator[None]:
    """Hold REGISTRY.lock: SQLite does not wait when two processes turn to WAL at once."""
    path = Path(f"{database.url.database}.lock")
    try:
        handle = path.open("w")
    except OSError as error:
        raise RegistryError(
            f"registry {database.name}: {error.strerror}: {path}; choose a folder that is writable"
        ) from None
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def draft_migration(message: str) -> None:
    """Write the next numbered migration, from the difference of a new database to models.py."""
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{folder}/registry.db")
        with _alone(database) as connection:
            config = alembic_config(connection)
            command.upgrade(config, "head")
            command.revision(config, message, autogenerate=True, rev_id=f"{int(SCHEMA) + 1:04d}")


if __name__ == "__main__":
    draft_migration(sys.argv[1])
