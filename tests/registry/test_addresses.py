"""Addresses that cannot be a registry are told in one line, before anything is written."""

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hacpo.registry import Registry
from tests.registry.helpers import (
    refusal,
    submit,
)


def test_a_path_below_a_file_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("")
    assert "choose a folder that is writable" in refusal(f"sqlite:///{tmp_path}/file/registry.db")


@pytest.fixture
def _not_root() -> Iterator[None]:
    """Root may write anywhere."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    yield
    if is_root:
        os.seteuid(0)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder with a registry, where nothing may be written."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Registry.open(f"sqlite:///{folder}/registry.db") as registry:
            submit(registry, "k")
        (folder / "registry.db").chmod(0o444)
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)


@pytest.mark.usefixtures("read_only", "_not_root")
def test_a_folder_that_cannot_be_written_is_told(read_only: Path):
    for path in ("new.db", "new/registry.db"):
        message = refusal(f"sqlite:///{read_only}/{path}")
        assert "Permission denied" in message
        assert message.endswith("choose a folder that is writable")
    message = refusal(f"sqlite:///{read_only}/registry.db")
    assert message.endswith("make the file and its folder writable")


def test_a_file_that_is_no_database_is_told(tmp_path: Path):
    (tmp_path / "registry.db").write_text("not a database, but long enough to have a header" * 50)
    message = refusal(f"sqlite:///{tmp_path}/registry.db")
    assert "file is not a database; it is damaged or something else" in message
    assert str(tmp_path) in message


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("registry.db", "the registry's URL is malformed"),
        ("", "the registry's URL is malformed"),
        ("postgresql://ann:hunter2@host:port/db", "the registry's URL is malformed"),
        ("sqlite://", "a registry in memory cannot be shared"),
        ("sqlite:///:memory:", "a registry in memory cannot be shared"),
        ("mysql://ann:hunter2@host/db", "cannot be kept in 'mysql'"),
    ],
)
def test_a_url_that_cannot_be_a_registry_is_told(url: str, says: str):
    message = refusal(url)
    assert says in message
    assert "write sqlite:///folder/registry.db" in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hunter2@127.0.0.1:1/db",
        "postgres://ann@127.0.0.1:1/db?password=hunter2",
        "postgresql://127.0.0.1:1/db?user=ann&password=hunter2%40",
    ],
)
def test_a_server_that_does_not_answer_is_told_without_the_password(url: str):
    pytest.importorskip("psycopg")
    message = refusal(url)
    assert re.search(r"registry postgresql://.*127\.0\.0\.1:1/db.*refused", message)
    assert "hunter2" not in message
