"""The sweep's accuracies in the paper's columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hacpo.report.compare import Scores
from hacpo.report.paper import BENCHMARKS, BEST30, PaperRow, best_of, paper_benchmark, paper_row
from hacpo.report.points import Point
from hacpo.report.section import Section, Table, by_combination, percent
from hacpo.report.table import AVERAGE, MEAN, ReportRow, mean

INITIAL = "initial"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """One method and agent, here and in the paper."""

    combination: str
    method: str
    agent: str
    ours: dict[str, float | None]
    """The paper's benchmark -> mean over seeds."""
    average: float | None
    """None unless all benchmarks are there."""
    paper: PaperRow | None


def beside_paper(
    rows: Sequence[ReportRow],
    points: Sequence[Point],
    scores: Scores,
    models: Mapping[str, str],
) -> list[Beside]:
    """The lines of combinations that the paper has; empty if it has none.

    Args:
        rows, points, scores: of the sweep.
        models: agent -> model, as the sweep's config names it.
    """
    lines: _Lines = {}
    for row in rows:
        if row.agent != MEAN and row.task != AVERAGE:
            lines.setdefault((row.combination, row.method, row.agent), []).append(row)
    found = [
        _line(combination, method, agent, _before(group), models)
        for (combination, method, agent), group in _untrained(lines).items()
    ]
    for (combination, method, agent), group in lines.items():
        values = {row.task: _ours(row, points, scores) for row in group}
        found.append(_line(combination, method, agent, values, models))
    known = {one.combination for one in found if one.paper}
    return [one for one in found if one.combination in known]


_Lines = dict[tuple[str, str, str], list[ReportRow]]


def _untrained(lines: _Lines) -> _Lines:
    """A line for every agent before training, unless the sweep asks for it as a method."""
    first: _Lines = {}
    for (combination, _, agent), group in lines.items():
        if (combination, INITIAL, agent) not in lines:
            first.setdefault((combination, INITIAL, agent), group)
    return first


def _before(group: Sequence[ReportRow]) -> dict[str, float | None]:
    """Without AIME25: only scores after training are read, and its best@30 needs them."""
    return {row.task: row.before.mean for row in group if paper_benchmark(row.task) != BEST30}


def _line(
    combination: str,
    method: str,
    agent: str,
    values: Mapping[str, float | None],
    models: Mapping[str, str],
) -> Beside:
    members = [models.get(name, "") for name in combination.split("+")]
    ours = {name: value for task, value in values.items() if (name := paper_benchmark(task))}
    whole = [ours.get(benchmark) for benchmark in BENCHMARKS]
    return Beside(
        combination=combination,
        method=method,
        agent=agent,
        ours=ours,
        average=mean(whole) if None not in whole else None,
        paper=paper_row(members, models.get(agent, ""), method),
    )


def paper_section(beside: Sequence[Beside]) -> Section:
    """This sweep's numbers beside the paper's."""
    title = "The paper's numbers"
    if not beside:
        none = "No combination of this sweep is in the paper (Tables 1, 2, 3 and 7)."
        return Section(key="paper", title=title, text=[none])
    lines = [
        f"Table {row.table}, {row.model}, {row.method}: the printed average "
        f"{percent(row.published)} is not that of its row, {percent(row.average)}"
        for row in (one.paper for one in beside)
        if row and not row.average_matches
    ]
    tables = by_combination(beside, _table)
    return Section(key="paper", title=title, tables=tables, notes=[PAPER], lines=lines)


PAPER = (
    "This sweep / the paper, %. Averages are recomputed, and only of whole rows. AIME25 is "
    "compared as verl's best@30: a problem that a share s of n samples solves counts 1 - (1 - s)^n."
)


def _table(beside: Sequence[Beside]) -> Table:
    rows = []
    for one in beside:
        theirs = one.paper.values if one.paper else {}
        pairs = [(one.ours.get(name), theirs.get(name)) for name in BENCHMARKS]
        pairs.append((one.average, one.paper.average if one.paper else None))
        cells = [f"{percent(here)} / {percent(there)}" for here, there in pairs]
        rows.append([one.method, one.agent, *cells])
    names = [name.replace("_", "\n") for name in BENCHMARKS]
    return Table(head=["method", "agent", *names, "average"], rows=rows)


def _ours(row: ReportRow, points: Sequence[Point], scores: Scores) -> float | None:
    if paper_benchmark(row.task) != BEST30:
        return row.after.mean
    values = []
    for point in points:
        of_row = (point.combination, point.method, point.agent, point.task)
        if of_row == (row.combination, row.method, row.agent, row.task) and not point.missing:
            samples = point.protocol.rpartition("@")[2]
            own = scores.get((point.cell_key, point.member, point.task, point.protocol), {})
            values.append(best_of(own, int(samples)) if samples.isdigit() else None)
    return mean(values) if values and None not in values else None
