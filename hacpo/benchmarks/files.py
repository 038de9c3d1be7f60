"""Where the files of benchmarks lie, and reading one."""

import os
from pathlib import Path

from hacpo.benchmarks.catalogue import ProblemSet
from hacpo.errors import DataError
from hacpo.places import home
from hacpo.problems.jsonl import read_problems
from hacpo.types import Problem


def data_folder(given: Path | None = None) -> Path:
    """The folder of problem files: the one given, else HACPO_DATA, else `home()/data`."""
    if given is not None:
        return given
    named = os.environ.get("HACPO_DATA")
    return Path(named).expanduser() if named else home() / "data"


def read_set(each: ProblemSet, folder: Path) -> list[Problem]:
    """The problems of a benchmark or training set, in the order of its file.

    Raises:
        DataError: no such file, or one that cannot be used.
    """
    path = folder / each.file
    if not path.is_file():
        stand_in = folder / "aime24.jsonl"
        other = ", or take aime24" if each.name == "aime25" and stand_in.is_file() else ""
        raise DataError(
            f"{path}: no such file; `hacpo data fetch {each.name}` gets it from the hub, --data or "
            f"HACPO_DATA names a folder that has it{other}"
        )
    return read_problems(path)
