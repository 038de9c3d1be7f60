"""Means over seeds and how far they can be trusted."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

FEWEST_FOR_INTERVAL = 3
"""With fewer seeds the points themselves are shown."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """One number measured once per seed."""

    points: dict[int, float]
    """seed -> value, in the order of the sweep's seeds; never NaN."""
    mean: float | None
    """None without points."""
    low: float | None
    """Of the 95% interval of the mean (Student's t); None with fewer than 3 seeds."""
    high: float | None


def estimate(points: Mapping[int, float]) -> Estimate:
    values = list(points.values())
    if not values:
        return Estimate({}, None, None, None)
    mean = math.fsum(values) / len(values)
    if len(values) < FEWEST_FOR_INTERVAL:
        return Estimate(dict(points), mean, None, None)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    half = t_quantile(len(values) - 1) * math.sqrt(variance / len(values))
    return Estimate(dict(points), mean, mean - half, mean + half)


def paired_difference(points: Mapping[int, float], control: Mapping[int, float]) -> Estimate:
    """Of the seeds that both have: the mean of the differences, not the difference of the means."""
    return estimate({s: value - control[s] for s, value in points.items() if s in control})


def mean_over(agents: list[Mapping[int, float]]) -> dict[int, float]:
    """Mean over agents within each seed, for the seeds that every agent has."""
    first, *others = agents
    common = [seed for seed in first if all(seed in other for other in others)]
    return {seed: math.fsum(a[seed] for a in agents) / len(agents) for seed in common}


def t_quantile(degrees_of_freedom: int) -> float:
    """97.5% quantile of Student's t distribution."""
    from scipy.special import stdtrit  # not free to load, and two seeds do without it

    return float(stdtrit(degrees_of_freedom, 0.975))
