"""The pool as one learner reads it: each trajectory with its tokens, advantage and weight.

Axes: P problems, N sources, G responses per source; rows are the flattened P, N, G.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch

from hacpo.agents import Agent
from hacpo.algorithm import joint_advantages, modulation
from hacpo.phases.pool import Pool
from hacpo.run import Run
from hacpo.types import Trajectory, View


@dataclass(frozen=True, slots=True)
class Row:
    """One trajectory seen by one learner."""

    view: View
    is_self: bool
    source: int
    """Index into `pool.sources`."""
    advantage: float
    modulation: float
    source_mean_logprob: float
    """Of the response under its source at sampling time, in the source's tokens."""
    old_logprobs: list[float]
    """Self rows: per token; empty for cross rows."""
    sampler_weight: float
    """Truncated importance correction of the source's engine; 1 if that is off."""


def rows_for(
    run: Run, pool: Pool, learner: Agent, capability: list[float]
) -> tuple[list[list[Row]], dict[str, float]]:
    """Rows of each problem that can be learned from, and metrics over all of them.

    A row without a loss term (ungraded, not shareable, too long for this learner) is left out here
    and counted; its update's planned denominator keeps it.
    """
    k = pool.sources.index(learner.name)
    settings = run.config.algorithm
    aware = run.config.rule == "hacpo"
    advantages_PNG, baseline_P = joint_advantages(
        pool.rewards_PNG,
        k,
        capability,
        baseline_of=settings.baseline_of,
        ratio_low=settings.ratio_low,
        ratio_high=settings.ratio_high,
        epsilon=settings.epsilon,
        capability_aware=aware and settings.capability_aware,
        guard_baseline=settings.guard_baseline,
    )
    modulation_N = modulation(
        capability,
        k,
        torch.arange(len(pool.sources)),
        ratio_low=settings.ratio_low,
        ratio_high=settings.ratio_high,
        enabled=aware and settings.modulation,
        dtype=torch.float64,
    ).tolist()
    advantages = advantages_PNG.tolist()
    excluded: dict[str, int] = dict.fromkeys(
        (
            "ungraded",
            "special_token",
            "undecodable",
            "empty",
            "unreadable",
            "overflow",
            "changed",
        ),
        0,
    )
    read = _Reader(run, learner)
    rows: list[list[Row]] = []
    for p, problem in enumerate(pool.problems):
        prompt_ids = learner.tokens.render(problem)
        kept: list[Row] = []
        for n, group in enumerate(pool.rows_PNG[p]):
            for g, trajectory in enumerate(group):
                view = read(trajectory, prompt_ids)
                reason = view.excluded or ("ungraded" if math.isnan(trajectory.reward) else "")
                if reason:
                    excluded[reason] += 1
                    continue
                logprobs = trajectory.rollout.source_logprobs
                kept.append(
                    Row(
                        view=view,
                        is_self=n == k,
                        source=n,
                        advantage=advantages[p][n][g],
                        modulation=modulation_N[n],
                        source_mean_logprob=math.fsum(logprobs) / len(logprobs),
                        old_logprobs=logprobs if n == k else [],
                        sampler_weight=_sampler_weight(trajectory, settings.max_sampler_weight),
                    )
                )
        rows.append(kept)
    graded = advantages_PNG[~pool.rewards_PNG.isnan()].tolist()
    metrics = {
        "advantage/mean": _mean(graded),
        "advantage/std": float(np.std(graded)) if graded else math.nan,
        "baseline/mean": float(baseline_P.mean()),
        "groups/uniform_fraction": float((advantages_PNG == 0).flatten(1).all(1).double().mean()),
        **{f"rows/{reason}": float(count) for reason, count in excluded.items()},
        **read.metrics(),
    }
    return rows, metrics


class _Reader:
    """Views for one learner, measuring what re-encoding does to other agents' responses."""

    def __init__(self, run: Run, learner: Agent) -> None:
        self._run = run
        self._learner = learner
        self._limit = run.config.rollout.max_response_tokens
        self._identical: dict[str, list[bool]] = {}
        self._lengths: dict[str, list[float]] = {}

    def __call__(self, trajectory: Trajectory, prompt_ids: list[int]) -> View:
        rollout, tokens = trajectory.rollout, self._learner.tokens
        if rollout.source == self._learner.name:
            return tokens.self_view(rollout, prompt_ids)
        source = self._run.agents[rollout.source].tokens
        unshared = source.unshared_reason(rollout)
        if not unshared:
            same = tokens.reads_unchanged(rollout.text)
            self._identical.setdefault(rollout.source, []).append(same)
            if self._run.config.rollout.drop_changed and not same:
                unshared = "changed"
        view = tokens.cross_view(rollout, prompt_ids, unshared=unshared, max_tokens=self._limit)
        if not view.excluded:
            ratio = len(view.response_ids) / len(rollout.token_ids)
            self._lengths.setdefault(rollout.source, []).append(ratio)
        return view

    def metrics(self) -> dict[str, float]:
        found: dict[str, float] = {}
        kinds: dict[str, Mapping[str, Sequence[float]]] = {
            "identical_fraction": self._identical,
            "length_ratio": self._lengths,
        }
        for name, by_source in kinds.items():
            if by_source:
                found[f"retokenized/{name}"] = _mean(list(chain(*by_source.values())))
            for source, values in by_source.items():
                found[f"retokenized/{name}/{source}"] = _mean(values)
        return found


def _sampler_weight(trajectory: Trajectory, most: float | None) -> float:
    """min(exp(mean(trainer - sampler)), most): how much likelier the trainer thinks the row."""
    if most is None:
        return 1.0
    rollout = trajectory.rollout
    gap = math.fsum(rollout.source_logprobs) - math.fsum(rollout.sampler_logprobs)
    return min(math.exp(gap / len(rollout.token_ids)), most)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan
