"""Whole steps on tiny models: what the mathematics promises must hold through all the parts."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hacpo.loop import train_run
from hacpo.places import run_folder
from hacpo.presets import load_run
from hacpo.run import close_run, start_run
from hacpo.types import StepSummary
from tests.tiny import tiny_pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    config = tiny_pair(tmp_path_factory.mktemp("models"))
    return config | {"evaluate": {"samples": 0, "greedy": False}}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HACPO_HOME", str(tmp_path))


def run(
    config: dict[str, Any], *overrides: str, agent: str | None = None, name: str = "run"
) -> list[StepSummary]:
    resolved = load_run(config, overrides, agent)
    opened = start_run(name, resolved)
    ledger = opened.ledger
    train_run(name)
    close_run(name)
    return [ledger.read_summary(step) for step in range(resolved.steps)]


def weights(agent: str, name: str = "run", step: int = 2) -> dict[str, torch.Tensor]:
    folder = run_folder(name) / "checkpoints" / f"{step:06d}" / "agents" / agent / "model"
    return load_file(folder / "model.safetensors")


def test_at_the_first_update_self_ratios_are_1_and_nothing_is_clipped(pair: dict[str, Any]) -> None:
    (summary, *_) = run(pair, "update.rows_per_update=32")  # one update a step
    for agent in summary.agents.values():
        assert agent.metrics["updates/count"] == 1
        assert abs(agent.metrics["ratio/self_min"] - 1) < 1e-5
        assert abs(agent.metrics["ratio/self_max"] - 1) < 1e-5
        assert agent.metrics["clip/self_low"] == agent.metrics["clip/self_high"] == 0


def test_one_agent_under_hacpo_equals_gspo_bit_for_bit(pair: dict[str, Any]) -> None:
    alone = run(pair, "method=hacpo", agent="a", name="hacpo")
    gspo = run(pair, "method=gspo", agent="a", name="gspo")
    for one, other in zip(alone, gspo, strict=True):
        for key in ("reward/mean", "grad_norm", "ratio/self_mean", "advantage/std"):
            assert one.agents["a"].metrics[key] == other.agents["a"].metrics[key]
    first, second = weights("a", "hacpo"), weights("a", "gspo")
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_micro_batches_change_nothing_but_rounding(pair: dict[str, Any]) -> None:
    whole = run(pair, "update.micro_tokens=4096", name="whole")[0]
    split = run(pair, "update.micro_tokens=40", name="split")[0]
    for agent in ("a", "b"):
        one, other = whole.agents[agent].metrics, split.agents[agent].metrics
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-4)
        assert one["ratio/cross_mean"] == pytest.approx(other["ratio/cross_mean"], rel=1e-5)
        assert one["updates/count"] == other["updates/count"] == 2


@pytest.mark.parametrize(
    ("method", "agent", "updates", "generated", "consumed"),
    [
        # 4 problems x 4 responses = 16 rows, 16 rows per update
        ("grpo", "a", 1, 16, 16),
        ("gspo", "a", 1, 16, 16),
        ("gspo_x2", "a", 2, 32, 32),
        ("naive", None, 2, 16, 32),
        ("hacpo", None, 2, 16, 32),
    ],
)
def test_each_method_makes_its_updates_and_counts_its_rollouts(
    pair: dict[str, Any],
    method: str,
    agent: str | None,
    updates: int,
    generated: int,
    consumed: int,
) -> None:
    summaries = run(pair, f"method={method}", agent=agent)
    for name, step in summaries[-1].agents.items():
        assert step.metrics["updates/count"] == updates
        assert step.metrics["rollouts/generated"] == generated
        assert step.metrics["rollouts/consumed"] == consumed
        assert step.metrics["rollouts/cumulative"] == 2 * generated
        assert step.metrics["grad_norm"] > 0
        before = load_file(Path(pair["agents"][name]["model"]) / "model.safetensors")
        assert any(not torch.equal(before[key], value) for key, value in weights(name).items())


def says_one(problem: dict[str, str], response: str) -> float:
    """What models that say 0 or 1 at random can learn from any start, on any processor."""
    return float(response == "#1")


def test_learning_raises_the_reward(pair: dict[str, Any]) -> None:
    config = pair | {"verifier": {"type": "custom", "reward": f"{__name__}:says_one"}}
    summaries = run(config, "steps=25", "update.learning_rate=3e-3", "checkpoints.every=25")
    for agent in ("a", "b"):
        rewards = [summary.agents[agent].reward_mean for summary in summaries]
        assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.2


def sometimes_silent(problem: dict[str, str], response: str) -> float | None:
    """Cannot grade half of the problems."""
    return None if int(problem["id"][1:]) % 2 else float(response.endswith(problem["answer"]))


def test_ungraded_rows_are_counted_and_never_zero(pair: dict[str, Any]) -> None:
    own = {"verifier": {"type": "custom", "reward": "tests.integration.test_step:sometimes_silent"}}
    (summary, *_) = run(pair | own, "steps=1", "update.problems_per_step=16")  # all 16 problems
    for agent in summary.agents.values():
        assert agent.metrics["rollouts/ungraded"] == 32  # 8 odd problems x 4 responses
        assert agent.metrics["verifier/error_count"] == 32
        assert agent.metrics["rows/ungraded"] + agent.metrics["rows/special_token"] >= 64
        assert agent.reward_mean == agent.reward_mean  # not NaN


@pytest.mark.parametrize(("rule", "ungraded"), [("grade", False), ("zero", False), ("drop", True)])
def test_truncated_rows_follow_the_rule(pair: dict[str, Any], rule: str, ungraded: bool) -> None:
    (summary, *_) = run(
        pair, "steps=1", f"rollout.truncated={rule}", "rollout.max_response_tokens=2"
    )
    for agent in summary.agents.values():
        metrics = agent.metrics
        assert metrics["response/truncated_fraction"] > 0.5
        cut = metrics["response/truncated_fraction"] * 16
        assert metrics["rollouts/ungraded"] == (cut if ungraded else 0)


def test_kl_to_the_initial_policy_is_0_at_first_and_then_grows(pair: dict[str, Any]) -> None:
    with_kl = run(pair, "algorithm.kl=0.1", "update.rows_per_update=32")
    for agent in ("a", "b"):
        first, second = (summary.agents[agent].metrics["kl/initial"] for summary in with_kl)
        assert abs(first) < 1e-6
        assert second > 1e-6


def test_a_floor_of_1_leaves_only_cross_rows_at_their_ceiling(pair: dict[str, Any]) -> None:
    (summary, *_) = run(pair, "steps=1", "algorithm.floor=1")
    for agent in summary.agents.values():
        below = agent.metrics["clip/cross_floor"]
        above = agent.metrics["clip/cross_ceiling"]
        assert below + above == pytest.approx(1.0)
