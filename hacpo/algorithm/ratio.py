"""Importance ratios and exponential importance sampling (Sec. 3.3).

Axes: B rows (one rollout as one learner reads it), T response tokens, padded on the right.
Log-probabilities are natural logarithms. All ratios are computed in float32 or wider.
"""

import torch
from torch import Tensor

# exp(60) and sums of it stay finite in float32. It bounds what no sampled token reaches, because
# 0 * inf would turn a whole gradient into NaN.
FINITE_LOG_RATIO = 60.0


def mean_logprob(logprobs_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean log-probability of each row's tokens: the logarithm of its length-normalised likelihood.

    Args:
        logprobs_BT: [B, T]; what the mask leaves out may hold anything, even NaN.
        mask_BT: [B, T] bool, True at response tokens.

    Returns:
        [B]. A row without tokens gives 0, attached to the graph with zero gradients.

    Raises:
        ValueError: the shapes differ or the mask is not bool.
    """
    check_rows(logprobs_BT=logprobs_BT, mask_BT=mask_BT)
    check_bool(mask_BT=mask_BT)
    return token_mean(logprobs_BT, mask_BT)


def sequence_ratio(
    learner_mean_logprob_B: Tensor,
    source_mean_logprob_B: Tensor,
    max_abs_log_ratio: float = 10.0,
) -> Tensor:
    """exp(learner's mean logprob - source's mean logprob), each in its own tokens (Eq. 11).

    Args:
        learner_mean_logprob_B: [B], carries the gradient.
        source_mean_logprob_B: [B] at sampling time; data, so it gets no gradient.
        max_abs_log_ratio: the log-ratio is clamped to +- this; beyond it the gradient is 0.

    Raises:
        ValueError: the shapes differ or the bound is not positive.
    """
    check_rows(
        learner_mean_logprob_B=learner_mean_logprob_B,
        source_mean_logprob_B=source_mean_logprob_B,
    )
    if not max_abs_log_ratio > 0:
        raise ValueError(f"max_abs_log_ratio is {max_abs_log_ratio}: it must be above 0")
    log_ratio_B = widened(learner_mean_logprob_B) - widened(source_mean_logprob_B).detach()
    return log_ratio_B.clamp(-max_abs_log_ratio, max_abs_log_ratio).exp()


def token_ratio(
    learner_logprobs_BT: Tensor, old_logprobs_BT: Tensor, response_mask_BT: Tensor
) -> Tensor:
    """exp(learner's - old logprob) of every response token, and 1 elsewhere (grpo).

    Raises:
        ValueError: the shapes differ or the mask is not bool.
    """
    check_rows(
        learner_logprobs_BT=learner_logprobs_BT,
        old_logprobs_BT=old_logprobs_BT,
        response_mask_BT=response_mask_BT,
    )
    check_bool(response_mask_BT=response_mask_BT)
    log_ratio_BT = widened(learner_logprobs_BT) - widened(old_logprobs_BT).detach()
    log_ratio_BT = torch.where(response_mask_BT, log_ratio_BT, 0.0)
    return log_ratio_BT.clamp(-FINITE_LOG_RATIO, FINITE_LOG_RATIO).exp()


def reweight(clipped_B: Tensor, alpha: float) -> Tensor:
    """ratio * stop_gradient(min(ratio, 1))^alpha of cross rows (Eq. 12).

    The bound by 1 only matters without a clip: a clipped cross ratio is at most 1 already.

    Args:
        clipped_B: [B] ratios above 0.
        alpha: exponent; 0 is the ablation of mechanism 3.

    Raises:
        ValueError: `alpha` is negative, which would raise the weight of unlikely rows.
    """
    if alpha < 0:
        raise ValueError(f"alpha is {alpha}: it must not be negative")
    weight_B: Tensor = clipped_B.detach().clamp(max=1.0) ** alpha
    return clipped_B * weight_B


def token_mean(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """[B] mean of each row's values where the mask is True; 0 for a row without any."""
    kept_BT = torch.where(mask_BT, widened(values_BT), 0.0)
    return kept_BT.sum(dim=1) / mask_BT.sum(dim=1).clamp(min=1)


def widened(values: Tensor) -> Tensor:
    """The values in float32, or as they are where that or wider."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def check_rows(**tensors: Tensor) -> None:
    """Raise ValueError unless all shapes are equal; broadcasting would mix rows silently."""
    if len({tensor.shape for tensor in tensors.values()}) > 1:
        found = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        raise ValueError(f"shapes differ: {found}")


def check_bool(**masks: Tensor) -> None:
    """Raise ValueError unless every mask is bool; an integer mask would index instead of select."""
    for name, mask in masks.items():
        if mask.dtype != torch.bool:
            raise ValueError(f"{name} is {mask.dtype}: it must be bool")
