"""Axes: B rows, T response tokens."""

import math

import pytest
import torch

from hacpo.algorithm import mean_logprob, reweight, sequence_ratio, token_ratio

NAN = math.nan


def test_mean_logprob_is_over_the_rows_own_tokens() -> None:
    logprobs_BT = torch.tensor([[-1.0, -2.0, -9.0], [-3.0, 7.0, 7.0]], dtype=torch.float64)
    mask_BT = torch.tensor([[True, True, False], [True, False, False]])
    # (-1 - 2) / 2, -3 / 1
    assert mean_logprob(logprobs_BT, mask_BT).tolist() == [-1.5, -3.0]


def test_a_row_without_tokens_gives_0_and_zero_gradients_even_from_nan_padding() -> None:
    logprobs_BT = torch.tensor([[NAN, -math.inf], [-1.0, NAN]], requires_grad=True)
    means_B = mean_logprob(logprobs_BT, torch.tensor([[False, False], [True, False]]))
    assert means_B.tolist() == [0.0, -1.0]
    means_B.sum().backward()
    assert logprobs_BT.grad is not None
    assert logprobs_BT.grad.tolist() == [[0.0, 0.0], [1.0, 0.0]]


def test_sequence_ratio_is_the_exponential_of_the_difference() -> None:
    ratio_B = sequence_ratio(torch.tensor([-1.0, -2.0]), torch.tensor([-1.0, -2.0 - math.log(4)]))
    torch.testing.assert_close(ratio_B, torch.tensor([1.0, 4.0]))


def test_the_log_ratio_is_clamped_at_10_without_gradient_beyond() -> None:
    learner_B = torch.tensor([-30.0, 0.0, -1.0], dtype=torch.float64, requires_grad=True)
    ratio_B = sequence_ratio(learner_B, torch.tensor([-1.0, -30.0, -1.5], dtype=torch.float64))
    assert ratio_B.tolist() == pytest.approx([math.exp(-10), math.exp(10), math.exp(0.5)])
    (gradient_B,) = torch.autograd.grad(ratio_B.sum(), learner_B)
    assert gradient_B.tolist() == pytest.approx([0.0, 0.0, math.exp(0.5)])


def test_the_source_gets_no_gradient() -> None:
    learner_B = torch.tensor([-1.0], requires_grad=True)
    sequence_ratio(learner_B, learner_B).sum().backward()
    assert learner_B.grad is not None
    assert learner_B.grad.tolist() == [1.0]  # not 1 - 1 = 0


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened_before_any_arithmetic(narrow: torch.dtype) -> None:
    learner_B = torch.tensor([-1.0, -7.0], dtype=narrow)
    source_B = torch.tensor([-1.0625, -7.25], dtype=narrow)
    ratio_B = sequence_ratio(learner_B, source_B)
    assert ratio_B.dtype == torch.float32
    torch.testing.assert_close(ratio_B, torch.tensor([math.exp(0.0625), math.exp(0.25)]))
    # 400 times -0.1 in half precision would lose the sum's small digits
    logprobs_BT = torch.full((1, 400), -0.1, dtype=narrow)
    mean_B = mean_logprob(logprobs_BT, torch.ones(1, 400, dtype=torch.bool))
    torch.testing.assert_close(mean_B, logprobs_BT[:, 0].float())


def test_token_ratio_is_1_where_there_is_no_token() -> None:
    learner_BT = torch.tensor([[-1.0, NAN]])
    old_BT = torch.tensor([[-1.0 - math.log(2), -3.0]])
    ratio_BT = token_ratio(learner_BT, old_BT, torch.tensor([[True, False]]))
    torch.testing.assert_close(ratio_BT, torch.tensor([[2.0, 1.0]]))


def test_a_token_ratio_stays_finite_in_float32() -> None:
    mask_BT = torch.tensor([[True, True]])
    ratio_BT = token_ratio(torch.tensor([[0.0, -300.0]]), torch.tensor([[-300.0, 0.0]]), mask_BT)
    assert ratio_BT.isfinite().all()
    assert (ratio_BT > 0).all()


def test_reweighting_by_hand_with_a_detached_weight() -> None:
    clipped_B = torch.tensor([0.5, 0.8, 1.0], dtype=torch.float64, requires_grad=True)
    reweighted_B = reweight(clipped_B, alpha=2.0)
    # 0.5^3, 0.8^3, 1
    assert reweighted_B.tolist() == pytest.approx([0.125, 0.512, 1.0])
    (gradient_B,) = torch.autograd.grad(reweighted_B.sum(), clipped_B)
    # the weight alone, not 3 * 0.5^2
    assert gradient_B.tolist() == pytest.approx([0.25, 0.64, 1.0])


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 3.0])
def test_a_ratio_above_1_never_raises_the_weight(alpha: float) -> None:
    ratio_B = torch.tensor([1.0, 1.5, 20.0], dtype=torch.float64)
    assert torch.equal(reweight(ratio_B, alpha), ratio_B)


def test_alpha_0_is_the_identity_bit_for_bit() -> None:
    ratio_B = torch.tensor([1e-5, 0.3, 0.99, 1.0, 7.0])
    assert torch.equal(reweight(ratio_B, alpha=0.0), ratio_B)


def test_misfitting_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        sequence_ratio(torch.zeros(2), torch.zeros(2, 1))
    with pytest.raises(ValueError, match=r"mask_BT is torch\.int64"):
        mean_logprob(torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="must not be negative"):
        reweight(torch.ones(1), alpha=-1.0)
    with pytest.raises(ValueError, match="must be above 0"):
        sequence_ratio(torch.zeros(1), torch.zeros(1), max_abs_log_ratio=0.0)
