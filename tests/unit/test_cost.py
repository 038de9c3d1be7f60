"""Equal cost is said only where every count agrees."""

from dataclasses import replace

import pytest

from hacpo.report.cost import Counted, Ledgers, costs_of
from tests.sweep_rows import Sweep


def priced(first: tuple[int, int, int], second: tuple[int, int, int]) -> Sweep:
    """naive and hacpo of one agent with (generated, consumed, tokens)."""
    sweep = Sweep(["naive", "hacpo"], [0], agents="a")
    for method, (generated, consumed, tokens) in (("naive", first), ("hacpo", second)):
        sweep.together(method, {0: {"a": 0.5}})
        sweep.cost(sweep.cells[-1], "a", generated, consumed, tokens)
    return sweep


def verdict(sweep: Sweep, ledgers: Ledgers | None = None) -> tuple[bool, str]:
    report = sweep.report(against="naive")
    (cost,) = [c for c in costs_of(report.rows, report.points, ledgers or {}) if c.control]
    return cost.equal, cost.why


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ((100, 100, 1000), ""),
        ((100, 100, 1049), ""),
        ((99, 99, 1000), "a s0 samples 99 rollouts, the control 100"),
        ((100, 100, 1060), "a s0 samples 1,060 tokens, the control 1,000"),
    ],
)
def test_rollouts_must_be_equal_and_tokens_nearly(
    second: tuple[int, int, int], reason: str
) -> None:
    assert verdict(priced((100, 100, 1000), second)) == (not reason, reason)


def test_what_was_consumed_must_be_equal_too() -> None:
    sweep = Sweep(["naive", "hacpo"], [0])
    for method in ("naive", "hacpo"):
        sweep.together(method, {0: {"a": 0.5, "b": 0.5}})
        for agent in "ab":
            consumed = 200 if method == "naive" else 100
            sweep.cost(sweep.cells[-1], agent, 100, consumed, 1000)
    costs = [c for c in sweep.report(against="naive").costs if c.control and c.agent == "a"]
    assert [c.why for c in costs] == ["a s0 consumes 100 rollouts, the control 200"]


def test_files_that_count_otherwise_are_told() -> None:
    sweep = priced((100, 100, 1000), (100, 100, 1000))
    same = Counted(rollouts_generated=100, rollouts_consumed=100, tokens_generated=1000)
    key = sweep.cells[-1].key, "a"
    assert verdict(sweep, {key: same}) == (True, "")
    other = verdict(sweep, {key: replace(same, rollouts_generated=101)})
    assert other == (False, "hacpo a s0: its files and the registry count differently for a")


def test_an_unknown_cost_is_not_an_equal_one() -> None:
    sweep = priced((100, 100, 1000), (100, 100, 1000))
    sweep.costs.pop()
    assert verdict(sweep) == (False, "hacpo a s0: no cost is recorded for a")
