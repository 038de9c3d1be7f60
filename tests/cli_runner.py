"""Running the `hacpo` command in tests: in this process, or what its own process needs."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from hacpo.cli import main

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-c", "from hacpo.cli import main; main()"]


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Cli = Callable[..., Done]


def isolated_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A HACPO_HOME of the test's own, not yet created, and none of the developer's settings."""
    for name in ("HACPO_REGISTRY_URL", "HACPO_DEBUG", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HACPO_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def in_process(capsys: pytest.CaptureFixture[str]) -> Cli:
    def call(*arguments: str) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(list(arguments))
        out, err = capsys.readouterr()
        return Done(int(end.value.code or 0), out, err)

    return call


def environment() -> dict[str, str]:
    """For a process of its own, whatever its working directory."""
    return os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
