"""Phase 3: every agent learns from the pool of all agents' verified responses.

pool -> capability -> advantages and views (rows.py) -> per update: ratio, clip, objective -> step.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from hacpo.agents import Agent
from hacpo.algorithm import (
    cross_floor,
    finish_extremes,
    finish_means,
    kl_k3,
    loss_denominator,
    mean_logprob,
    merge_extremes,
    merge_statistics,
    policy_objective,
    ratio_extremes,
    ratio_statistics,
    smoothed_capability,
    split_updates,
    token_extremes,
    token_objective,
    token_statistics,
    update_loss,
)
from hacpo.algorithm.stats import Extremes, Statistics
from hacpo.models.packing import micro_batches
from hacpo.models.policy import Scores
from hacpo.phases.pool import Pool, read_pool
from hacpo.phases.rollout import problems_of, score_rows
from hacpo.phases.rows import Row, rows_for
from hacpo.run import Run, close_run, open_run
from hacpo.types import View


def update(run_id: str, step: int, agents: tuple[str, ...]) -> None:
    """Update each learner from the step's pool; one that has made this step already is done."""
    run = open_run(run_id)
    pool = read_pool(run, step, problems_of(run, step))
    capability = capability_now(run, pool)
    try:
        for name in agents:
            if run.agents[name].learner.version == step:
                with run.timed(name, "update"), run.agents[name].training():
                    measured = _update(run, pool, run.agents[name], capability)
                run.step_metrics.setdefault(name, {}).update(measured)
                run.agents[name].learner.version = step + 1
    except BaseException:
        close_run(run_id)  # weights may be between two updates: only a checkpoint is to be trusted
        raise


def capability_now(run: Run, pool: Pool) -> list[float]:
    """Smoothed capability of every source, this step's rewards included."""
    settings = run.config.algorithm
    history = []
    for source, rewards_PG in zip(pool.sources, pool.rewards_PNG.unbind(1), strict=True):
        graded = rewards_PG[~rewards_PG.isnan()]
        current = float(graded.mean()) if graded.numel() else math.nan
        history.append([*run.state.capability_history.get(source, []), current])
    return smoothed_capability(history, settings.capability_window, settings.capability_minimum)


_Work = Literal["learn", "score", "know"]


@dataclass(slots=True)
class _Totals:
    """Sums over all micro-batches and updates of a step."""

    means: Statistics = field(default_factory=dict)
    extremes: Extremes = field(default_factory=dict)
    norms: list[float] = field(default_factory=list)
    skipped: int = 0


def _update(run: Run, pool: Pool, agent: Agent, capability: list[float]) -> dict[str, float]:
    config = run.config
    rows_by_problem, metrics = rows_for(run, pool, agent, capability)
    initial = _initial_logprobs(run, agent, rows_by_problem)
    num_sources, per_source = len(pool.sources), config.responses_per_problem
    updates = split_updates(
        len(pool.problems), num_sources * per_source, config.update.rows_per_update
    )
    totals = _Totals()
    for update_index, problems in enumerate(updates):
        rows = {r.view.rollout_id: r for p in problems for r in rows_by_problem[p]}
        planned = loss_denominator(
            len(problems), per_source, num_sources, config.algorithm.denominator
        )
        floor = None
        if config.rule == "hacpo":
            settings = config.algorithm
            floor = cross_floor(settings.floor, settings.floor_step, update_index)
        by_work: dict[_Work, list[View]] = {"learn": [], "score": [], "know": []}
        for row in rows.values():
            by_work[_work(run, row, update_index)].append(row.view)
        for work, chosen in by_work.items():
            share = agent.policy.shares_prompts
            for views in micro_batches(chosen, config.update.micro_tokens, share=share):
                micro = [rows[view.rollout_id] for view in views]
                with torch.set_grad_enabled(work == "learn"):
                    known = work == "know"
                    scores = _known(micro, agent) if known else agent.policy.score(views)
                    objective_B = _objective(run, pool, micro, scores, floor, initial, totals)
                if work == "learn":
                    agent.learner.backward(update_loss(objective_B, planned))
        norm, taken = agent.learner.optim_step()
        totals.norms.append(norm)
        totals.skipped += not taken
    return {
        "capability": capability[pool.sources.index(agent.name)],
        **metrics,
        **finish_means(totals.means),
        **finish_extremes(totals.extremes),
        "updates/count": float(len(updates)),
        "updates/skipped_nonfinite": float(totals.skipped),
        "grad_norm": sum(totals.norms) / len(totals.norms),
        "lr": agent.learner.learning_rate,
    }


