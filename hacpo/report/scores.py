"""Each problem's score after training, for paired tests."""

import math
from collections.abc import Sequence

from hacpo.registry import Registry
from hacpo.report.compare import Scores
from hacpo.report.points import Point


def read_scores(registry: Registry, points: Sequence[Point]) -> Scores:
    """Means over each problem's graded samples; problems without one are left out."""
    found: dict[tuple[str, str, str, str], dict[str, float]] = {}
    for point in points:
        key = point.cell_key, point.member, point.task, point.protocol
        if point.missing or key in found:
            continue
        problems = registry.problem_scores(
            point.cell_key,
            agent=point.member,
            step=point.steps,
            task=point.task,
            protocol=point.protocol,
        )
        means = ((p.problem_id, _mean(p.scores)) for p in problems)
        found[key] = {name: mean for name, mean in means if mean is not None}
    return found


def _mean(scores: Sequence[float]) -> float | None:
    graded = [score for score in scores if not math.isnan(score)]
    return math.fsum(graded) / len(graded) if graded else None
