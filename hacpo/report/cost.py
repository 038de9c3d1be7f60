"""What trainings cost, and whether two of them cost the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hacpo.report.points import Point
from hacpo.report.table import MEAN, ReportRow, mean

TOKENS_APART = 0.05
"""Responses of two trainings never have equal lengths; up to this they count as the same cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one method and agent, or a mean over agents: per seed, over the seeds that are done."""

    combination: str
    method: str
    agent: str
    seeds: int
    rollouts_generated: float | None
    rollouts_consumed: float | None
    tokens_generated: float | None
    tokens_consumed: float | None
    device_seconds: float | None
    """Its share of the cell's time."""
    control: str
    """What the ratios are to; empty for the control itself and without one."""
    ratio_generated: float | None
    ratio_consumed: float | None
    ratio_tokens: float | None
    """Of generated tokens."""
    equal: bool
    """Whether the comparison may be called equal cost."""
    why: str
    """Why not; empty if it may or if there is nothing to compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What a run's own files say that an agent sampled and consumed."""

    rollouts_generated: int
    rollouts_consumed: int
    tokens_generated: int


Ledgers = Mapping[tuple[str, str], Counted]
"""(cell key, agent as the cell calls it) -> counted from its files, where they are here."""


def costs_of(rows: Sequence[ReportRow], points: Sequence[Point], ledgers: Ledgers) -> list[Cost]:
    """One for each method and agent of each combination that trains.

    Args:
        rows: from `rows_of`.
        points: the same points.
        ledgers: to check the registry's numbers by.
    """
    found: dict[tuple[str, str, str], dict[int, Point]] = {}
    for point in points:
        if point.state == "done":  # every benchmark repeats the same cost
            key = point.combination, point.method, point.agent
            found.setdefault(key, {})[point.seed] = point
    agents: dict[str, dict[str, None]] = {}
    for point in points:
        agents.setdefault(point.combination, {})[point.agent] = None
    costs: dict[tuple[str, str, str], Cost] = {}
    for row in rows:
        key = row.combination, row.method, row.agent
        if row.steps and key not in costs:
            members = list(agents[row.combination]) if row.agent == MEAN else [row.agent]
            own = [found.get((row.combination, row.method, a), {}) for a in members]
            control = row.control if row.control != row.method else ""
            theirs = [found.get((row.combination, control, a), {}) for a in members]
            costs[key] = _cost(row, control, own, theirs, ledgers)
    return list(costs.values())


def _cost(
    row: ReportRow,
    control: str,
    own: list[dict[int, Point]],
    theirs: list[dict[int, Point]],
    ledgers: Ledgers,
) -> Cost:
    mine = _all(own)
    pairs = [
        (point, other[seed])
        for side, other in zip(own, theirs, strict=True)
        for seed, point in side.items()
        if seed in other
    ]
    why = _unequal(pairs, ledgers) if control else ""
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    return Cost(
        combination=row.combination,
        method=row.method,
        agent=row.agent,
        seeds=len({point.seed for point in mine}),
        rollouts_generated=mean([point.rollouts_generated for point in mine]),
        rollouts_consumed=mean([point.rollouts_consumed for point in mine]),
        tokens_generated=mean([point.tokens_generated for point in mine]),
        tokens_consumed=mean([point.tokens_consumed for point in mine]),
        device_seconds=mean([point.device_seconds for point in mine]),
        control=control,
        ratio_generated=_ratio(
            [p.rollouts_generated for p in first], [p.rollouts_generated for p in second]
        ),
        ratio_consumed=_ratio(
            [p.rollouts_consumed for p in first], [p.rollouts_consumed for p in second]
        ),
        ratio_tokens=_ratio(
            [p.tokens_generated for p in first], [p.tokens_generated for p in second]
        ),
        equal=bool(control) and not why,
        why=why,
    )


def _all(sides: list[dict[int, Point]]) -> list[Point]:
    return [point for side in sides for point in side.values()]


def _ratio(first: Sequence[int | None], second: Sequence[int | None]) -> float | None:
    """Of the sums; None if any is unknown."""
    top = [value for value in first if value is not None]
    bottom = [value for value in second if value is not None]
    if len(top) < len(first) or len(bottom) < len(second) or not sum(bottom):
        return None
    return sum(top) / sum(bottom)


def _unequal(pairs: Sequence[tuple[Point, Point]], ledgers: Ledgers) -> str:
    """The first reason not to call these trainings equal in cost; empty if there is none."""
    if not pairs:
        return "no seed that both have"
    for point in (point for pair in pairs for point in pair):
        if point.rollouts_generated is None or point.tokens_consumed is None:
            return f"{point.cell}: no cost is recorded for {point.agent}"
        counted = ledgers.get((point.cell_key, point.member))
        recorded = Counted(
            rollouts_generated=point.rollouts_generated,
            rollouts_consumed=point.rollouts_consumed or 0,
            tokens_generated=point.tokens_generated or 0,
        )
        if counted is not None and counted != recorded:
            return f"{point.cell}: its files and the registry count differently for {point.agent}"
    for what in ("rollouts_generated", "rollouts_consumed"):
        for first, second in pairs:
            here, there = getattr(first, what), getattr(second, what)
            if here != there:
                verb = "samples" if what == "rollouts_generated" else "consumes"
                of = f"{first.agent} s{first.seed}"
                return f"{of} {verb} {here:,} rollouts, the control {there:,}"
    for first, second in pairs:
        here, there = first.tokens_generated or 0, second.tokens_generated or 0
        if abs(here - there) > TOKENS_APART * max(here, there):
            of = f"{first.agent} s{first.seed}"
            return f"{of} samples {here:,} tokens, the control {there:,}"
    return ""
