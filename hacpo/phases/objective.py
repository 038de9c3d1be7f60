"""The objective of some rows of a micro-batch under a run's rule, and what its clips did."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from hacpo.agents import Agent
from hacpo.algorithm import (
    kl_k3,
    mean_logprob,
    merge_extremes,
    merge_statistics,
    policy_objective,
    ratio_extremes,
    ratio_statistics,
    token_extremes,
    token_objective,
    token_statistics,
)
from hacpo.algorithm.stats import Extremes, Statistics
from hacpo.models.policy import Scores
from hacpo.phases.pool import Pool
from hacpo.phases.rows import Row
from hacpo.run import Run


@dataclass(slots=True)
class Totals:
    """Sums over all micro-batches and updates of a step."""

    means: Statistics = field(default_factory=dict)
    extremes: Extremes = field(default_factory=dict)
    norms: list[float] = field(default_factory=list)
    skipped: int = 0


def known_scores(rows: list[Row], agent: Agent) -> Scores:
    """Scores of self rows as they were after sampling."""
    lengths = torch.tensor([len(row.old_logprobs) for row in rows], device=agent.policy.device)
    positions = torch.arange(int(lengths.max()), device=agent.policy.device)
    mask_BT = positions < lengths.unsqueeze(1)
    logprobs_BT = _right_padded([row.old_logprobs for row in rows], mask_BT)
    return Scores(logprobs_BT, mask_BT, torch.zeros_like(logprobs_BT))


def row_objective(
    run: Run,
    pool: Pool,
    rows: list[Row],
    scores: Scores,
    floor: float | None,
    initial: dict[str, list[float]],
    totals: Totals,
    *,
    is_first: bool,
) -> Tensor:
    """Objective of each row of a micro-batch, counting what the clips did. Axis: B rows.

    At a step's first update the old log-probabilities of self rows are the new ones, detached: the
    weights are the same, so a ratio of other than 1 would be rounding, which in bfloat16 is more
    than a clip allows. What rounding did is measured: `ratio/noise`.
    """
    device = scores.logprobs_BT.device
    is_self_B = torch.tensor([r.is_self for r in rows], device=device)
    advantages_B = torch.tensor([r.advantage for r in rows], dtype=torch.float64, device=device)
    is_same_B = is_self_B & is_first
    if run.config.rule == "grpo":
        objective_B, means, extremes = _by_token(run, rows, scores, advantages_B, is_same_B)
    else:
        objective_B, means, extremes = _by_sequence(
            run, pool, rows, scores, advantages_B, is_self_B, is_same_B, floor
        )
    if is_first:
        new_B = mean_logprob(scores.logprobs_BT.detach().double(), scores.mask_BT)
        stored = [row.source_mean_logprob for row in rows]
        noise_B = (new_B - torch.tensor(stored, dtype=torch.float64, device=device)).exp()
        extremes["ratio/noise"] = ratio_extremes(noise_B, is_self_B)["ratio/self"]
    if run.config.algorithm.max_sampler_weight is not None:
        weights = [row.sampler_weight for row in rows]
        weight_B = torch.tensor(weights, dtype=torch.float64, device=device)
        objective_B = weight_B * objective_B
        means["sampler_gap/weight"] = (weight_B.sum(), torch.tensor(float(len(rows))))
    if initial:
        padded = [initial.get(r.view.rollout_id, []) for r in rows]
        initial_BT = _right_padded(padded, scores.mask_BT)
        kl_B = kl_k3(scores.logprobs_BT.double(), initial_BT, scores.mask_BT)
        kl_B = torch.where(is_self_B, kl_B, 0.0)
        means["kl/initial"] = (kl_B.detach().sum(), is_self_B.sum().double())
        if run.config.algorithm.kl:
            objective_B = objective_B - run.config.algorithm.kl * kl_B
    totals.means = merge_statistics(totals.means, means)
    totals.extremes = merge_extremes(totals.extremes, extremes)
    return objective_B


def _by_token(
    run: Run, rows: list[Row], scores: Scores, advantages_B: Tensor, is_same_B: Tensor
) -> tuple[Tensor, Statistics, Extremes]:
    """grpo: a ratio for each token."""
    low, high = run.config.algorithm.token_clip_low, run.config.algorithm.token_clip_high
    new_BT, mask_BT = scores.logprobs_BT.double(), scores.mask_BT
    stored_BT = _right_padded([r.old_logprobs for r in rows], mask_BT)
    old_BT = torch.where(is_same_B.unsqueeze(1), new_BT.detach(), stored_BT)
    return (
        token_objective(new_BT, old_BT, mask_BT, advantages_B, clip_low=low, clip_high=high),
        token_statistics(new_BT, old_BT, mask_BT, advantages_B, clip_low=low, clip_high=high),
        token_extremes(new_BT, old_BT, mask_BT),
    )


def _by_sequence(
    run: Run,
    pool: Pool,
    rows: list[Row],
    scores: Scores,
    advantages_B: Tensor,
    is_self_B: Tensor,
    is_same_B: Tensor,
    floor: float | None,
) -> tuple[Tensor, Statistics, Extremes]:
    """gspo, naive, hacpo: a ratio for each response."""
    settings = run.config.algorithm
    shared_rule: Literal["cross", "self"] = "cross" if run.config.rule == "hacpo" else "self"
    device = scores.logprobs_BT.device

    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=device)

    new_B = mean_logprob(scores.logprobs_BT.double(), scores.mask_BT)
    stored_B = column([r.source_mean_logprob for r in rows])
    objective_B, ratio_B = policy_objective(
        new_B,
        torch.where(is_same_B, new_B.detach(), stored_B),
        advantages_B,
        is_self_B,
        column([r.modulation for r in rows]),
        clip_low=settings.clip_low,
        clip_high=settings.clip_high,
        floor=floor,
        alpha=settings.alpha,
        max_abs_log_ratio=settings.max_abs_log_ratio,
        shared_rule=shared_rule,
    )
    means = ratio_statistics(
        ratio_B,
        advantages_B,
        is_self_B,
        torch.tensor([r.source for r in rows], device=device),
        clip_low=settings.clip_low,
        clip_high=settings.clip_high,
        floor=floor,
        shared_rule=shared_rule,
        source_names=pool.sources,
    )
    return objective_B, means, ratio_extremes(ratio_B, is_self_B)


def _right_padded(rows: list[list[float]], mask_BT: Tensor) -> Tensor:
    width = mask_BT.shape[1]
    padded = [row + [0.0] * (width - len(row)) for row in rows]
    return torch.tensor(padded, dtype=torch.float64, device=mask_BT.device)
