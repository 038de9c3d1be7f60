"""Tasks of the package reasoning-gym by name: `reasoning_gym:chain_sum:train?size=500&max_terms=2`.

`size` is the number of problems; the other options are the task's own, as JSON values. Which split
a problem belongs to is decided by its text, so splits share none, whatever their sizes; beside
that their seeds lie far apart. A problem's id names the item (`chain_sum?max_terms=2#10000017`),
so that whoever scores an answer can make the item again.
"""

import hashlib
import inspect
import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlencode

from hacpo.errors import DataError
from hacpo.extras import require
from hacpo.types import Problem

PREFIX = "reasoning_gym:"
DEFAULT_SIZE = 1000
FIRST_SEEDS = {"train": 0, "held_out": 10_000_000}
"""Item i of a dataset is made from seed + i: nearer ones would be the same items, shifted."""
HELD_OUT_OF = 4
"""Every fourth text, by its hash, is held out."""
_CANDIDATES = 50
"""Items tried for each one wanted, before the task is said to have too few."""


def gym_problems(spec: str) -> list[Problem]:
    """The distinct problems of one split, the same on every machine.

    Raises:
        ConfigError: the package is not installed.
        DataError: an unknown task, split or option, or fewer distinct problems than `size`.
    """
    require("reasoning_gym", f"problems {spec!r}")
    name, split, size, options = _parsed(spec)
    problems: list[Problem] = []
    seen: set[str] = set()
    for seed, item in _items(spec, name, options, FIRST_SEEDS[split], size * _CANDIDATES):
        text = str(item["question"])
        plain = " ".join(text.split())
        if plain in seen or _is_held_out(plain) != (split == "held_out"):
            continue
        seen.add(plain)
        answer = item["answer"]
        problems.append(
            Problem(
                id=f"{_task(name, options)}#{seed}",
                problem=text,
                answer="any that fits" if answer is None else str(answer),
            )
        )
        if len(problems) == size:
            return problems
    raise DataError(
        f"problems {spec!r}: only {len(problems)} distinct ones were found; write "
        f"size={len(problems)} or less, or give the task a wider range"
    )


def item_of(identity: str) -> tuple[str, Any, dict[str, Any]]:
    """(task, data set with `score_answer`, item) of a problem's id.

    Raises:
        ValueError: it is no id of `gym_problems`.
    """
    task, mark, seed = identity.rpartition("#")
    if not mark or not seed.isdecimal():
        raise ValueError(f"{identity!r:.60} is no problem of reasoning_gym")
    return task.partition("?")[0], *_item(task, int(seed))


@lru_cache(maxsize=4096)
def _item(task: str, seed: int) -> tuple[Any, dict[str, Any]]:
    name, _, query = task.partition("?")
    dataset = _dataset(task, name, _options(task, query), seed, 1)
    return dataset, dataset[0]


def _parsed(spec: str) -> tuple[str, str, int, dict[str, Any]]:
    head, _, query = spec.removeprefix(PREFIX).partition("?")
    name, _, split = head.rpartition(":")
    if split not in FIRST_SEEDS:
        raise DataError(
            f"problems {spec!r}: write {PREFIX}NAME:train or {PREFIX}NAME:held_out, then ?options"
        )
    options = _options(spec, query)
    size = options.pop("size", DEFAULT_SIZE)
    if not isinstance(size, int) or not 1 <= size <= 1_000_000:
        raise DataError(f"problems {spec!r}: size is {size!r}, not a number from 1 to 1000000")
    if "seed" in options:
        raise DataError(f"problems {spec!r}: the seed is the split's; remove it")
    return name, split, size, options


def _options(spec: str, query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise DataError(f"problems {spec!r}: write options as ?size=500&key=value") from None
    for key, value in pairs:
        try:
            options[key] = json.loads(value)
        except ValueError:
            options[key] = value
    return options


def _task(name: str, options: dict[str, Any]) -> str:
    query = urlencode({key: json.dumps(options[key]) for key in sorted(options)})
    return f"{name}?{query}" if query else name


def _items(
    spec: str, name: str, options: dict[str, Any], first: int, count: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(seed, item), each made as a data set of its own, as `item_of` makes it again."""
    _dataset(spec, name, options, first, 1)
    for seed in range(first, first + count):
        yield seed, _dataset(spec, name, options, seed, 1)[0]


def _dataset(spec: str, name: str, options: dict[str, Any], seed: int, size: int) -> Any:
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    if name not in DATASETS:
        raise DataError(
            f"problems {spec!r}: reasoning_gym has no task {name!r}; it has "
            f"{', '.join(sorted(DATASETS))}"
        )
    known = set(inspect.signature(DATASETS[name][1]).parameters) - {"seed", "size"}
    for key in options:
        if key not in known:
            raise DataError(
                f"problems {spec!r}: {name} has no option {key!r}; it has "
                f"{', '.join(sorted(known))} and size"
            )
    try:
        return reasoning_gym.create_dataset(name, seed=seed, size=size, **options)
    except (AssertionError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"problems {spec!r}: {name} refuses its options: {reason}") from None


def _is_held_out(text: str) -> bool:
    return hashlib.sha256(f"held out {text}".encode()).digest()[0] % HELD_OUT_OF == 0
