"""Six faults at seeded moments, on both databases; `python -m tests.chaos` does more of them."""

from collections.abc import Iterator
from random import Random

import pytest

from tests.chaos.__main__ import strike
from tests.chaos.stage import Stage, stage
from tests.postgres_server import postgres_bin

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("sqlite") / "chaos", with_postgres=False) as platform:
        yield platform


@pytest.fixture(scope="module")
def on_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if postgres_bin() is None:
        pytest.skip("no PostgreSQL programs (initdb, pg_ctl) on this machine")
    with stage(tmp_path_factory.mktemp("postgres") / "chaos", with_postgres=True) as platform:
        yield platform


@pytest.mark.parametrize("fault", ["engine", "tree", "disk"])
def test_on_sqlite(on_sqlite: Stage, fault: str) -> None:
    print(strike(on_sqlite, f"ci-{fault}", fault, Random(fault)))


@pytest.mark.postgres
@pytest.mark.parametrize("fault", ["worker", "prefect", "mlflow", "postgres"])
def test_on_postgres(on_postgres: Stage, fault: str) -> None:
    print(strike(on_postgres, f"ci-{fault}", fault, Random(fault)))
