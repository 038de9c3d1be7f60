"""Axes: B rows, T response tokens, PNG problems x sources x rollouts."""

import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from hacpo.algorithm import (
    group_advantages,
    kl_k3,
    mean_logprob,
    modulation,
    policy_objective,
    shared_advantages,
    token_objective,
    update_loss,
)

NAN = math.nan
few = settings(max_examples=25, deadline=None)
GSPO = {"clip_low": 0.0003, "clip_high": 0.0004}
WIDE = {"clip_low": 0.2, "clip_high": 0.28}


def f64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def one_row(
    is_self: bool, ratio: float, advantage: float, modulated: float, **setting: Any
) -> tuple[float, float]:
    """Objective and its derivative by the learner's mean logprob of a single row."""
    learner_B = f64(math.log(ratio)).requires_grad_()
    objective_B, _ = policy_objective(
        learner_B,
        f64(0.0),
        f64(advantage),
        torch.tensor([is_self]),
        f64(modulated),
        **({"floor": 0.8, "alpha": 1.0} | WIDE | setting),
    )
    (gradient_B,) = torch.autograd.grad(objective_B.sum(), learner_B)
    return objective_B.item(), gradient_B.item()


def self_row(ratio: float, advantage: float, **setting: Any) -> tuple[float, float]:
    return one_row(True, ratio, advantage, 5.0, **setting)


def cross_row(
    ratio: float, advantage: float, modulated: float = 1.0, **setting: Any
) -> tuple[float, float]:
    return one_row(False, ratio, advantage, modulated, **setting)


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective", "gradient"),
    [
        (1.1, 2.0, 2.2, 2.2),  # inside: s*A, derivative s*A
        (1.5, 2.0, 2.56, 0.0),  # above with A > 0: 1.28 * 2, clipped
        (1.5, -2.0, -3.0, -3.0),  # above with A < 0: the smaller is s*A
        (0.5, 2.0, 1.0, 1.0),  # below with A > 0: the smaller is s*A
        (0.5, -2.0, -1.6, 0.0),  # below with A < 0: 0.8 * -2, clipped
    ],
)
def test_self_rows_follow_the_min_clip_and_ignore_the_modulation(
    ratio: float, advantage: float, objective: float, gradient: float
) -> None:
    assert self_row(ratio, advantage) == pytest.approx((objective, gradient))


@pytest.mark.parametrize("advantage", [2.0, -2.0])
@pytest.mark.parametrize(
    ("ratio", "value", "weight"),
    [
        (0.9, 0.81, 0.81),  # inside: s * s^1, gradient s * detached s
        (0.5, 0.64, 0.0),  # below the floor: 0.8 * 0.8, clipped
        (1.7, 1.0, 0.0),  # above 1: 1 * 1, clipped
    ],
)
def test_cross_rows_are_clipped_and_reweighted_whatever_the_sign(
    ratio: float, value: float, weight: float, advantage: float
) -> None:
    objective, gradient = cross_row(ratio, advantage, modulated=0.5)
    assert objective == pytest.approx(value * 0.5 * advantage)
    assert gradient == pytest.approx(weight * 0.5 * advantage)


def test_without_a_floor_the_ratio_is_free_and_only_the_weight_is_bounded() -> None:
    assert cross_row(0.5, 2.0, floor=None) == pytest.approx((0.5, 0.5))  # 0.5 * 0.5 * 2
    assert cross_row(3.0, 2.0, floor=None) == pytest.approx((6.0, 6.0))  # 3 * 1 * 2


def test_alpha_0_leaves_the_clipped_ratio() -> None:
    assert cross_row(0.9, 2.0, alpha=0.0) == pytest.approx((1.8, 1.8))
    assert cross_row(0.5, 2.0, alpha=0.0) == pytest.approx((1.6, 0.0))


@few
@given(st.floats(-8.0, 8.0), st.floats(0.0, 3.0), st.floats(0.1, 0.99))
def test_a_cross_row_never_weighs_more_than_at_ratio_1(
    log_ratio: float, alpha: float, floor: float
) -> None:
    objective, gradient = cross_row(math.exp(log_ratio), 1.0, alpha=alpha, floor=floor)
    assert floor ** (1 + alpha) * (1 - 1e-12) <= objective <= 1.0
    assert 0.0 <= gradient <= 1.0


