"""Getting problem sets from the Hugging Face hub as JSONL files of id, problem and answer."""

import json
import logging
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hacpo.benchmarks.catalogue import Hub, ProblemSet
from hacpo.benchmarks.damage import repaired
from hacpo.errors import DataError
from hacpo.ledger import atomic_path
from hacpo.problems.jsonl import read_problems
from hacpo.verifiers.boxed import last_boxed

Row = dict[str, Any]


def fetch(each: ProblemSet, folder: Path) -> Path:
    """Download one set and write its file, whole or not at all; an older file is replaced.

    LaTeX commands that were decoded to control characters (`\\frac` to a form feed and `rac`) are
    repaired.

    Raises:
        DataError: the hub is out of reach, or has other columns or counts than expected.
        StorageError: the folder cannot be written.
    """
    if each.hub is None:
        raise DataError(f"{each.name}: has no place on the hub; put {each.file} into {folder}")
    texts = [_problem(each, row) for row in _download(each.name, each.hub)]
    counts = sorted({source.count for source in each.sources})
    if len(texts) not in counts:
        expected = " or ".join(map(str, counts))
        raise DataError(
            f"{each.name}: the hub's {each.hub.id} has {len(texts)} problems, expected {expected}; "
            "it has changed, nothing was written"
        )
    stem = Path(each.file).stem
    path = folder / each.file
    with atomic_path(path) as temporary:
        with temporary.open("w", encoding="utf-8") as file:
            for index, (problem, answer) in enumerate(texts):
                row = {"id": f"{stem}-{index}", "problem": problem, "answer": answer}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        try:
            read_problems(temporary)  # what could not be used must not take the name
        except DataError as error:
            reason = str(error).removeprefix(str(temporary)).strip()
            raise DataError(
                f"{each.name}: what the hub's {each.hub.id} holds cannot be used: {reason}"
            ) from None
    return path


def _download(name: str, hub: Hub) -> Iterable[Row]:
    import datasets  # type: ignore[import-untyped]

    datasets.disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # a line for each of its retries
    rows: list[Row] = []
    for config in hub.configs:
        try:
            rows += datasets.load_dataset(
                hub.id,
                None if config == "default" else config,
                split=hub.split,
                revision=hub.revision,
            )
        except Exception as error:  # its own kinds, the hub's, the network's
            reason = " ".join(str(error).split())[:160]
            raise DataError(
                f"{name}: {hub.id} is not to be had from the hub ({type(error).__name__}: "
                f"{reason}); check the connection, or copy the file into the data folder"
            ) from None
    return rows


def _problem(each: ProblemSet, row: Row) -> tuple[str, str]:
    """(problem, answer) of one row of the hub."""
    try:
        problem, answer = _READ[each.name](row)
    except (KeyError, TypeError, IndexError) as error:
        raise DataError(
            f"{each.name}: the hub's rows have other columns than expected ({error!r}): "
            f"{', '.join(row)}"
        ) from None
    return repaired(problem), repaired(answer)


def _as_text(value: object) -> str:
    """An answer; 27.0 is 27."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _plain(row: Row) -> tuple[str, str]:
    return row["problem"], _as_text(row["answer"])


def _question(row: Row) -> tuple[str, str]:
    return row["question"], _as_text(row["answer"])


def _math(row: Row) -> tuple[str, str]:
    answer = last_boxed(row["solution"])
    if answer is None:  # a few solutions end in `\boxed 2`
        answer = re.findall(r"\\boxed\s+([^\s$]+)", row["solution"])[-1]
    return row["problem"], answer


def _gsm8k(row: Row) -> tuple[str, str]:
    return row["question"], row["answer"].rpartition("####")[2].strip().replace(",", "")


def _olympiad(row: Row) -> tuple[str, str]:
    return row["question"], ",".join(_as_text(answer) for answer in row["final_answer"])


def _aime24(row: Row) -> tuple[str, str]:
    return row["Problem"], _as_text(row["Answer"])


_READ: dict[str, Callable[[Row], tuple[str, str]]] = {
    "math500": _plain,
    "math": _math,
    "math_train": _math,
    "gsm8k": _gsm8k,
    "gsm8k_train": _gsm8k,
    "aime25": _plain,
    "aime24": _aime24,
    "amc23": _question,
    "minerva": _question,
    "olympiad": _olympiad,
}
