"""Comparisons of a sweep in a real registry: which test, on which problems, at what cost."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hacpo.registry import Registry
from hacpo.report import Report, sweep_report
from hacpo.report.compare import Comparison
from hacpo.report.paired import BOOTSTRAP, MCNEMAR, holm, mcnemar_p
from hacpo.report.table import AVERAGE, MEAN
from tests.recorded_sweep import SAMPLED, TOKENS, Scorer, record_sweep

MODELS = {"a": "m_a", "b": "m_b"}
GREEDY = {"held_out": "greedy"}


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with Registry.open(f"sqlite:///{tmp_path}/registry.db") as opened:
        yield opened


def report(registry: Registry, scorer: Scorer, **grid: Any) -> Report:
    chosen = {"models": MODELS, "methods": ["gspo_x2", "hacpo"], "seeds": [0], "tasks": GREEDY}
    record_sweep(registry, scorer, **{**chosen, **grid})
    return sweep_report(registry, "recorded")


def only(found: Report, agent: str, task: str = "held_out", method: str = "hacpo") -> Comparison:
    (one,) = [c for c in found.comparisons if (c.method, c.agent, c.task) == (method, agent, task)]
    return one


def solved(*problems: int, of: int = 10) -> list[list[float]]:
    return [[float(i in problems)] for i in range(of)]


def greedy(method: str, agent: str, seed: int, task: str, step: int) -> list[list[float]]:
    """a: hacpo alone solves 1, 2, 3 and the control alone 9; b: hacpo alone solves 0-7."""
    if method == "hacpo":
        return solved(0, 1, 2, 3) if agent == "a" else solved(*range(8))
    return solved(0, 9) if agent == "a" else solved()


def test_two_greedy_single_runs_are_compared_by_mcnemar(registry: Registry) -> None:
    found = report(registry, greedy)
    difference = only(found, "a").difference
    assert difference is not None
    assert (difference.test, difference.won, difference.lost) == (MCNEMAR, 3, 1)
    assert difference.p == mcnemar_p(3, 1)
    assert difference.mean == pytest.approx(0.2)


def test_holm_is_over_the_agents_and_benchmarks_of_one_method(registry: Registry) -> None:
    tasks = {"one": "greedy", "two": "greedy"}
    found = report(registry, greedy, tasks=tasks, methods=["gspo_x2", "gspo", "hacpo"])
    family = [only(found, agent, task) for agent in "ab" for task in tasks]
    raw = [mcnemar_p(3, 1)] * 2 + [mcnemar_p(8, 0)] * 2
    assert [one.p_holm for one in family] == pytest.approx(holm(raw))
    assert only(found, "b", "one").p_holm == pytest.approx(4 * 2 / 2**8)
    means = [c for c in found.comparisons if c.agent == MEAN or c.task == AVERAGE]
    assert {one.p_holm for one in means} == {None}


def test_several_seeds_and_samples_are_compared_by_a_bootstrap(registry: Registry) -> None:
    def scorer(method: str, agent: str, seed: int, task: str, step: int) -> list[list[float]]:
        return [[1.0, float(i % 2), float(method == "hacpo")] for i in range(12)]

    found = report(registry, scorer, seeds=[0, 1], tasks={"held_out": "avg@3"})
    difference = only(found, "a").difference
    assert difference is not None
    assert (difference.test, difference.seeds, difference.problems) == (BOOTSTRAP, 2, 12)
    assert difference.mean == pytest.approx(1 / 3)
    several = report(registry, greedy, seeds=[2, 3])
    difference = only(several, "a").difference
    assert difference is not None
    assert difference.test == BOOTSTRAP


def test_means_over_agents_and_benchmarks_are_tested_as_one_number(registry: Registry) -> None:
    found = report(registry, greedy, tasks={"one": "greedy", "two": "greedy"})
    whole = only(found, MEAN, AVERAGE).difference
    assert whole is not None
    assert (whole.test, whole.problems) == (BOOTSTRAP, 20)
    assert whole.mean == pytest.approx((0.2 + 0.8) / 2)


def test_only_problems_and_seeds_that_both_have_are_compared(registry: Registry) -> None:
    def scorer(method: str, agent: str, seed: int, task: str, step: int) -> list[list[float]]:
        scores = greedy(method, agent, seed, task, step)
        if method == "hacpo" and agent == "a":
            scores[1] = [math.nan]  # ungraded, not wrong
        return scores[:-1] if method == "hacpo" else scores

    unfinished = ["gspo_x2 a s1"]
    found = report(registry, scorer, seeds=[0, 1], unfinished=unfinished)
    one = only(found, "a")
    assert one.difference is not None
    assert (one.difference.test, one.difference.problems, one.left_out) == (MCNEMAR, 8, 2)
    assert (one.difference.won, one.difference.lost) == (2, 0)
    assert list(one.by_seed) == [0]
    assert list(only(found, "b").by_seed) == [0, 1]
    assert list(only(found, MEAN).by_seed) == [0]
    assert "hacpo a held_out: 2 problems are not in all of its runs" in found.markdown()


def test_without_a_finished_control_nothing_is_said(registry: Registry) -> None:
    found = report(registry, greedy, unfinished=["gspo_x2 a s0"])
    one = only(found, "a")
    assert (one.difference, one.why) == (None, "no seed that both have")
    assert "| hacpo | a | - | - | - | no seed that both have |" in found.markdown()


def test_the_headline_has_the_gain_its_interval_and_the_ratio_of_rollouts(
    registry: Registry,
) -> None:
    text = report(registry, greedy).markdown()
    assert "hacpo: +50.0 [" in text
    assert "points over gspo_x2, mean over agents (1 seed, 10 problems, p " in text
    assert "it sampled 0.50 times the control's rollouts (not equal cost: " in text


def test_equal_cost_needs_equal_ledgers(registry: Registry) -> None:
    found = report(registry, greedy, methods=["gspo_x2", "gspo", "hacpo", "naive"])
    hacpo = {cost.agent: cost for cost in found.costs if cost.method == "hacpo"}
    a = hacpo["a"]
    assert (a.rollouts_generated, a.rollouts_consumed) == (SAMPLED, 2 * SAMPLED)
    assert (a.tokens_generated, a.tokens_consumed) == (SAMPLED * TOKENS, 2 * SAMPLED * TOKENS)
    assert (a.ratio_generated, a.ratio_consumed, a.equal) == (0.5, 1.0, False)
    assert a.why == "a s0 samples 24 rollouts, the control 48"
    against = sweep_report(registry, "recorded", against="naive")
    equal = {(c.method, c.agent): c.equal for c in against.costs if c.control}
    assert equal["hacpo", "a"]
    assert equal["hacpo", MEAN]
    assert not equal["gspo", "a"]  # samples as much, consumes half
    assert "(equal cost)" in against.markdown()
