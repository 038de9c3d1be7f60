"""What one problem contributes to a benchmark's metrics, by the number of its correct samples.

All are means over problems, so that a standard error is that of a mean.
"""

from collections.abc import Sequence
from math import comb

PASS_AT = (1, 2, 4, 8, 16)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased estimate of solving a problem in `k` tries, of `n` samples with `c` correct.

    1 - C(n-c, k) / C(n, k) (Chen et al. 2021).

    >>> pass_at_k(5, 1, 2)
    0.4
    """
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"no pass@{k} of {n} samples with {c} correct")
    return 1 - comb(n - c, k) / comb(n, k)


def best_verl(n: int, c: int) -> float:
    """What verl calls best@n: the expected best of n samples drawn again, with replacement.

    1 - (1 - c/n)^n. It takes 1000 draws, this is their limit. A problem solved in one of 30 samples
    counts 0.64, not 1; the paper's column "best@30" is this one.
    """
    if not 0 <= c <= n or n < 1:
        raise ValueError(f"no best of {n} samples with {c} correct")
    return float(1 - (1 - c / n) ** n)


def problem_metrics(scores: Sequence[float]) -> dict[str, float]:
    """Every metric of one problem from its samples' scores; a sample of score 1 is correct.

    One sample gives `avg@1`. Of n samples: `avg@n`, `best@n` (any correct), `best@n_verl`, and
    `pass@k` for k below n and n itself.
    """
    n = len(scores)
    average = {f"avg@{n}": sum(scores) / n}
    if n == 1:
        return average
    c = sum(score >= 1 for score in scores)
    passes = {f"pass@{k}": pass_at_k(n, c, k) for k in (*PASS_AT, n) if k <= n}
    best = {f"best@{n}": float(c > 0), f"best@{n}_verl": best_verl(n, c)}
    return average | best | passes


def mean_metrics(scores: Sequence[Sequence[float]]) -> dict[str, float]:
    """The mean over problems of each of `problem_metrics`."""
    rows = [problem_metrics(each) for each in scores]
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