def _work(run: Run, row: Row, update_index: int) -> _Work:
    """What a row needs in an update.

    A row of advantage 0 has no gradient unless a KL term acts on it, but it has metrics: at a later
    update from a forward pass, at the first one from what the same weights said after sampling.
    """
    if row.advantage != 0 or (run.config.algorithm.kl > 0 and row.is_self):
        return "learn"
    return "know" if row.is_self and update_index == 0 else "score"


def _known(rows: list[Row], agent: Agent) -> Scores:
    """Scores of self rows as they were after sampling."""
    lengths = torch.tensor([len(row.old_logprobs) for row in rows], device=agent.policy.device)
    positions = torch.arange(int(lengths.max()), device=agent.policy.device)
    mask_BT = positions < lengths.unsqueeze(1)
    logprobs_BT = _right_padded([row.old_logprobs for row in rows], mask_BT)
    return Scores(logprobs_BT, mask_BT, torch.zeros_like(logprobs_BT))


def _objective(
    run: Run,
    pool: Pool,
    rows: list[Row],
    scores: Scores,
    floor: float | None,
    initial: dict[str, list[float]],
    totals: _Totals,
) -> Tensor:
    """Objective of each row of a micro-batch, counting what the clips did. Axis: B rows."""
    device = scores.logprobs_BT.device
    is_self_B = torch.tensor([r.is_self for r in rows], device=device)
    advantages_B = torch.tensor([r.advantage for r in rows], dtype=torch.float64, device=device)
    if run.config.rule == "grpo":
        objective_B, means, extremes = _by_token(run, rows, scores, advantages_B)
    else:
        objective_B, means, extremes = _by_sequence(
            run, pool, rows, scores, advantages_B, is_self_B, floor
        )
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
    run: Run, rows: list[Row], scores: Scores, advantages_B: Tensor
) -> tuple[Tensor, Statistics, Extremes]:
    """grpo: a ratio for each token."""
    low, high = run.config.algorithm.token_clip_low, run.config.algorithm.token_clip_high
    new_BT, mask_BT = scores.logprobs_BT.double(), scores.mask_BT
    old_BT = _right_padded([r.old_logprobs for r in rows], mask_BT)
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
    floor: float | None,
) -> tuple[Tensor, Statistics, Extremes]:
    """gspo, naive, hacpo: a ratio for each response."""
    settings = run.config.algorithm
    shared_rule: Literal["cross", "self"] = "cross" if run.config.rule == "hacpo" else "self"
    device = scores.logprobs_BT.device

    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=device)

    objective_B, ratio_B = policy_objective(
        mean_logprob(scores.logprobs_BT.double(), scores.mask_BT),
        column([r.source_mean_logprob for r in rows]),
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


def _initial_logprobs(run: Run, agent: Agent, rows: list[list[Row]]) -> dict[str, list[float]]:
    """rollout id -> the initial policy's logprobs of self rows, if something reads them."""
    every = run.config.tracking.kl_every
    measured = every > 0 and run.state.step % every == 0
    if run.config.algorithm.kl == 0 and not measured:
        return {}
    views = [row.view for problem in rows for row in problem if row.is_self]
    scores = score_rows(run.initial_policy(agent.name), views, run.config.update.micro_tokens)
    return {identifier: logprobs for identifier, (logprobs, _) in scores.items()}


def _right_padded(rows: list[list[float]], mask_BT: Tensor) -> Tensor:
    width = mask_BT.shape[1]
    padded = [row + [0.0] * (width - len(row)) for row in rows]
    return torch.tensor(padded, dtype=torch.float64, device=mask_BT.device)
