"""Where problems come from, how a set is identified, and which of them a step works on."""

import hashlib
import json
import random
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from hacpo.errors import DataError
from hacpo.places import data_folder
from hacpo.problems import arithmetic
from hacpo.problems.gym import PREFIX, gym_problems
from hacpo.problems.jsonl import read_problems
from hacpo.problems.sums import sum_splits
from hacpo.types import Problem

EMBEDDED = ("embedded:train", "embedded:held_out")
SUMS = ("sums:train", "sums:held_out")
DATA = "data:"


def load_problems(spec: str) -> list[Problem]:
    """Problems of a named set (`embedded:train`, `sums:held_out`, `reasoning_gym:NAME:train`), of
    a file in the data folder (`data:math_train.jsonl`) or of a JSONL file, in order.

    Raises:
        DataError: unknown name, or a file that cannot be used (see `read_problems`).
        ConfigError: reasoning-gym is not installed.
    """
    if spec.startswith(PREFIX):
        return gym_problems(spec)
    if spec in EMBEDDED:
        sums = arithmetic.splits()[EMBEDDED.index(spec)]
        return [arithmetic.problem_of(numbers) for numbers in sums]
    if spec in SUMS:
        return list(sum_splits()[SUMS.index(spec)])
    if spec.startswith(("embedded:", "sums:")):
        known = ", ".join((*EMBEDDED, *SUMS))
        raise DataError(f"unknown problems {spec!r}: choose {known} or a JSONL file")
    if spec.startswith(DATA):
        return _in_data_folder(spec.removeprefix(DATA))
    return read_problems(Path(spec).expanduser())


def _in_data_folder(name: str) -> list[Problem]:
    path = data_folder() / name
    if not path.is_file():
        raise DataError(
            f"{path}: no such file; `hacpo data fetch all` gets the paper's from the hub, or set "
            "HACPO_DATA to a folder that has it"
        )
    return read_problems(path)


def problems_digest(problems: Sequence[Problem]) -> str:
    """sha256 over ids, texts and answers in order: equal digests are the same data."""
    digest = hashlib.sha256()
    for problem in problems:
        fields = [problem.id, problem.problem, problem.answer]
        digest.update(json.dumps(fields, ensure_ascii=True).encode() + b"\n")
    return digest.hexdigest()


def check_disjoint(train: Sequence[Problem], held_out: Sequence[Problem]) -> None:
    """Refuse held-out problems that are also trained on; texts count, not only ids.

    Raises:
        DataError: how many are shared, with one example.
    """
    texts = {plain_text(problem.problem): problem.id for problem in train}
    shared = [problem for problem in held_out if plain_text(problem.problem) in texts]
    if shared:
        first = shared[0]
        raise DataError(
            f"{len(shared)} of {len(held_out)} held-out problems are also in the train set, such "
            f"as {first.id!r} (train id {texts[plain_text(first.problem)]!r}); remove them from one"
        )


def check_enough(name: str, count: int, per_step: int) -> None:
    """Refuse a training set smaller than one step.

    Raises:
        DataError: how many there are and how many a step takes.
    """
    if count < per_step:
        raise DataError(
            f"{name}: {count} usable problems, but a step takes {per_step}: "
            "lower update.problems_per_step or add problems"
        )


def step_problems(
    problems: Sequence[Problem], step: int, per_step: int, seed: int
) -> list[Problem]:
    """The problems of one step, a pure function of (seed, step).

    Each epoch is its own permutation of all problems, cut into whole steps; what is left at the
    end of an epoch is dropped.

    Raises:
        DataError: fewer problems than one step needs.
    """
    check_enough("train", len(problems), per_step)
    steps_per_epoch = len(problems) // per_step
    epoch, index = divmod(step, steps_per_epoch)
    order = _permutation(len(problems), seed, epoch)
    return [problems[i] for i in order[index * per_step : (index + 1) * per_step]]


@lru_cache(maxsize=8)
def _permutation(count: int, seed: int, epoch: int) -> tuple[int, ...]:
    order = list(range(count))
    random.Random(f"problems {seed} {epoch}").shuffle(order)
    return tuple(order)


def plain_text(text: str) -> str:
    """The text without differences of white space."""
    return " ".join(text.split())
