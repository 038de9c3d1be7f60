"""One-digit sums for pretrained models: `3 + 4`, answer `7`.

Both orders of two numbers are on the same side, so that no held-out problem is a trained one read
backwards. 75 problems to train on, 25 held out.
"""

import hashlib
from functools import lru_cache

from hacpo.types import Problem

HELD_OUT_DOUBLES = 3
HELD_OUT_PAIRS = 11
"""Each is two problems: 3 + 2 x 11 = 25."""

Pair = tuple[int, int]


@lru_cache(maxsize=1)
def sum_splits() -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """All hundred sums as (train, held out), the same on every machine."""
    doubles = sorted(((n, n) for n in range(10)), key=_hash)
    pairs = sorted(((a, b) for a in range(10) for b in range(a + 1, 10)), key=_hash)
    held_out = {*doubles[:HELD_OUT_DOUBLES], *pairs[:HELD_OUT_PAIRS]}
    train: list[Problem] = []
    kept: list[Problem] = []
    for first in range(10):
        for second in range(10):
            is_held_out = (min(first, second), max(first, second)) in held_out
            (kept if is_held_out else train).append(_problem(first, second))
    return tuple(train), tuple(kept)


def _problem(first: int, second: int) -> Problem:
    return Problem(
        id=f"{first}+{second}", problem=f"{first} + {second}", answer=str(first + second)
    )


def _hash(pair: Pair) -> str:
    """The smallest are held out."""
    return hashlib.sha256(f"held out sum {pair[0]}+{pair[1]}".encode()).hexdigest()
