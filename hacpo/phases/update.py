"""Phase 3: every agent learns from the pool of all agents' verified responses.

pool -> capability -> advantages and views (rows.py) -> per update: ratio, clip, objective -> step.
"""

import math
from typing import Literal

import torch

from hacpo.agents import Agent
from hacpo.algorithm import (
    cross_floor,
    finish_extremes,
    finish_means,
    loss_denominator,
    smoothed_capability,
    split_updates,
    update_loss,
)
from hacpo.models.packing import micro_batches
from hacpo.phases.objective import Totals, known_scores, row_objective
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


def _update(run: Run, pool: Pool, agent: Agent, capability: list[float]) -> dict[str, float]:
    config = run.config
    rows_by_problem, metrics = rows_for(run, pool, agent, capability)
    initial = _initial_logprobs(run, agent, rows_by_problem)
    num_sources, per_source = len(pool.sources), config.responses_per_problem
    updates = split_updates(
        len(pool.problems), num_sources * per_source, config.update.rows_per_update
    )
    totals = Totals()
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
            for views in micro_batches(
                chosen, config.update.micro_tokens, agent.policy.pack_tokens
            ):
                micro = [rows[view.rollout_id] for view in views]
                with torch.set_grad_enabled(work == "learn"):
                    known = work == "know"
                    scores = known_scores(micro, agent) if known else agent.policy.score(views)
                    objective_B = row_objective(
                        *(run, pool, micro, scores, floor, initial, totals),
                        is_first=update_index == 0,
                    )
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


def _initial_logprobs(run: Run, agent: Agent, rows: list[list[Row]]) -> dict[str, list[float]]:
    """rollout id -> the initial policy's logprobs of self rows, if something reads them."""
    every = run.config.tracking.kl_every
    measured = every > 0 and run.state.step % every == 0
    if run.config.algorithm.kl == 0 and not measured:
        return {}
    views = [row.view for problem in rows for row in problem if row.is_self]
    scores = score_rows(run.initial_policy(agent.name), views, run.config.update.micro_tokens)
    return {identifier: logprobs for identifier, (logprobs, _) in scores.items()}
