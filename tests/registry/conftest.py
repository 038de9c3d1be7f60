"""One contract, two databases: every test that takes `registry` or `url` runs on both."""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hacpo.registry import Registry
from tests.registry.helpers import FakeClock

POSTGRES_VARIABLE = "HACPO_TEST_POSTGRES_URL"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place without a registry; on PostgreSQL a schema of its own in the server's database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/registry.db"
        return
    server = os.environ.get(POSTGRES_VARIABLE)
    if not server:
        pytest.skip(f"{POSTGRES_VARIABLE} is not set (postgresql://user@host:port/postgres)")
    import psycopg

    schema = f"hacpo_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    yield f"{server}?options=-csearch_path%3D{schema}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def registry(url: str, clock: FakeClock) -> Iterator[Registry]:
    with Registry.open(url, clock=clock) as opened:
        yield opened


@pytest.fixture
def take(registry: Registry) -> Callable[..., object]:
    """Claim as holder `first`, for 60 seconds."""

    def claim(holder: str = "first", **options: object) -> object:
        return registry.claim(holder, host="box", pid=7, **options)  # type: ignore[arg-type]

    return claim