@pytest.mark.parametrize("advantage", [1.5, -0.5])
@pytest.mark.parametrize("ratio", [0.3, 0.95, 1.0, 1.4])
def test_naive_sharing_applies_the_self_rule_to_cross_rows(ratio: float, advantage: float) -> None:
    naive = cross_row(ratio, advantage, modulated=0.5, shared_rule="self")
    assert naive == self_row(ratio, advantage)


def test_the_returned_ratio_is_unclipped_bounded_by_the_clamp_and_detached() -> None:
    learner_B = f64(math.log(3.0), 50.0, -50.0).requires_grad_()
    _, ratio_B = policy_objective(
        learner_B,
        f64(0.0, 0.0, 0.0),
        f64(1.0, 1.0, 1.0),
        torch.tensor([False, True, False]),
        f64(1.0, 1.0, 1.0),
        floor=0.8,
        alpha=1.0,
        **GSPO,
    )
    assert ratio_B.tolist() == pytest.approx([3.0, math.exp(10), math.exp(-10)])
    assert not ratio_B.requires_grad


def _update(seed: int, shape: tuple[int, int, int], learner: int = 0) -> dict[str, Any]:
    """A random update: rewards with gaps and all row tensors of one learner."""
    generator = torch.Generator().manual_seed(seed)
    size = math.prod(shape)
    draw = torch.rand(size, generator=generator, dtype=torch.float64)
    rewards_PNG = torch.where(draw < 0.1, NAN, (draw > 0.5).double()).view(shape)
    capability = [0.3, 1e-8, 0.7, 0.5][: shape[1]]
    source_B = torch.arange(shape[1])[None, :, None].expand(shape).reshape(-1)
    advantages_PNG, _ = shared_advantages(rewards_PNG, learner, capability)
    source_mean_B = -torch.rand(size, generator=generator, dtype=torch.float64)
    offset_B = torch.randn(size, generator=generator, dtype=torch.float64) * 0.1
    return {
        "rewards_PNG": rewards_PNG,
        "learner_mean_B": source_mean_B + offset_B,
        "rows": (
            source_mean_B,
            advantages_PNG.flatten(),
            source_B == learner,
            modulation(capability, learner, source_B, dtype=torch.float64),
        ),
    }


@few
@given(
    st.integers(0, 10_000),
    st.integers(1, 3),
    st.integers(1, 8),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_one_agent_alone_under_hacpo_equals_gspo_bit_for_bit(
    seed: int, problems: int, group: int, dtype: torch.dtype
) -> None:
    update = _update(seed, (problems, 1, group))
    rewards_PNG = update["rewards_PNG"].to(dtype)
    source_B = update["rows"][0].to(dtype)
    results = []
    for method in ("hacpo", "gspo"):
        if method == "hacpo":
            advantages_B = shared_advantages(rewards_PNG, 0, [0.37])[0].flatten()
            index_B = torch.zeros(len(source_B), dtype=torch.long)
            modulation_B = modulation([0.37], 0, index_B, dtype=dtype)
        else:
            advantages_B = group_advantages(rewards_PNG[:, 0])[0].flatten()
            modulation_B = torch.ones_like(source_B)
        learner_B = update["learner_mean_B"].to(dtype).requires_grad_()
        objective_B, ratio_B = policy_objective(
            learner_B,
            source_B,
            advantages_B,
            torch.ones(len(source_B), dtype=torch.bool),
            modulation_B,
            floor=0.8,
            alpha=3.0,
            shared_rule="cross" if method == "hacpo" else "self",
            **WIDE,
        )
        loss = update_loss(objective_B, len(source_B))
        results.append((objective_B, ratio_B, loss, *torch.autograd.grad(loss, learner_B)))
    for hacpo, gspo in zip(*results, strict=True):
        assert torch.equal(hacpo, gspo)


@few
@given(st.integers(0, 10_000), st.integers(1, 24), st.sampled_from(["cross", "self"]))
def test_the_gradient_of_an_update_is_the_same_for_any_micro_batch_split(
    seed: int, micro_rows: int, shared_rule: Any
) -> None:
    update = _update(seed, (2, 3, 4), learner=2)
    gradients = []
    for rows in (24, micro_rows):
        learner_B = update["learner_mean_B"].clone().requires_grad_()
        for start in range(0, 24, rows):
            micro = slice(start, start + rows)
            objective_B, _ = policy_objective(
                learner_B[micro],
                *(row_B[micro] for row_B in update["rows"]),
                floor=0.8,
                alpha=1.0,
                shared_rule=shared_rule,
                **WIDE,
            )
            update_loss(objective_B, planned_rows=24).backward()
        assert learner_B.grad is not None
        gradients.append(learner_B.grad)
    # Only the division by 24 is repeated, so nothing but rounding may differ.
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-14, atol=0)
    source_B, advantage_B, is_self_B, _ = update["rows"]
    ratio_B = (update["learner_mean_B"] - source_B).exp()
    # Rarely there is none: a baseline of 1 leaves an advantage to wrong rows alone.
    assume((is_self_B & (advantage_B != 0) & (ratio_B > 0.8) & (ratio_B < 1.28)).any())
    assert gradients[0].abs().sum() > 0


