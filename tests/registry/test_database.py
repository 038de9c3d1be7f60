import json
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from hacpo.errors import RegistryError
from hacpo.registry import Registry, upgrade
from hacpo.registry import database as database_module
from hacpo.registry.address import explain
from hacpo.registry.database import VERSION_TABLE, Database
from hacpo.registry.models import SCHEMA, Base, Measure, UtcDateTime
from hacpo.registry.upgrade import alembic_config
from hacpo.types import ProblemScore
from tests.registry.helpers import (
    FakeClock,
    in_processes,
    open_and_count,
    refusal,
    submit,
    summary,
)

FIRST_SCHEMA = Path(__file__).parent.parent / "data" / "registry_0001.db"
NEXT_MIGRATION = f"""
import sqlalchemy as sa
from alembic import op

revision = "9001"
down_revision = "{SCHEMA}"


def upgrade():
    with op.batch_alter_table("cell", recreate="auto") as batch:
        batch.add_column(sa.Column("note", sa.String(), nullable=False, server_default="none"))
        batch.alter_column("label", existing_type=sa.String(), nullable=True)
"""


def in_threads(work: Callable[[], object]) -> list[Exception]:
    """Do it three times at once; what went wrong."""
    wrong: list[Exception] = []

    def attempt() -> None:
        try:
            work()
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=attempt) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def test_the_migrations_make_exactly_the_tables_of_the_models(registry, url: str):
    database = Database(url)
    with database.reading() as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Base.metadata) == []
        script = ScriptDirectory.from_config(alembic_config(connection))
        assert script.get_current_head() == SCHEMA
    database.close()


def test_reopening_keeps_what_is_there_and_does_not_load_alembic(registry, url: str):
    submit(registry, "k")
    code = (
        "import sys; from hacpo.registry import Registry\n"
        "with Registry.open(sys.argv[1]) as r: print(r.sweeps()[0].counts.queued)\n"
        "print([m for m in ('alembic', 'torch', 'mlflow', 'prefect') if m in sys.modules])"
    )
    started = time.perf_counter()
    shown = subprocess.run(
        [sys.executable, "-c", code, url], capture_output=True, text=True, check=True
    )
    print(f"a status in {time.perf_counter() - started:.2f} s")
    assert shown.stdout.split("\n")[:2] == ["1", "[]"]


