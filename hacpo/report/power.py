"""How many seeds would show the difference that was observed?"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hacpo.report.paired import LEVEL, Difference

POWER = 0.8
MOST_SEEDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Of a two-sided test at 5%, if the true difference is the one observed."""

    seeds: int | None
    """Fewest that find it with probability 0.8; None if that cannot be said, see `why`."""
    now: float | None
    """Probability to find it with the seeds that there are."""
    why: str = ""
    """Why there is no number of seeds."""


def power_of(difference: Difference) -> Power:
    """Seeds needed for an observed difference on the same problems."""
    spread, fixed = difference.seed_variance, difference.problem_variance
    if spread is None or fixed is None:
        return Power(seeds=None, now=None, why="one seed does not tell how much seeds differ")
    effect = abs(difference.mean)
    now = detection(effect, spread, fixed, difference.seeds)
    if effect == 0:
        return Power(seeds=None, now=now, why="there is no difference to find")
    needed = seeds_needed(effect, spread, fixed)
    if needed is not None:
        return Power(seeds=needed, now=now)
    if detection(effect, 0.0, fixed, MOST_SEEDS) < POWER:
        return Power(seeds=None, now=now, why="no number of seeds: too few problems for it")
    return Power(seeds=None, now=now, why=f"more than {MOST_SEEDS:,}")


def seeds_needed(effect: float, seed_variance: float, problem_variance: float) -> int | None:
    """Fewest seeds, at least 2, whose test has the power; None above MOST_SEEDS.

    Args:
        effect: the true mean difference, above 0.
        seed_variance: of one seed's mean difference.
        problem_variance: of the mean difference over the choice of problems.
    """
    low, high = 2, MOST_SEEDS
    if detection(effect, seed_variance, problem_variance, high) < POWER:
        return None
    while low < high:  # power rises with the seeds
        middle = (low + high) // 2
        if detection(effect, seed_variance, problem_variance, middle) >= POWER:
            high = middle
        else:
            low = middle + 1
    return low


def detection(effect: float, seed_variance: float, problem_variance: float, seeds: int) -> float:
    """Probability that `paired_bootstrap` with this many seeds finds the effect at 5%."""
    from scipy.special import chdtri, ndtr, ndtri, stdtrit

    of_seeds = seed_variance / seeds
    total = of_seeds + problem_variance
    if total == 0:
        return 1.0 if effect else LEVEL
    # Problems are many: their part of the variance is as good as known.
    bound = problem_variance * float(ndtri(1 - LEVEL / 2))
    scales: Any = np.ones(1)
    if of_seeds:
        bound += of_seeds * float(stdtrit(seeds - 1, 1 - LEVEL / 2))
        freedom = (seeds - 1) * (total / of_seeds) ** 2
        # The estimated standard error over the true one, at equal steps of probability.
        scales = np.sqrt(chdtri(freedom, (np.arange(1000) + 0.5) / 1000) / freedom)
    shift = effect / math.sqrt(total)
    return float(
        np.mean(ndtr(shift - bound / total * scales) + ndtr(-shift - bound / total * scales))
    )