def test_rows_left_out_of_the_backward_pass_keep_the_denominator() -> None:
    assert update_loss(f64(3.0, -1.0), planned_rows=8).item() == -0.25  # -(3 - 1) / 8
    with pytest.raises(ValueError, match="planned_rows is 0"):
        update_loss(f64(1.0), planned_rows=0)


@pytest.mark.parametrize("learner", [0, 1])
@pytest.mark.parametrize("floor", [0.8, None])
def test_a_dead_agent_gives_finite_objectives_and_gradients(
    learner: int, floor: float | None
) -> None:
    rewards_PNG = torch.tensor([[[0.0, 0.0], [1.0, NAN]]], dtype=torch.float32)
    capability = [1e-8, 0.5]
    source_B = torch.tensor([0, 0, 1, 1])
    learner_B = torch.tensor([-900.0, -0.1, -0.2, 0.0], requires_grad=True)
    objective_B, ratio_B = policy_objective(
        learner_B,
        torch.tensor([-0.1, -900.0, -0.1, -0.1]),
        shared_advantages(rewards_PNG, learner, capability)[0].flatten(),
        source_B == learner,
        modulation(capability, learner, source_B),
        floor=floor,
        alpha=3.0,
        **GSPO,
    )
    (gradient_B,) = torch.autograd.grad(objective_B.sum(), learner_B)
    for values_B in (objective_B, ratio_B, gradient_B):
        assert values_B.isfinite().all()
    assert objective_B[3] == gradient_B[3] == 0  # ungraded


@pytest.mark.parametrize("shared_rule", ["cross", "self"])
def test_the_gradient_is_the_derivative_of_the_value_where_nothing_is_detached(
    shared_rule: Any,
) -> None:
    # alpha 0: a detached weight is not part of the derivative that gradcheck measures.
    source_B, advantages_B, is_self_B, modulation_B = _update(3, (2, 2, 4))["rows"]
    # Well inside and well outside of the bounds: finite differences must not straddle a kink.
    offsets_B = f64(-0.7, -0.1, 0.1, 0.6).repeat(4)
    inputs = (source_B + offsets_B).requires_grad_()

    def objective(learner_B: Tensor) -> Tensor:
        return policy_objective(
            learner_B,
            source_B,
            advantages_B,
            is_self_B,
            modulation_B,
            floor=0.8,
            alpha=0.0,
            shared_rule=shared_rule,
            **WIDE,
        )[0]

    assert torch.autograd.gradcheck(objective, (inputs,))


def test_shapes_masks_and_rules_are_checked() -> None:
    def objective(advantages_B: Tensor, is_self_B: Tensor, shared_rule: Any = "cross") -> None:
        policy_objective(
            f64(0.0, 0.0),
            f64(0.0, 0.0),
            advantages_B,
            is_self_B,
            f64(1.0, 1.0),
            floor=0.8,
            alpha=1.0,
            shared_rule=shared_rule,
            **WIDE,
        )

    is_self_B = torch.tensor([True, False])
    with pytest.raises(ValueError, match=r"advantages_B \(2, 1\)"):
        objective(f64(1.0, 1.0)[:, None], is_self_B)
    with pytest.raises(ValueError, match=r"is_self_B is torch\.float64"):
        objective(f64(1.0, 1.0), f64(1.0, 0.0))
    with pytest.raises(ValueError, match="choose cross or self"):
        objective(f64(1.0, 1.0), is_self_B, "naive")


