"""Two trainings on the same problems: is the difference more than chance?

Pure functions of arrays. Axes: S seeds, P problems, R replicates of a bootstrap.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MCNEMAR = "exact McNemar"
BOOTSTRAP = "paired bootstrap"
LEVEL = 0.05

Array = NDArray[np.float64]

_REPLICATES = 2000
_CHUNK = 1 << 21  # indices in memory at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The mean difference of two trainings on the same problems, and how far it can be trusted."""

    test: str
    mean: float
    low: float | None
    """Of the 95% interval; None if one problem is all there is."""
    high: float | None
    p: float | None
    """Two-sided; None likewise."""
    seeds: int
    problems: int
    won: int | None = None
    """Problems that only the first solves, and only the second; None unless McNemar's test."""
    lost: int | None = None
    seed_variance: float | None = None
    """Of one seed's mean difference; None with one seed."""
    problem_variance: float | None = None
    """Of the mean difference because these problems were drawn and not others: what no number of
    seeds removes. None unless a bootstrap."""


def mcnemar(first_P: Array, second_P: Array) -> Difference:
    """Exact McNemar test of two single runs with scores 0 and 1.

    p is the two-sided binomial probability of so uneven a split of the problems that exactly one of
    the two solves; the interval is Bonett and Price's (2012).
    """
    won = int(((first_P == 1) & (second_P == 0)).sum())
    lost = int(((first_P == 0) & (second_P == 1)).sum())
    count = len(first_P)
    adjusted_won, adjusted_lost = (won + 1) / (count + 2), (lost + 1) / (count + 2)
    middle = adjusted_won - adjusted_lost
    spread = math.sqrt((adjusted_won + adjusted_lost - middle**2) / (count + 2))
    half = _t_quantile(math.inf, LEVEL) * spread
    return Difference(
        test=MCNEMAR,
        mean=(won - lost) / count,
        low=max(-1.0, middle - half),
        high=min(1.0, middle + half),
        p=mcnemar_p(won, lost),
        seeds=1,
        problems=count,
        won=won,
        lost=lost,
    )


def mcnemar_p(won: int, lost: int) -> float:
    """Of `won` and `lost` problems that exactly one of the two solves."""
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(won, lost), won + lost, 0.5)))


def paired_bootstrap(differences: Sequence[Array], *, replicates: int = _REPLICATES) -> Difference:
    """Paired hierarchical bootstrap over problems and seeds of a mean over benchmarks.

    Problems are resampled within each benchmark, the same ones for every seed and for both sides;
    seeds are resampled as pairs, the same ones for every benchmark. A resampled mean of n spreads
    by (n-1)/n too little, so its deviation is stretched by sqrt(n/(n-1)). The interval is the mean
    -+ t standard errors, since of two or three seeds percentiles promise too much; t is Cochran's:
    each part's own quantile, weighted by its variance. What belongs to a problem under one seed
    counts for both parts. So intervals are too wide rather than too narrow: they cover 94% and more
    (`tests/unit/test_paired.py` simulates it).

    Args:
        differences: for each benchmark an SP array: first minus second, of every problem under
            every seed. The seeds are the same in all.
    """
    differences = [np.round(array, 12) for array in differences]  # sums of thirds leave 1e-17
    seeds = differences[0].shape[0]
    assert all(array.shape[0] == seeds and array.shape[1] > 0 for array in differences)
    random = np.random.default_rng(20260302)  # equal data, equal report
    means_S = np.mean([array.mean(axis=1) for array in differences], axis=0)
    parts: list[tuple[Array, int]] = [(_resampled(means_S, replicates, random), seeds - 1)]
    for array in differences:
        part_R = _resampled(array.mean(axis=0), replicates, random) / len(differences)
        parts.append((part_R, array.shape[1] - 1))
    mean = round(float(means_S.mean()), 12)
    problems = sum(array.shape[1] for array in differences)
    low = high = p = None
    if any(array.shape[1] > 1 for array in differences):
        variances = [(float(part.var()), n) for part, n in parts]
        half = _half_width(variances, LEVEL)
        low, high, p = mean - half, mean + half, _two_sided(mean, variances, differences)
    return Difference(
        test=BOOTSTRAP,
        mean=mean,
        low=low,
        high=high,
        p=p,
        seeds=seeds,
        problems=problems,
        seed_variance=float(means_S.var(ddof=1)) if seeds > 1 else None,
        problem_variance=_problem_variance(differences),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction of a family of tests, in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def _resampled(values_n: Array, replicates: int, random: np.random.Generator) -> Array:
    """Deviations of the resampled mean, R; zero for a single value."""
    count = len(values_n)
    if count < 2:
        return np.zeros(replicates)
    centred_n = values_n - values_n.mean()
    rows = max(1, _CHUNK // count)
    chunks = [
        centred_n[random.integers(count, size=(min(rows, replicates - start), count))].mean(axis=1)
        for start in range(0, replicates, rows)
    ]
    return np.asarray(np.concatenate(chunks) * math.sqrt(count / (count - 1)))


def _half_width(variances: Sequence[tuple[float, int]], level: float) -> float:
    """Of the interval outside of which `level` of the probability lies.

    Args:
        variances: of independent parts of the mean, each with its degrees of freedom.
    """
    known = [(variance, freedom) for variance, freedom in variances if variance > 0]
    total = sum(variance for variance, _ in known)
    if total == 0:
        return 0.0
    weighted = sum(variance * _t_quantile(freedom, level) for variance, freedom in known)
    return weighted / math.sqrt(total)


def _two_sided(
    mean: float, variances: Sequence[tuple[float, int]], differences: Sequence[Array]
) -> float:
    """The level at which the interval just touches zero."""
    if mean == 0:
        return 1.0
    low, high = 1e-12, 1.0
    for _ in range(50):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if abs(mean) > _half_width(variances, middle) else (middle, high)
    # k problems that differ at all can fall to one side by chance: 2 of 2^k sign patterns.
    differing = sum(int((array.mean(axis=0) != 0).sum()) for array in differences)
    return min(1.0, max(high, 2.0 ** (1 - differing)))


def _problem_variance(differences: Sequence[Array]) -> float:
    """Variance of the mean over problems, less what is noise of single seeds."""
    total = 0.0
    for array in differences:
        seeds, problems = array.shape
        if problems < 2:
            continue
        of_problems = float(array.mean(axis=0).var(ddof=1)) / problems
        if seeds > 1:
            rest: Any = array - array.mean(axis=0) - array.mean(axis=1)[:, None] + array.mean()
            noise = float((rest**2).sum()) / ((seeds - 1) * (problems - 1)) / (seeds * problems)
            of_problems = max(of_problems - noise, 0.0)
        total += of_problems / len(differences) ** 2
    return total


def _t_quantile(freedom: float, level: float) -> float:
    from scipy.special import ndtri, stdtrit  # not free to load

    q = 1 - level / 2
    return float(ndtri(q) if math.isinf(freedom) else stdtrit(freedom, q))
