"""The pool of a step: every source's verified rollouts, matched by id."""

from dataclasses import dataclass

import torch
from torch import Tensor

from hacpo.run import Run
from hacpo.types import UNGRADED, Problem, Trajectory


@dataclass(frozen=True, slots=True)
class Pool:
    """All trajectories of one step. Axes: P problems, N sources, G responses per source."""

    problems: list[Problem]
    sources: list[str]
    rows_PNG: list[list[list[Trajectory]]]
    rewards_PNG: Tensor
    """float64; NaN is ungraded."""

    def of(self, source: str) -> list[Trajectory]:
        n = self.sources.index(source)
        return [row for groups in self.rows_PNG for row in groups[n]]


def rollout_id(step: int, source: str, problem: Problem, index: int) -> str:
    return f"{step}/{source}/{problem.id}/{index}"


def read_pool(run: Run, step: int, problems: list[Problem]) -> Pool:
    """Join rollouts and grades by id; a missing one is an error, never a shift."""
    sources = sorted(run.agents)
    found: dict[str, Trajectory] = {}
    for source in sources:
        grades = run.ledger.read_grades(step, source)
        for rollout in run.ledger.read_rollouts(step, source):
            reward, outcome, _ = grades[rollout.id]
            reward = UNGRADED if reward is None else reward
            found[rollout.id] = Trajectory(rollout=rollout, reward=reward, outcome=outcome)
    count = range(run.config.responses_per_problem)
    rows = [
        [[found.pop(rollout_id(step, s, p, i)) for i in count] for s in sources] for p in problems
    ]
    assert not found, f"rollouts of no problem of step {step}: {list(found)[:3]}"
    rewards = [[[row.reward for row in group] for group in groups] for groups in rows]
    return Pool(problems, sources, rows, torch.tensor(rewards, dtype=torch.float64))
