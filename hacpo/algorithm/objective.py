"""What a learner maximises, row by row, and the loss of one update (Eq. 47-53).

Axes: B rows (one rollout as one learner reads it), T response tokens, padded on the right.
Objectives are sums to divide by the rows planned for the whole update, so that the split into
micro-batches never changes the result.
"""

from typing import Literal

import torch
from torch import Tensor

from hacpo.algorithm.clip import clip_cross, clip_self
from hacpo.algorithm.ratio import (
    FINITE_LOG_RATIO,
    check_bool,
    check_rows,
    reweight,
    sequence_ratio,
    token_mean,
    token_ratio,
    widened,
)


def policy_objective(
    learner_mean_logprob_B: Tensor,
    source_mean_logprob_B: Tensor,
    advantages_B: Tensor,
    is_self_B: Tensor,
    modulation_B: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    floor: float | None,
    alpha: float,
    max_abs_log_ratio: float = 10.0,
    shared_rule: Literal["cross", "self"] = "cross",
) -> tuple[Tensor, Tensor]:
    """Objective of each row at sequence level: gspo, naive and hacpo (Eq. 47, 50).

    Self rows: min(s*A, clip(s, 1 - clip_low, 1 + clip_high)*A).
    Cross rows: clip(s, floor, 1) * stop_gradient(clip(s, floor, 1))^alpha * modulation * A.
    Without a floor the cross ratio is free and only its weight is bounded: min(s, 1)^alpha.

    Args:
        learner_mean_logprob_B: [B] in the learner's tokens; the only input with a gradient.
        source_mean_logprob_B: [B] at sampling time, in the source's tokens.
        advantages_B: [B], 0 where a row must not be learned from.
        is_self_B: [B] bool, True where the learner itself sampled the row.
        modulation_B: [B], multiplies cross rows only (see `modulation`).
        clip_low: self clip below 1.
        clip_high: self clip above 1.
        floor: lower bound of this update's cross ratios (`cross_floor`); None is no clip.
        alpha: exponent of the detached weight of cross rows.
        max_abs_log_ratio: bound of the log-ratio.
        shared_rule: "self" is naive sharing: the self rule on every row, no modulation.

    Returns:
        objective [B] to maximise, and the ratio [B] before clipping, detached.

    Raises:
        ValueError: shapes differ, `is_self_B` is not bool, or a setting is out of range.
    """
    check_rows(
        learner_mean_logprob_B=learner_mean_logprob_B,
        source_mean_logprob_B=source_mean_logprob_B,
        advantages_B=advantages_B,
        is_self_B=is_self_B,
        modulation_B=modulation_B,
    )
    check_bool(is_self_B=is_self_B)
    if shared_rule not in ("cross", "self"):
        raise ValueError(f"shared_rule is {shared_rule!r}: choose cross or self")
    ratio_B = sequence_ratio(learner_mean_logprob_B, source_mean_logprob_B, max_abs_log_ratio)
    objective_B = torch.minimum(
        ratio_B * advantages_B, clip_self(ratio_B, clip_low, clip_high) * advantages_B
    )
    if shared_rule == "cross":
        cross_B = reweight(clip_cross(ratio_B, floor), alpha) * modulation_B * advantages_B
        objective_B = torch.where(is_self_B, objective_B, cross_B)
    return objective_B, ratio_B.detach()


def token_objective(
    learner_logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    response_mask_BT: Tensor,
    advantages_B: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> Tensor:
    """Objective of each row at token level (grpo): mean over its tokens of min(r*A, clip(r)*A).

    Args:
        learner_logprobs_BT: [B, T], carries the gradient.
        old_logprobs_BT: [B, T] of the weights that sampled the row.
        response_mask_BT: [B, T] bool, True at response tokens.
        advantages_B: [B], one for all tokens of a row.
        clip_low: token clip below 1.
        clip_high: token clip above 1.

    Returns:
        objective [B] to maximise; 0 for a row without tokens.

    Raises:
        ValueError: shapes differ, the mask is not bool, or a clip is out of range.
    """
    ratio_BT = token_ratio(learner_logprobs_BT, old_logprobs_BT, response_mask_BT)
    check_rows(response_mask_B=response_mask_BT.any(dim=1), advantages_B=advantages_B)
    advantages_BT = advantages_B[:, None]
    objective_BT = torch.minimum(
        ratio_BT * advantages_BT, clip_self(ratio_BT, clip_low, clip_high) * advantages_BT
    )
    return token_mean(objective_BT, response_mask_BT)


def kl_k3(
    learner_logprobs_BT: Tensor, initial_logprobs_BT: Tensor, response_mask_BT: Tensor
) -> Tensor:
    """k3 estimate of each row's KL to the initial policy: exp(d) - d - 1, d = initial - learner.

    Args:
        learner_logprobs_BT: [B, T], carries the gradient.
        initial_logprobs_BT: [B, T] under the frozen initial policy; gets no gradient.
        response_mask_BT: [B, T] bool, True at response tokens.

    Returns:
        [B] mean over the row's tokens, never negative; 0 for a row without tokens.

    Raises:
        ValueError: shapes differ or the mask is not bool.
    """
    check_rows(
        learner_logprobs_BT=learner_logprobs_BT,
        initial_logprobs_BT=initial_logprobs_BT,
        response_mask_BT=response_mask_BT,
    )
    check_bool(response_mask_BT=response_mask_BT)
    gap_BT = widened(initial_logprobs_BT).detach() - widened(learner_logprobs_BT)
    gap_BT = torch.where(response_mask_BT, gap_BT, 0.0)
    gap_BT = gap_BT.clamp(-FINITE_LOG_RATIO, FINITE_LOG_RATIO)
    return token_mean(gap_BT.expm1() - gap_BT, response_mask_BT)


def update_loss(objective_B: Tensor, planned_rows: int) -> Tensor:
    """A micro-batch's part of the loss of its update; the parts of all micro-batches add up.

    Args:
        objective_B: [B] objectives of the micro-batch's rows.
        planned_rows: of the whole update (`loss_denominator`), rows left out included.

    Raises:
        ValueError: `planned_rows` is below 1.
    """
    if planned_rows < 1:
        raise ValueError(f"planned_rows is {planned_rows}: an update has at least one row")
    return -objective_B.sum() / planned_rows
