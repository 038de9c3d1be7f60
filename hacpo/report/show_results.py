"""Sections that say how good the methods are: headline, table, tests, power."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from hacpo.report.compare import Comparison
from hacpo.report.cost import Cost
from hacpo.report.estimate import FEWEST_FOR_INTERVAL, Estimate
from hacpo.report.paired import MCNEMAR
from hacpo.report.points import HELD_OUT
from hacpo.report.section import (
    NOTHING,
    Section,
    Table,
    by_combination,
    count,
    interval,
    p_value,
    percent,
    seeds_or_interval,
    seeds_or_margin,
)
from hacpo.report.table import AVERAGE, MEAN, ReportRow, mean

UNTRAINED = "initial"


def headline(compared: Sequence[Comparison], costs: Sequence[Cost]) -> Section:
    """Gain over the control, over all agents and benchmarks, and the ratio of rollouts."""
    several = len({one.combination for one in compared}) > 1
    cost_of = {(cost.combination, cost.method, cost.agent): cost for cost in costs}
    text = []
    for (combination, method), group in groupby(compared, lambda c: (c.combination, c.method)):
        whole = list(group)[-1]  # the mean over agents and benchmarks, or the only one
        cost = cost_of[combination, method, whole.agent]
        where = f" ({combination})" if several else ""
        text.append(f"{method}{where}: {_gain_in_words(whole)}; {_cost_in_words(cost)}.")
    return Section(key="headline", title="Gain and cost", text=text)


def accuracy(rows: Sequence[ReportRow], protocols: Mapping[str, str]) -> Section:
    """The paper's layout: methods and agents by benchmarks."""
    tables = by_combination(rows, lambda group: _accuracy_table(group, protocols))
    return Section(
        key="accuracy", title="Accuracy", tables=tables, notes=[_legend(rows, protocols)]
    )


def tests(compared: Sequence[Comparison]) -> Section:
    """Every method against its control by agent and benchmark."""
    lines = [
        f"{one.method} {one.agent} {one.task}: {one.left_out} problems are not in all of its runs"
        for one in compared
        if one.left_out and one.agent != MEAN and one.task != AVERAGE
    ]
    tables = by_combination(compared, _test_table)
    return Section(key="tests", title="Paired tests", tables=tables, notes=[TESTS], lines=lines)


def power(compared: Sequence[Comparison]) -> Section:
    """How many seeds the observed effects need; of several benchmarks, that of their average."""
    averages = [one for one in compared if one.task == AVERAGE] or compared
    tables = by_combination([one for one in averages if one.power], _power_table)
    return Section(key="power", title="Seeds needed", tables=tables, notes=[POWER])


TESTS = (
    "Gain: method less control, mean over seeds and the same problems, with a 95% interval. Test: "
    "exact McNemar for two greedy single runs (in brackets the problems that only the method, only "
    "the control solves), else a paired hierarchical bootstrap over problems and seeds. p (Holm): "
    "corrected over the agents and benchmarks of one method; means over them are not in that "
    "family. With one seed nothing is said about other seeds."
)
POWER = (
    "Seeds that a paired test at 5% needs to find the observed difference with probability 80%, if "
    "the true one is as large, on these problems; spread over few seeds is itself a rough estimate."
)


def _gain_in_words(one: Comparison) -> str:
    found = one.difference
    if found is None:
        return f"no gain over {one.control} to tell ({one.why})"
    gain = interval(found.mean, found.low, found.high, "+")
    seeds = f"{found.seeds} seed{'s' if found.seeds > 1 else ''}"
    over = f"over {one.control}, {one.agent}" if one.agent == MEAN else f"over {one.control}"
    return f"{gain} points {over} ({seeds}, {found.problems:,} problems, p {p_value(found.p)})"


def _cost_in_words(cost: Cost) -> str:
    if cost.ratio_generated is None:
        return f"cost not comparable: {cost.why}"
    much = f"it sampled {cost.ratio_generated:.2f} times the control's rollouts"
    return f"{much} (equal cost)" if cost.equal else f"{much} (not equal cost: {cost.why})"


def _accuracy_table(rows: Sequence[ReportRow], protocols: Mapping[str, str]) -> Table:
    tasks = list(dict.fromkeys(row.task for row in rows))
    columns = [task.replace("_", "\n") for task in tasks]
    if len(tasks) == 1:
        name = "held-out" if tasks[0] == HELD_OUT else tasks[0]
        columns = [f"{name} accuracy,\n% ({protocols.get(tasks[0]) or 'not evaluated'})"]
    cells, strong = [], []
    by_line = {
        key: list(group) for key, group in groupby(rows, key=lambda row: (row.method, row.agent))
    }
    if len(tasks) > 1:
        cells += _untrained(by_line, tasks)
    for (method, agent), group in by_line.items():
        last = group[-1]
        if agent == MEAN:
            strong.append(len(cells))
        values = [_after(row, arrow=len(tasks) == 1) for row in group]
        seeds = f"{len(last.after.points)} of {last.seeds}"
        rollouts = [count(last.rollouts_generated), count(last.rollouts_consumed)]
        cells.append([method, agent, *values, seeds, *(rollouts if len(tasks) == 1 else [])])
    head = ["method", "agent", *columns, "seeds"]
    if len(tasks) == 1:  # else the columns are many, and the table of costs has them
        head += ["rollouts\nsampled", "rollouts\nconsumed"]
    return Table(head=head, rows=cells, strong=strong)


