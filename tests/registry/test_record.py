import math

import pytest

from hacpo.errors import RegistryError
from tests.registry.helpers import evaluation, spec, submit, summary


def test_a_replayed_step_overwrites_itself(registry, take):
    submit(registry, "k")
    claim = take()
    for step in range(3):
        registry.record_step(claim, summary(step, {"a": 0.1, "b": 0.2}))
    registry.record_step(claim, summary(1, {"a": 0.9, "b": 0.8}))

    rows = {(row.step, row.agent): row.reward_mean for row in registry.step_rows("k")}
    assert rows[1, "a"] == 0.9
    assert len(rows) == 6
    (cell,) = registry.sweep("sweep").cells
    assert cell.steps_done == 2  # step 2 will be replayed too
    assert cell.rollouts == 2 * 2 * 64
    assert cell.agents["a"].reward == 0.9
    assert cell.agents["a"].reward_recent == pytest.approx((0.1 + 0.9) / 2)


def test_a_view_shows_the_latest_reward_and_the_mean_of_the_last_five_steps(registry, take):
    submit(registry, "k")
    claim = take()
    for step in range(8):
        registry.record_step(claim, summary(step, {"b": step / 10, "a": 0.0}))
    (cell,) = registry.sweep("sweep").cells
    assert list(cell.agents) == ["a", "b"]
    assert cell.agents["b"].reward == 0.7
    assert cell.agents["b"].reward_recent == pytest.approx(0.5)  # (3 + 4 + 5 + 6 + 7) / 50
    assert (cell.agents["b"].capability, cell.seconds_per_step) == (0.5, 2.0)
    assert (cell.steps_done, cell.rollouts, cell.rollouts_planned) == (8, 8 * 2 * 64, 128)


def test_a_cell_without_steps_shows_no_rewards(registry):
    submit(registry, "k")
    (cell,) = registry.sweep("sweep").cells
    assert (cell.agents["a"].reward, cell.agents["a"].reward_recent) == (None, None)
    assert (cell.seconds_per_step, cell.steps_done, cell.rollouts) == (None, 0, 0)
    assert (cell.started, cell.host, cell.heartbeat_age) == (None, None, None)


def test_ungraded_steps_stay_nan_and_are_left_out_of_means(registry, take):
    submit(registry, "k")
    claim = take()
    registry.record_step(claim, summary(0, {"a": 0.5, "b": 0.5}))
    registry.record_step(claim, summary(1, {"a": math.nan, "b": 0.0}))
    assert math.isnan(registry.step_rows("k")[2].reward_mean)
    (cell,) = registry.sweep("sweep").cells
    assert (cell.agents["a"].reward, cell.agents["a"].reward_recent) == (None, 0.5)
    assert cell.agents["b"].reward == 0.0


def test_a_repeated_evaluation_replaces_the_earlier_one_with_its_problems(registry, take):
    submit(registry, "k")
    claim = take()
    registry.record_evaluation(claim, evaluation(mean=0.5))
    registry.record_evaluation(claim, evaluation(mean=0.25, scores=[1.0, math.nan]))
    (row,) = registry.evaluations("sweep")
    assert (row.mean, row.counts) == (0.25, {"correct": 1, "wrong": 3})
    scores = registry.problem_scores("k", agent="a", step=0, task="held_out", protocol="avg@2")
    assert [score.problem_id for score in scores] == ["p2", "p1"]
    assert scores[0].scores[0] == 1.0
    assert math.isnan(scores[0].scores[1])


def test_evaluations_carry_the_names_of_the_sweep_and_the_model(registry, take):
    shared = spec("k", "a", label="gspo a s0", method="gspo", combination="a")
    other = spec("k", "a", label="base a s0", method="base", combination="alone")
    registry.register_sweep("one", owner="ann", config={}, cells=[shared])
    registry.register_sweep("two", owner="ann", config={}, cells=[spec("j"), other])
    claim = take(cell_key="k")
    registry.record_evaluation(claim, evaluation(step=60))
    registry.record_evaluation(claim, evaluation(step=0))
    rows = registry.evaluations("two")
    assert [row.step for row in rows] == [0, 60]
    assert (rows[0].cell_key, rows[0].label, rows[0].method) == ("k", "base a s0", "base")
    assert (rows[0].combination, rows[0].identity, rows[0].model) == ("alone", "aa", "model-a")
    assert registry.evaluations("one")[0].method == "gspo"


def test_an_untrained_model_is_measured_once(registry, take):
    submit(registry, "k", "j")
    one, two = take(), take()
    assert registry.find_evaluation("untrained-a", task="held_out", protocol="avg@2") is None
    registry.record_evaluation(one, evaluation(), identity_key="untrained-a")
    registry.record_evaluation(one, evaluation(step=60, mean=0.9))
    found = registry.find_evaluation("untrained-a", task="held_out", protocol="avg@2", agent="x")
    assert found is not None
    assert (found.agent, found.step, found.mean) == ("x", 0, 0.25)
    assert found.problems == evaluation().problems
    assert registry.find_evaluation("untrained-a", task="held_out", protocol="greedy") is None
    registry.record_evaluation(two, found, identity_key="untrained-a")


def test_checkpoints_are_listed_until_they_are_forgotten(registry, take):
    submit(registry, "k")
    claim = take()
    for step in (10, 20):
        registry.record_checkpoint(claim, step, f"/c/{step}", 5_000_000_000, "abc")
    registry.record_checkpoint(claim, 20, "/d/20", 6_000_000_000, "def")
    registry.forget_checkpoint(claim, 10)
    (row,) = registry.cell("k").checkpoints
    assert (row.step, row.path, row.bytes, row.sha256) == (20, "/d/20", 6_000_000_000, "def")


def test_costs_are_totals(registry, take):
    submit(registry, "k")
    claim = take()
    for done in (64, 128):
        registry.record_cost(
            claim,
            "a",
            rollouts_generated=done,
            rollouts_consumed=2 * done,
            tokens=10**10,
            device_seconds=1.5,
        )
    (row,) = registry.costs("sweep")
    assert (row.agent, row.identity, row.label) == ("a", "aa", "hacpo a+b k")
    assert (row.rollouts_generated, row.rollouts_consumed) == (128, 256)
    assert (row.tokens, row.device_seconds) == (10**10, 1.5)


def test_a_cell_is_found_by_key_label_or_the_start_of_its_key(registry):
    submit(registry, "abc1", "abc2", "b_1", "bx1")
    assert registry.cell("abc1").cell.key == "abc1"
    assert registry.cell("hacpo a+b abc2").cell.key == "abc2"
    assert registry.cell("b_").cell.key == "b_1"  # not a wildcard
    with pytest.raises(RegistryError, match=r"'abc' means several cells \(abc1, abc2\)"):
        registry.cell("abc")
    for unknown in ("x", ""):
        with pytest.raises(RegistryError, match=f"no cell '{unknown}'"):
            registry.cell(unknown)


def test_asking_for_what_does_not_exist_names_what_does(registry):
    submit(registry, "k")
    for ask in (registry.sweep, registry.unfinished, registry.evaluations, registry.costs):
        with pytest.raises(RegistryError, match="no sweep 'other' in the registry; known: sweep"):
            ask("other")
    with pytest.raises(RegistryError, match=r"no evaluation of agent 'a' after 0 steps"):
        registry.problem_scores("k", agent="a", step=0, task="held_out", protocol="greedy")
