"""The connection: SQLite and PostgreSQL made to behave alike, transactions, time, the schema."""

import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, inspect, select, text
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from hacpo.errors import RegistryError
from hacpo.registry.address import explain, parse, shown
from hacpo.registry.models import SCHEMA

logger = logging.getLogger(__name__)

Clock = Callable[[], datetime]

BUSY_SECONDS = 30
"""How long a writer waits for SQLite's one write lock."""
VERSION_TABLE = "registry_version"
_WRITERS_LOCK = 7_203_141_001  # any number that other programs in the same server do not use


class Database:
    """One registry's database, open.

    Args:
        url: as a person writes it.
        clock: replaces the time of the database's machine; for tests.
    Raises:
        RegistryError: from here and from every transaction.
    """

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self.url = parse(url)
        self.name = shown(self.url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self._clock = clock
        self.patience = 0.0
        try:
            self._engine = make_engine(self.url)
        except ModuleNotFoundError as error:
            if error.name != "psycopg":
                raise
            raise RegistryError(
                f"registry {self.name} needs psycopg: pip install 'psycopg[binary]'"
            ) from None
        except SQLAlchemyError as error:
            raise explain(self.url, error) from None

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """One transaction that never waits for writers."""
        with self._errors(), self._begun(write=False) as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction that is committed at the end, or rolled back on any exception.

        SQLite takes its write lock at once: a lock taken only at the first write lets two processes
        read the same state first.
        """
        with self._errors(), self._begun(write=True) as connection:
            yield connection

    @contextlib.contextmanager
    def _begun(self, *, write: bool) -> Iterator[Connection]:
        """A transaction; while the database is away, wait up to `patience` seconds for it."""
        deadline = time.monotonic() + self.patience
        with contextlib.ExitStack() as stack:
            for attempt in itertools.count():
                try:
                    connection = stack.enter_context(self._engine.connect())
                    connection = connection.execution_options(hacpo_write=write)
                    stack.enter_context(connection.begin())
                    break
                except OperationalError as error:
                    stack.close()
                    if time.monotonic() > deadline:
                        raise
                    if attempt == 0:
                        logger.warning("%s; waiting for it", explain(self.url, error))
                    time.sleep(min(5.0, 0.2 * 2**attempt))
            yield connection

    def one_writer(self, connection: Connection) -> None:
        """Make the other callers of this wait until the transaction ends; SQLite does so anyway."""
        if not self.is_sqlite:
            connection.execute(select(func.pg_advisory_xact_lock(_WRITERS_LOCK)))

    def now(self, connection: Connection) -> datetime:
        """The one clock of everyone who shares the registry: SQLite's machine, or the server's."""
        if self._clock is not None:
            return self._clock()
        if self.is_sqlite:
            return datetime.now(UTC)
        server: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
        return server.astimezone(UTC)

    def schema(self, connection: Connection) -> str | None:
        """The revision of the tables, None if there are none.

        Raises:
            RegistryError: a newer schema, or a database that holds something else.
        """
        tables = inspect(connection).get_table_names()
        if VERSION_TABLE not in tables:
            if tables:
                raise RegistryError(
                    f"{self.name} holds other tables ({', '.join(sorted(tables)[:3])}, ...): "
                    "give the registry a database of its own"
                )
            return None
        found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one()
        if found > SCHEMA:  # both are numbers of four digits
            raise RegistryError(
                f"registry {self.name} has schema {found}, newer than this code's {SCHEMA}: "
                "upgrade hacpo"
            )
        return str(found)

    def prepare(self) -> None:
        """Create the tables of a new registry, upgrade an older one, refuse a newer one."""
        if self.is_sqlite and self._is_new_file():
            current = None
        else:
            with self.reading() as connection:
                current = self.schema(connection)
        if current != SCHEMA:
            from hacpo.registry.upgrade import upgrade  # loads Alembic, which is not free

            with self._errors():
                upgrade(self)

    def close(self) -> None:
        self._engine.dispose()

    def _is_new_file(self) -> bool:
        path = Path(self.url.database or "")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return not path.exists() or path.stat().st_size == 0
        except OSError as error:
            raise RegistryError(
                f"registry {self.name}: {error.strerror}: {error.filename}; "
                "choose a folder that is writable"
            ) from None

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise explain(self.url, error) from None


def make_engine(url: URL, *, foreign_keys: bool = True) -> Engine:
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS, "isolation_level": None})
        enforce = "ON" if foreign_keys else "OFF"
        event.listen(engine, "connect", lambda raw, _: _prepare_sqlite(raw, enforce))
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    engine = create_engine(
        url,
        pool_size=2,
        pool_pre_ping=True,  # a connection may have idled through a restart of the server
        connect_args={"connect_timeout": 10, "application_name": "hacpo"},
    )
    event.listen(engine, "connect", lambda raw, _: _prepare_postgres(raw))
    return engine


def _prepare_postgres(raw: Any) -> None:
    """PostgreSQL would compile what states mean for over a second, to run it for milliseconds."""
    raw.autocommit = True
    raw.execute("SET jit = off")
    raw.autocommit = False


def _prepare_sqlite(raw: Any, enforce: str) -> None:
    raw.execute(f"PRAGMA foreign_keys={enforce}")
    raw.execute("PRAGMA synchronous=NORMAL")  # with WAL: safe against crashes of the process


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get("hacpo_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
