"""Reading the file of a benchmark or of a set to train on."""

from pathlib import Path

from hacpo.benchmarks.catalogue import ProblemSet
from hacpo.errors import DataError
from hacpo.problems.jsonl import read_problems
from hacpo.types import Problem


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