def test_the_package_loads_no_torch_mlflow_prefect_or_alembic():
    code = (
        "import sys, hacpo.registry\n"
        "sys.exit(any(m in sys.modules for m in ('alembic', 'torch', 'mlflow', 'prefect')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_newer_schema_is_refused(registry, url: str):
    database = Database(url)
    with database.writing() as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '0999'"))
    database.close()
    assert refusal(url).endswith(f"has schema 0999, newer than this code's {SCHEMA}: upgrade hacpo")


def test_an_older_schema_is_upgraded_and_keeps_its_rows(
    registry, take, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    submit(registry, "k")
    registry.record_step(take(), summary(0, {"a": 0.5, "b": 0.5}))
    newer = tmp_path / "migrations"
    shutil.copytree(upgrade.MIGRATIONS, newer, ignore=shutil.ignore_patterns("__pycache__"))
    (newer / "versions" / "9001_next.py").write_text(NEXT_MIGRATION)
    monkeypatch.setattr(upgrade, "MIGRATIONS", newer)
    for module in (upgrade, database_module):
        monkeypatch.setattr(module, "SCHEMA", "9001")

    assert in_threads(lambda: Registry.open(url).close()) == []

    with Registry.open(url) as reopened:
        assert reopened.sweep("sweep").cells[0].agents["a"].reward == 0.5
        assert len(reopened.step_rows("k")) == 2
    database = Database(url)
    with database.reading() as connection:
        columns = {column["name"] for column in sa.inspect(connection).get_columns("cell")}
    database.close()
    assert "note" in columns


def test_a_database_of_the_first_schema_is_upgraded_with_its_data(url: str, tmp_path: Path):
    old = sqlite3.connect(f"file:{FIRST_SCHEMA}?mode=ro", uri=True)
    if url.startswith("sqlite"):
        shutil.copy(FIRST_SCHEMA, Database(url).url.database or "")
    else:
        copy_into(url, old)
    with Registry.open(url, clock=FakeClock()) as registry:
        old_sweep, over = registry.sweep("old"), registry.sweep("over")
        assert [cell.state for cell in old_sweep.cells] == ["done", "failed", "running", "queued"]
        assert (old_sweep.priority, old_sweep.owner, old_sweep.wanted) == (3, "ann", "run")
        assert [cell.gpus for cell in old_sweep.cells] == [1, 1, 1, 1]
        assert {row.task: row.mean for row in registry.evaluations("over") if row.step} == {
            "held_out": 0.75
        }
        assert registry.problem_scores(
            "k1", agent="a", step=2, task="held_out", protocol="avg@2"
        ) == [
            ProblemScore(problem_id="p2", scores=[1.0, 0.0]),
            ProblemScore(problem_id="p1", scores=[0.0, 0.0]),
        ]
        detail = registry.cell("k1")
        assert [run.prefect_flow_run_id for run in detail.runs] == ["f-1"]
        assert [row.path for row in detail.checkpoints] == ["/runs/k1/2"]
        assert detail.cell.agents["b"].mlflow_run_id == "m-b"
        assert [row.rollouts_consumed for row in registry.costs("old")] == [256]
        # What had ended before is no news; what goes on works as ever.
        assert [news.sweep.name for news in registry.news()] == ["old"]
        assert over.state == "done"
        claim = registry.claim("new", host="box", pid=1)
        assert claim is not None
        assert claim.cell_key == "k4"
        registry.finish(claim)
    old.close()


def copy_into(url: str, old: sqlite3.Connection) -> None:
    """PostgreSQL at the first schema, with the rows of the SQLite file."""
    database = Database(url)
    with database.writing() as connection:
        command.upgrade(alembic_config(connection), "0001")
        tables = sa.MetaData()
        tables.reflect(connection)
        for table in tables.sorted_tables:
            if table.name == VERSION_TABLE:
                continue
            columns = {column.name: column.type for column in table.columns}
            rows = old.execute(f"SELECT {', '.join(columns)} FROM {table.name}").fetchall()
            for row in rows:
                values = {
                    name: converted(value, columns[name])
                    for name, value in zip(columns, row, strict=True)
                }
                connection.execute(sa.insert(table).values(**values))
            if "id" in columns:
                sequence = f"pg_get_serial_sequence('{table.name}', 'id')"
                connection.execute(
                    sa.text(f"SELECT setval({sequence}, (SELECT max(id) FROM {table.name}))")
                )
    database.close()


def converted(value: object, kind: sa.types.TypeEngine[Any]) -> object:
    """SQLite keeps times and JSON as text."""
    if isinstance(value, str) and isinstance(kind, sa.DateTime):
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    if isinstance(value, str) and isinstance(kind, sa.JSON):
        return json.loads(value)
    return value


def test_an_unknown_older_schema_is_refused(registry, url: str):
    database = Database(url)
    with database.writing() as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '0000'"))
    database.close()
    assert "cannot be upgraded: Can't locate revision identified by '0000'" in refusal(url)


def test_a_database_of_something_else_is_refused_and_left_alone(url: str):
    database = Database(url)
    with database.writing() as connection:
        connection.execute(sa.text("CREATE TABLE experiments (id INTEGER)"))
    assert "holds other tables (experiments, ...)" in refusal(url)
    with database.reading() as connection:
        assert sa.inspect(connection).get_table_names() == ["experiments"]
    database.close()


def test_several_processes_may_open_a_new_registry_at_once(url: str):
    assert in_processes(4, open_and_count, url) == [0] * 4


def test_threads_share_one_registry(registry: Registry, take):
    submit(registry, *(f"k{number}" for number in range(20)))
    claimed: list[str] = []

    def work() -> None:
        while claim := take():
            registry.heartbeat(claim)
            claimed.append(claim.cell_key)

    assert in_threads(work) == []
    assert len(claimed) == len(set(claimed)) == 20


def test_without_a_clock_the_database_tells_the_time(url: str):
    before = datetime.now(UTC) - timedelta(seconds=5)
    with Registry.open(url) as registry:
        submit(registry, "k")
        created = registry.sweeps()[0].created
    assert created.tzinfo is UTC
    assert before < created < datetime.now(UTC) + timedelta(seconds=5)


def test_times_are_stored_in_utc_and_naive_ones_are_refused():
    column, dialect = UtcDateTime(), sa.create_engine("sqlite://").dialect
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert column.process_bind_param(noon, dialect) == datetime(2026, 1, 1, 10, tzinfo=UTC)
    read = column.process_result_value(datetime(2026, 1, 1, 10), dialect)
    assert read == noon
    assert read.tzinfo is UTC
    with pytest.raises(ValueError, match="no time zone"):
        column.process_bind_param(datetime(2026, 1, 1), dialect)


def test_nan_is_null_in_the_database():
    column, dialect = Measure(), sa.create_engine("sqlite://").dialect
    assert column.process_bind_param(float("nan"), dialect) is None
    assert column.process_bind_param(0.0, dialect) == 0.0


def test_sqlite_folders_are_made_and_readers_do_not_wait_for_writers(tmp_path: Path):
    path = tmp_path / "new" / "folder" / "registry.db"
    with Registry.open(f"sqlite:///{path}") as registry:
        submit(registry, "k")
        with sqlite3.connect(path, isolation_level=None) as writer:
            assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            writer.execute("BEGIN IMMEDIATE")
            started = time.perf_counter()
            assert len(registry.sweep("sweep").cells) == 1
            assert time.perf_counter() - started < 5
        writer.close()


def test_the_name_of_an_open_registry_hides_the_password():
    pytest.importorskip("psycopg")
    database = Database("postgresql://postgres:postgres@host/db")
    assert database.name == "postgresql://postgres:***@host/db"


def test_an_error_of_the_database_is_one_line_and_rolls_back(registry, take, clock):
    submit(registry, "k")
    claim = take()
    clock.advance(30)
    broken = {"rollouts_generated": None, "rollouts_consumed": 1, "tokens": 1, "device_seconds": 1}
    with pytest.raises(RegistryError, match="rollouts_generated") as caught:
        registry.record_cost(claim, "a", **broken)
    assert "\n" not in str(caught.value)
    assert registry.sweep("sweep").cells[0].heartbeat_age == 30  # its renewal is undone too


def test_an_interrupted_transaction_leaves_nothing(registry: Registry):
    submit(registry, "first")

    def delete_and_stop() -> None:
        with registry._database.writing() as connection:
            connection.execute(sa.text("DELETE FROM sweep_cell"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        delete_and_stop()
    assert len(registry.sweep("sweep").cells) == 1


def test_a_password_in_a_drivers_message_is_hidden():
    url = sa.make_url("postgresql://ann:hunter2@host/db")
    for told in ("cannot reach ann:hunter2@host", "bad conninfo password=hunter2 host=host"):
        error = sa.exc.OperationalError("SELECT 1", {}, Exception(told))
        assert "hunter2" not in str(explain(url, error))
        assert "***" in str(explain(url, error)).partition("host/db")[2]
