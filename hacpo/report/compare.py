"""Paired tests of every method against its control, on the same problems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hacpo.report.paired import Array, Difference, holm, mcnemar, paired_bootstrap
from hacpo.report.points import Point
from hacpo.report.power import Power, power_of
from hacpo.report.table import AVERAGE, MEAN, ReportRow

Scores = Mapping[tuple[str, str, str, str], Mapping[str, float]]
"""(cell key, agent as the cell calls it, task, protocol) -> problem -> mean score of its graded
samples after training; problems without a graded sample are not there."""

GREEDY = "greedy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A method against its control, for one agent and benchmark or a mean over them."""

    combination: str
    method: str
    control: str
    agent: str
    task: str
    by_seed: dict[int, float]
    """The difference under each seed that both sides have, of their recorded means."""
    difference: Difference | None
    """None if there is nothing to test, see `why`."""
    power: Power | None
    p_holm: float | None
    """Over the benchmarks and agents of this method and combination; None for means over them."""
    left_out: int
    """Problems that some of these runs lack or could not grade."""
    why: str = ""


def compare(rows: Sequence[ReportRow], points: Sequence[Point], scores: Scores) -> list[Comparison]:
    """One comparison for each row that has a control, in order.

    Args:
        rows: from `rows_of`.
        points: the same points.
        scores: of those points, as far as there are any.
    """
    found = {(p.combination, p.method, p.agent, p.task, p.seed): p for p in points if not p.missing}
    agents, tasks = _names(points)
    compared = [
        _compare(row, agents[row.combination], tasks, found, scores)
        for row in rows
        if row.gain is not None
    ]
    return _corrected(compared)


def _names(points: Sequence[Point]) -> tuple[dict[str, list[str]], list[str]]:
    agents: dict[str, dict[str, None]] = {}
    for point in points:
        agents.setdefault(point.combination, {})[point.agent] = None
    tasks = list(dict.fromkeys(point.task for point in points))
    return {combination: list(names) for combination, names in agents.items()}, tasks


def _compare(
    row: ReportRow,
    agents: Sequence[str],
    tasks: Sequence[str],
    found: Mapping[tuple[str, str, str, str, int], Point],
    scores: Scores,
) -> Comparison:
    assert row.gain is not None
    seeds = tuple(row.gain.points)
    members = agents if row.agent == MEAN else [row.agent]
    arrays, left_out, protocols = [], 0, set()
    for task in tasks if row.task == AVERAGE else [row.task]:
        pairs = []
        for agent in members:
            for seed in seeds:
                first = found[row.combination, row.method, agent, task, seed]
                second = found[row.combination, row.control, agent, task, seed]
                pairs.append((_scores(first, scores), _scores(second, scores)))
                protocols.add(first.protocol)
        known = [set(side) for pair in pairs for side in pair]
        common = sorted(set.intersection(*known)) if known else []
        left_out += len(set().union(*known)) - len(common)
        arrays.append((pairs, common))
    why = _impossible(seeds, arrays)
    difference = None
    if not why:
        single = len(seeds) == 1 and protocols == {GREEDY} and len(arrays) == len(members) == 1
        difference = _test(arrays, len(seeds), single)
    return Comparison(
        combination=row.combination,
        method=row.method,
        control=row.control,
        agent=row.agent,
        task=row.task,
        by_seed=row.gain.points,
        difference=difference,
        power=power_of(difference) if difference else None,
        p_holm=None,
        left_out=left_out,
        why=why,
    )


_Pairs = list[tuple[Mapping[str, float], Mapping[str, float]]]


def _impossible(seeds: Sequence[int], arrays: Sequence[tuple[_Pairs, list[str]]]) -> str:
    if not seeds:
        return "no seed that both have"
    if any(not common for _, common in arrays):
        return "no problem that both were graded on"
    return ""


def _test(arrays: Sequence[tuple[_Pairs, list[str]]], seeds: int, single: bool) -> Difference:
    if single:
        ((pairs, common),) = arrays
        first, second = (_array([side], common)[0] for side in pairs[0])
        if set(np.unique(np.concatenate([first, second]))) <= {0.0, 1.0}:
            return mcnemar(first, second)
    differences = []
    for pairs, common in arrays:
        first = _array([pair[0] for pair in pairs], common)
        second = _array([pair[1] for pair in pairs], common)
        by_agent = (first - second).reshape(-1, seeds, len(common))  # pairs are agent by agent
        differences.append(by_agent.mean(axis=0))
    return paired_bootstrap(differences)


def _array(sides: Sequence[Mapping[str, float]], common: Sequence[str]) -> Array:
    return np.array([[side[problem] for problem in common] for side in sides], dtype=np.float64)


def _scores(point: Point, scores: Scores) -> Mapping[str, float]:
    return scores.get((point.cell_key, point.member, point.task, point.protocol), {})


def _corrected(compared: Sequence[Comparison]) -> list[Comparison]:
    families: dict[tuple[str, str], list[int]] = {}
    for index, one in enumerate(compared):
        tested = one.difference is not None and one.difference.p is not None
        if tested and one.agent != MEAN and one.task != AVERAGE:
            families.setdefault((one.combination, one.method), []).append(index)
    result = list(compared)
    for family in families.values():
        values = [d.p for i in family if (d := result[i].difference) and d.p is not None]
        for index, p in zip(family, holm(values), strict=True):
            result[index] = replace(result[index], p_holm=p)
    return result
