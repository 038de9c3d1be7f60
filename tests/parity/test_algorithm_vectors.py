"""hacpo.algorithm against float64 vectors of an independent implementation.

The full vectors lie beside the repository (../shared/vectors); a small subset is committed
in tests/data/vectors and always runs.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hacpo.algorithm import (
    cross_floor,
    modulation,
    policy_objective,
    shared_advantages,
    smoothed_capability,
    token_objective,
    update_loss,
)

REPOSITORY = Path(__file__).resolve().parents[2]
COMMITTED = REPOSITORY / "tests" / "data" / "vectors"
SHARED = REPOSITORY.parent / "shared" / "vectors"


def _cases(name: str) -> list[Any]:
    """Committed cases, then the shared ones, or one skipped stand-in where those are absent."""
    params: list[Any] = [
        pytest.param(case, id=f"committed-{case['id']}")
        for case in json.loads((COMMITTED / name).read_text())
    ]
    if not (SHARED / name).exists():
        skip = pytest.mark.skip(reason=f"no {SHARED / name}: only the committed subset runs")
        return [*params, pytest.param(None, id="shared", marks=skip)]
    shared = json.loads((SHARED / name).read_text())
    return params + [pytest.param(case, id=f"shared-{case['id']}") for case in shared]


def _tensor(values: Any) -> torch.Tensor:
    """float64, with NaN for null."""
    if isinstance(values, list):
        return torch.stack([_tensor(value) for value in values])
    return torch.tensor(float("nan") if values is None else values, dtype=torch.float64)


def _assert_close(actual: torch.Tensor, expected: Any, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(actual, _tensor(expected), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("method", ["hacpo", "naive"])
@pytest.mark.parametrize("case", _cases("hacpo_cases.json"))
def test_sequence_methods_match_the_independent_vectors(case: dict[str, Any], method: str) -> None:
    shared_by_rule = method == "hacpo"
    expected, settings, bounds = case[method], case["settings"], case["capability"]
    rewards_PNG = _tensor(case["rewards_PNG"])
    num_problems, num_agents, group = rewards_PNG.shape

    capability = smoothed_capability(bounds["history"], bounds["window"], bounds["minimum"])
    _assert_close(torch.tensor(capability, dtype=torch.float64), bounds["expected"])

    advantages_PNG, baseline_P = shared_advantages(
        rewards_PNG,
        case["learner"],
        capability,
        ratio_low=bounds["ratio_min"],
        ratio_high=bounds["ratio_max"],
        epsilon=case["epsilon"],
        capability_aware=shared_by_rule,
    )
    _assert_close(baseline_P, expected["baseline_P"])
    _assert_close(advantages_PNG, expected["advantage_PNG"])

    source_PNG = torch.arange(num_agents)[None, :, None].expand(num_problems, num_agents, group)
    source_B = source_PNG.reshape(-1)
    modulation_B = modulation(
        capability,
        case["learner"],
        source_B,
        ratio_low=bounds["ratio_min"],
        ratio_high=bounds["ratio_max"],
        dtype=torch.float64,
    )
    learner_PNG = _tensor(case["learner_mean_logprob_PNG"]).requires_grad_()
    objective_B, ratio_B = policy_objective(
        learner_PNG.flatten(),
        _tensor(case["source_mean_logprob_PNG"]).flatten(),
        advantages_PNG.flatten(),
        source_B == case["learner"],
        modulation_B,
        clip_low=settings["clip_low"],
        clip_high=settings["clip_high"],
        floor=cross_floor(settings["floor"], settings["floor_step"], settings["update_index"]),
        alpha=settings["alpha"],
        max_abs_log_ratio=settings["max_abs_log_ratio"],
        shared_rule="cross" if shared_by_rule else "self",
    )
    if shared_by_rule:
        _assert_close(modulation_B.view_as(rewards_PNG), expected["modulation_PNG"])
        _assert_close(ratio_B.view_as(rewards_PNG), expected["ratio_PNG"])
    _assert_close(objective_B.detach().view_as(rewards_PNG), expected["objective_PNG"])

    loss = update_loss(objective_B, rewards_PNG.numel())
    _assert_close(loss.detach(), expected["loss"])
    (gradient_PNG,) = torch.autograd.grad(loss, learner_PNG)
    _assert_close(gradient_PNG, expected["loss_grad_wrt_learner_mean_logprob_PNG"], 1e-9)


@pytest.mark.parametrize("case", _cases("grpo_cases.json"))
def test_token_objective_matches_the_independent_vectors(case: dict[str, Any]) -> None:
    objective_B = token_objective(
        _tensor(case["learner_logprobs_BT"]),
        _tensor(case["old_logprobs_BT"]),
        torch.tensor(case["response_mask_BT"]),
        _tensor(case["advantages_B"]),
        clip_low=case["clip_low"],
        clip_high=case["clip_high"],
    )
    _assert_close(objective_B, case["objective_B"])
