"""A run's rollouts, joined with their problems and grades by id."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hacpo.errors import ConfigError, DataError
from hacpo.ledger import Ledger, read_json
from hacpo.problems import load_problems

UNVERIFIED = "unverified"
"""The outcome of a response whose step was cut short before it was graded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRow:
    """One response, for people."""

    id: str
    step: int
    source: str
    problem_id: str
    prompt: str | None
    """None if the problem is no longer in the run's problem file."""
    answer: str | None
    response: str
    reward: float | None
    """None if ungraded."""
    outcome: str
    reason: str
    """Why it is ungraded."""
    finish_reason: str
    tokens: int
    sampler_logprob: float
    """Mean per token, by the engine."""
    trainer_logprob: float
    """Mean per token, by the trainer's weights."""


class RunRollouts:
    """The rollouts of a run's folder.

    Raises:
        StorageError: damaged files.
    """

    def __init__(self, folder: Path) -> None:
        self._ledger = Ledger(folder)
        self._config: dict[str, Any] = read_json(folder / "config.json")
        self._problems = _problems(self._config["problems"]["train"])
        self.agents = sorted(self._config["agents"])

    def steps(self) -> list[int]:
        """Steps with rollouts, in order."""
        found = (self._ledger.folder / "steps").glob("*/rollout.*.parquet")
        return sorted({int(path.parent.name) for path in found})

    def rows(self, steps: list[int], source: str | None = None) -> Iterator[RolloutRow]:
        """In the order of steps, agents and sampling.

        Raises:
            ConfigError: no such agent.
        """
        if source is not None and source not in self.agents:
            raise ConfigError(f"--source: no agent {source!r}; known: {', '.join(self.agents)}")
        for step in steps:
            for agent in [source] if source else self.agents:
                if self._ledger.phase_file(step, "rollout", agent).exists():
                    yield from self._of(step, agent)

    def _of(self, step: int, agent: str) -> Iterator[RolloutRow]:
        graded = self._ledger.phase_file(step, "verify", agent).exists()
        grades = self._ledger.read_grades(step, agent) if graded else {}
        template = self._config["agents"][agent]["prompt"]
        for rollout in self._ledger.read_rollouts(step, agent):
            reward, outcome, reason = grades.get(rollout.id, (math.nan, UNVERIFIED, ""))
            problem = self._problems.get(rollout.problem_id)
            yield RolloutRow(
                id=rollout.id,
                step=step,
                source=agent,
                problem_id=rollout.problem_id,
                prompt=template.replace("{problem}", problem.problem) if problem else None,
                answer=problem.answer if problem else None,
                response=rollout.text,
                reward=None if math.isnan(reward) else reward,
                outcome=outcome,
                reason=reason,
                finish_reason=rollout.finish_reason,
                tokens=len(rollout.token_ids),
                sampler_logprob=_mean(rollout.sampler_logprobs),
                trainer_logprob=_mean(rollout.source_logprobs),
            )


def _problems(spec: str) -> dict[str, Any]:
    try:
        return {problem.id: problem for problem in load_problems(spec)}
    except DataError:  # the file may have been moved since; the responses can be read without it
        return {}


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