def test_token_objective_is_the_mean_over_the_rows_tokens_of_the_min_clip() -> None:
    learner_BT = f64(1.1, 1.5, 0.5, 1.5).view(2, 2).log().requires_grad_()
    mask_BT = torch.tensor([[True, True], [True, False]])
    objective_B = token_objective(
        learner_BT, torch.zeros_like(learner_BT), mask_BT, f64(2.0, -1.0), **WIDE
    )
    # (1.1 * 2 + 1.28 * 2) / 2 = 2.38; one token below with A < 0: 0.8 * -1
    assert objective_B.tolist() == pytest.approx([2.38, -0.8])
    (gradient_BT,) = torch.autograd.grad(objective_B.sum(), learner_BT)
    assert gradient_BT.flatten().tolist() == pytest.approx([1.1, 0.0, 0.0, 0.0])


def test_token_objective_ignores_padding_and_gives_0_for_a_row_without_tokens() -> None:
    learner_BT = torch.tensor([[NAN, NAN], [-1.0, NAN]], requires_grad=True)
    mask_BT = torch.tensor([[False, False], [True, False]])
    old_BT = torch.tensor([[0.0, 0.0], [-1.0, 0.0]])
    objective_B = token_objective(learner_BT, old_BT, mask_BT, torch.ones(2), **WIDE)
    assert objective_B.tolist() == [0.0, 1.0]
    (gradient_BT,) = torch.autograd.grad(objective_B.sum(), learner_BT)
    assert gradient_BT.tolist() == [[0.0, 0.0], [1.0, 0.0]]
    with pytest.raises(ValueError, match="shapes differ"):
        token_objective(learner_BT, old_BT, mask_BT, torch.ones(2, 1), **WIDE)


def test_k3_by_hand_is_0_at_equality_and_never_negative() -> None:
    learner_BT = f64(-1.0, -1.0, -1.0, -2.0).view(2, 2).requires_grad_()
    initial_BT = f64(-1.0, -1.0 + math.log(2), -1.0 - math.log(2), 9.0).view(2, 2)
    mask_BT = torch.tensor([[True, True], [True, False]])
    kl_B = kl_k3(learner_BT, initial_BT, mask_BT)
    # (0 + (2 - ln 2 - 1)) / 2 and 0.5 + ln 2 - 1
    expected = [(1 - math.log(2)) / 2, math.log(2) - 0.5]
    assert kl_B.tolist() == pytest.approx(expected)
    (gradient_BT,) = torch.autograd.grad(kl_B.sum(), learner_BT)
    # d/d learner = 1 - exp(initial - learner), over the row's tokens
    assert gradient_BT.flatten().tolist() == pytest.approx([0.0, -0.5, 0.5, 0.0])


def test_k3_gives_the_initial_policy_no_gradient_and_gradcheck_holds() -> None:
    generator = torch.Generator().manual_seed(0)
    learner_BT = torch.randn(3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    initial_BT = torch.randn(3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    mask_BT = torch.rand(3, 4, generator=generator) > 0.3
    assert torch.autograd.gradcheck(lambda x: kl_k3(x, initial_BT.detach(), mask_BT), learner_BT)
    assert torch.autograd.gradcheck(lambda x: mean_logprob(x, mask_BT), learner_BT)
    kl_k3(learner_BT, initial_BT, mask_BT).sum().backward()
    assert initial_BT.grad is None


def test_float64_stays_float64() -> None:
    update = _update(0, (1, 2, 2))
    outputs = policy_objective(
        update["learner_mean_B"], *update["rows"], floor=0.8, alpha=1.0, **GSPO
    )
    rows_BT = torch.zeros(2, 3, dtype=torch.float64)
    mask_BT = torch.ones(2, 3, dtype=torch.bool)
    outputs += (
        token_objective(rows_BT, rows_BT, mask_BT, f64(1.0, 1.0), **WIDE),
        kl_k3(rows_BT, rows_BT, mask_BT),
        mean_logprob(rows_BT, mask_BT),
    )
    assert {output.dtype for output in outputs} == {torch.float64}