def _untrained(
    by_line: Mapping[tuple[str, str], list[ReportRow]], tasks: list[str]
) -> list[list[str]]:
    """The agents as they were, unless the sweep asks for them as a method."""
    if any(not group[0].steps for group in by_line.values()):
        return []
    before: dict[str, list[Estimate]] = {}
    for (_, agent), group in by_line.items():
        if all(row.before.points for row in group):
            before.setdefault(agent, [row.before for row in group])
    return [
        [UNTRAINED, agent, *(_before(value, seeds_or_margin) for value in values), ""]
        for agent, values in before.items()
        if len(values) == len(tasks)
    ]


def _after(row: ReportRow, *, arrow: bool) -> str:
    if row.after.mean is None:
        return NOTHING
    if not arrow:
        return seeds_or_margin(row.after)
    if not row.steps:
        return seeds_or_interval(row.after)
    return f"{_before(row.before)} -> {seeds_or_interval(row.after)}"


def _before(value: Estimate, show: Callable[[Estimate], str] = seeds_or_interval) -> str:
    unchanging = len(set(value.points.values())) == 1
    return percent(value.mean) if unchanging else show(value)


def _test_table(compared: Sequence[Comparison]) -> Table:
    few = max(len(one.by_seed) for one in compared) <= FEWEST_FOR_INTERVAL
    head = [*_names(compared), f"gain over\n{compared[0].control}, points"]
    head += ["each\nseed" if few else "seeds", "problems", "test", "p", "p\n(Holm)"]
    rows = [[*_named(one, compared), *_test_cells(one, few)] for one in compared]
    names = len(_names(compared))
    return Table(head=head, rows=rows, strong=_means(compared), text_columns=names)


def _test_cells(one: Comparison, few: bool) -> list[str]:
    points = one.by_seed.values()
    seeds = ", ".join(percent(point, "+") for point in points) if few else str(len(points))
    found = one.difference
    if found is None:
        return [percent(mean(list(points)), "+"), seeds or NOTHING, NOTHING, one.why, "", ""]
    split = f" ({found.won}, {found.lost})" if found.test == MCNEMAR else ""
    gain = interval(found.mean, found.low, found.high, "+")
    how = found.test + split
    return [gain, seeds, count(found.problems), how, p_value(found.p), p_value(one.p_holm)]


def _power_table(compared: Sequence[Comparison]) -> Table:
    rows = []
    for one in compared:
        assert one.difference is not None
        assert one.power is not None
        now = NOTHING if one.power.now is None else f"{100 * one.power.now:.0f}%"
        needed = count(one.power.seeds) if one.power.seeds else one.power.why
        effect, seeds = percent(one.difference.mean, "+"), str(one.difference.seeds)
        rows.append([*_named(one, compared), effect, seeds, now, needed])
    return Table(
        head=[*_names(compared), "observed,\npoints", "seeds", "power\nnow", "seeds\nneeded"],
        rows=rows,
        strong=_means(compared),
        text_columns=len(_names(compared)),
    )


def _names(compared: Sequence[Comparison]) -> list[str]:
    several = len({one.task for one in compared}) > 1
    return ["method", "agent", "benchmark"] if several else ["method", "agent"]


def _named(one: Comparison, compared: Sequence[Comparison]) -> list[str]:
    return [one.method, one.agent, one.task][: len(_names(compared))]


def _means(compared: Sequence[Comparison]) -> list[int]:
    """Rows over all agents and benchmarks."""
    last = {one.task for one in compared} if len(_names(compared)) == 2 else {AVERAGE}
    return [i for i, one in enumerate(compared) if one.agent == MEAN and one.task in last]


def _legend(rows: Sequence[ReportRow], protocols: Mapping[str, str]) -> str:
    most = max((len(row.after.points) for row in rows), default=0)
    what = (
        "mean [95% t interval] over seeds"
        if most >= FEWEST_FOR_INTERVAL
        else f"each seed's own value (an interval needs {FEWEST_FOR_INTERVAL} seeds)"
    )
    if any(row.task == AVERAGE for row in rows):
        names = ", ".join(f"{task} {protocol}" for task, protocol in protocols.items())
        several = f" Measured by: {names}. Average: of the benchmarks, of runs that have them all."
        what = what.replace("mean [95% t interval]", "mean ±half of the 95% t interval")
        return f"Accuracy, %: {what}.{several}"
    return (
        f"Accuracy: {what}. Rollouts: per agent and seed, sampled by itself and consumed "
        "by its training (its own and, under sharing, the others')."
    )
