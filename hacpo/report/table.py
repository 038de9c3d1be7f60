"""From raw points to the rows of the table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hacpo.report.asked import Wanted
from hacpo.report.estimate import Estimate, estimate, mean_over, paired_difference
from hacpo.report.points import Point

MEAN = "mean over agents"
AVERAGE = "average"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """One method, agent and benchmark of a combination, or a mean over agents or benchmarks."""

    combination: str
    method: str
    agent: str
    """Or `mean over agents`."""
    task: str
    """Or `average`: of the benchmarks, each weighing the same."""
    control: str
    """What `gain` is measured against; empty if the sweep does not ask for it."""
    steps: int
    """Of its training; 0 if it has none."""
    before: Estimate
    after: Estimate
    gain: Estimate | None
    """After minus the control's after, over the seeds that both have; None for the control itself
    and for an untrained row."""
    seeds: int
    """That are asked for; `after.points` has those that are there."""
    rollouts_generated: float | None
    """Per seed, sampled by this agent (on average over agents) in its training."""
    rollouts_consumed: float | None
    """Per seed, that its training saw: its own and the others'."""


def rows_of(
    wanted: Sequence[Wanted], points: Sequence[Point], against: str = ""
) -> list[ReportRow]:
    """Rows grouped by combination, then method, agent and benchmark.

    Args:
        wanted: from the sweep's config.
        points: of one protocol for each benchmark; those without accuracy are left out, never
            counted as 0.
        against: the method that others are compared with; empty for the control of each
            combination.
    """
    tasks = list(dict.fromkeys(point.task for point in points))
    found: dict[tuple[str, str, str, str], list[Point]] = {}
    for point in points:
        if not point.missing:
            key = point.combination, point.method, point.agent, point.task
            found.setdefault(key, []).append(point)
    asked = {(row.combination, row.method) for row in wanted}

    def of(
        row: Wanted, method: str, agents: Sequence[str], some: Sequence[str]
    ) -> list[list[Point]]:
        return [found.get((row.combination, method, a, t), []) for a in agents for t in some]

    rows = []
    for row in wanted:
        control = against or row.control
        control = control if (row.combination, control) in asked else ""
        groups = [(agent, [agent]) for agent in row.agents]
        if len(row.agents) > 1:
            groups.append((MEAN, list(row.agents)))
        columns = [(task, [task]) for task in tasks]
        if len(tasks) > 1:
            columns.append((AVERAGE, tasks))
        for agent, members in groups:
            for task, some in columns:
                own = of(row, row.method, members, some)
                rows.append(_row(row, agent, task, control, own, of(row, control, members, some)))
    return rows


def _row(
    wanted: Wanted,
    agent: str,
    task: str,
    control: str,
    own: list[list[Point]],
    controls: list[list[Point]],
) -> ReportRow:
    after = mean_over([_after(points) for points in own])
    compared = bool(control) and wanted.method != control and wanted.steps > 0
    gain = paired_difference(after, mean_over([_after(points) for points in controls]))
    counted = [point for points in own for point in points if point.seed in after]
    return ReportRow(
        combination=wanted.combination,
        method=wanted.method,
        agent=agent,
        task=task,
        control=control,
        steps=wanted.steps,
        before=estimate(mean_over([_before(points) for points in own])),
        after=estimate(after),
        gain=gain if compared else None,
        seeds=len(wanted.seeds),
        rollouts_generated=mean([point.rollouts_generated for point in counted]),
        rollouts_consumed=mean([point.rollouts_consumed for point in counted]),
    )


def mean(values: Sequence[float | None]) -> float | None:
    """Of those that are known; None if none is."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _before(points: list[Point]) -> dict[int, float]:
    return {point.seed: point.before for point in points if point.before is not None}


def _after(points: list[Point]) -> dict[int, float]:
    return {point.seed: point.after for point in points if point.after is not None}
