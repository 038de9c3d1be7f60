"""The embedded agents as recipes: small models that are pre-trained on first use.

Each writes solutions of `hacpo.problems.arithmetic`, carelessly at a rate of its own for each
operator: that share of its answers is wrong, and what one agent forgets another remembers. Their
tokenizers differ too. This module is data; `hacpo.models.pretrain` carries it out.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Literal

from hacpo.errors import DataError
from hacpo.problems import arithmetic

RECIPE_VERSION = 1
"""Raised by hand when a change of the code changes the agents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that decides an embedded agent's weights and tokenizer."""

    architecture: Literal["llama", "gpt2"]
    width: int
    layers: int
    heads: int = 4
    intermediate: int
    initializer_range: float = 0.09
    """About width ** -0.5: such narrow models learn twice as fast from there as from 0.02."""
    tokenizer: Literal["characters", "digit_pairs", "merges"]
    merges: str = ""
    """Two-character tokens in order of merging, separated by spaces."""
    careless_additions: float
    careless_subtractions: float
    batches: int = 300
    batch_rows: int = 48
    """Half of them additions."""
    learning_rate: float = 3e-3
    warmup: int = 20
    final_rate: float = 0.05
    """Share of the learning rate that is left at the end of its linear decay."""
    max_grad_norm: float = 1.0
    seed: int = 0


EMBEDDED = {
    "a": Recipe(
        architecture="llama",
        width=128,
        layers=2,
        intermediate=384,
        tokenizer="characters",
        careless_additions=0.30,
        careless_subtractions=0.97,
    ),
    "b": Recipe(
        architecture="llama",
        width=160,
        layers=3,
        intermediate=480,
        tokenizer="digit_pairs",
        careless_additions=0.97,
        careless_subtractions=0.30,
    ),
    "c": Recipe(
        architecture="gpt2",
        width=128,
        layers=2,
        intermediate=512,
        tokenizer="merges",
        # learned once with tokenizers' BpeTrainer from solutions, half of them careless
        merges=(
            ",0 0= ,1 1= 3- 4- 9- 2- 7- 6- 5- 8- 1- 1+ 2+ 3+ "
            "4+ 5+ 6+ 9+ 7+ 8+ #7 #6 #4 #8 #1 #2 0- #3 #5 #9"
        ),
        careless_additions=0.75,
        careless_subtractions=0.75,
    ),
}


def recipe(name: str) -> Recipe:
    """The recipe of an embedded agent.

    Raises:
        DataError: no such agent, with the known ones.
    """
    if name not in EMBEDDED:
        known = ", ".join(f"embedded:{known}" for known in EMBEDDED)
        raise DataError(f"unknown embedded agent {name!r}: choose {known}")
    return EMBEDDED[name]


def recipe_hash(name: str) -> str:
    """sha256 over an embedded agent's recipe and every text that it learns from."""
    return _hash(recipe(name))


@lru_cache
def _hash(recipe: Recipe) -> str:
    canonical = {"version": RECIPE_VERSION, **asdict(recipe)}
    digest = hashlib.sha256(json.dumps(canonical, sort_keys=True).encode())
    digest.update(arithmetic.CHARACTERS.encode())
    for numbers in arithmetic.splits()[0]:
        for careless in (False, True):
            text = arithmetic.solution_text(numbers, careless=careless)
            digest.update(f"\n{arithmetic.problem_of(numbers).problem}{text}".encode())
    return digest.hexdigest()
