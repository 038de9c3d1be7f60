"""From raw points to the rows of the table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hacpo.report.asked import Wanted
from hacpo.report.estimate import Estimate, estimate, mean_over, paired_difference
from hacpo.report.points import Point

MEAN = "mean over agents"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """One method and agent of a combination, or the mean over its agents."""

    combination: str
    method: str
    agent: str
    """Or `mean over agents`."""
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


def rows_of(wanted: Sequence[Wanted], points: Sequence[Point]) -> list[ReportRow]:
    """Rows of one protocol, grouped by combination, then method.

    Args:
        wanted: from the sweep's config.
        points: of one protocol; those without accuracy are left out, never counted as 0.
    """
    found: dict[tuple[str, str, str], list[Point]] = {}
    for point in points:
        if not point.missing:
            found.setdefault((point.combination, point.method, point.agent), []).append(point)
    asked = {(row.combination, row.method) for row in wanted}
    rows = []
    for row in wanted:
        control = row.control if (row.combination, row.control) in asked else ""
        mine = [found.get((row.combination, row.method, agent), []) for agent in row.agents]
        theirs = [found.get((row.combination, control, agent), []) for agent in row.agents]
        groups = [(agent, [m], [c]) for agent, m, c in zip(row.agents, mine, theirs, strict=True)]
        if len(row.agents) > 1:
            groups.append((MEAN, mine, theirs))
        for agent, own, controls in groups:
            rows.append(_row(row, agent, control, own, controls))
    return rows


def _row(
    wanted: Wanted, agent: str, control: str, own: list[list[Point]], controls: list[list[Point]]
) -> ReportRow:
    after = mean_over([_after(points) for points in own])
    compared = bool(control) and wanted.method != control and wanted.steps > 0
    gain = paired_difference(after, mean_over([_after(points) for points in controls]))
    counted = [point for points in own for point in points if point.seed in after]
    return ReportRow(
        combination=wanted.combination,
        method=wanted.method,
        agent=agent,
        control=control,
        steps=wanted.steps,
        before=estimate(mean_over([_before(points) for points in own])),
        after=estimate(after),
        gain=gain if compared else None,
        seeds=len(wanted.seeds),
        rollouts_generated=_mean([point.rollouts_generated for point in counted]),
        rollouts_consumed=_mean([point.rollouts_consumed for point in counted]),
    )


def _before(points: list[Point]) -> dict[int, float]:
    return {point.seed: point.before for point in points if point.before is not None}


def _after(points: list[Point]) -> dict[int, float]:
    return {point.seed: point.after for point in points if point.after is not None}


def _mean(values: list[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
