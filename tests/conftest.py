"""Fixtures of more than one folder."""

from pathlib import Path

import pytest

from tests.cli_runner import Cli, in_process, isolated_home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A HACPO_HOME of the test's own, not yet created."""
    return isolated_home(tmp_path, monkeypatch)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """The `hacpo` command in this process."""
    return in_process(capsys)
