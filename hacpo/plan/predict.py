"""Seconds of a run from measured steps: each phase is so much a batch or update, and a problem."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from hacpo.config import RunConfig
from hacpo.plan.calibrate import Calibration, StepTimes, calibrated_config
from hacpo.plan.workload import (
    count_evaluations,
    evaluations,
    training,
    updates_per_step,
)


@dataclass(frozen=True, slots=True)
class AgentSeconds:
    """One agent in one step."""

    rollouts: int
    tokens: float
    """Of its responses."""
    reward: float | None
    truncated: float
    """Share of responses cut by the limit."""
    uniform: float
    """Share of problems without signal."""
    rollout: float
    """Sampling and scoring."""
    verify: float
    """What grading takes beyond the next agent's sampling."""
    update: float
    evaluation: float
    """Of all held-out problems, once."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """A run's time."""

    agents: dict[str, AgentSeconds]
    other: float
    """Of a step: files and metrics."""
    step: float
    evaluations: float
    """All of them, all agents."""
    checkpoints: float
    load: float
    total: float


def predict(config: RunConfig, calibration: Calibration, held_out: int) -> Seconds:
    """Extrapolate measured steps to the config's own.

    Args:
        config: the run.
        calibration: of it.
        held_out: problems of an evaluation.
    """
    agents = {name: _agent(config, calibration, name, held_out) for name in sorted(config.agents)}
    problems, steps = config.update.problems_per_step, config.steps
    trains = config.rule != "initial"
    other = _fit(
        [(1.0, float(s.problems)) for s in calibration.steps],
        [s.seconds - _phases(s) for s in calibration.steps],
        (1.0, float(problems)),
    )
    step = other + sum(a.rollout + a.verify + a.update for a in agents.values())
    evaluated = count_evaluations(config) * sum(a.evaluation for a in agents.values())
    written = -(-steps // config.checkpoints.every) * calibration.checkpoint_seconds * trains
    return Seconds(
        agents=agents,
        other=other,
        step=step,
        evaluations=evaluated,
        checkpoints=written,
        load=calibration.load_seconds,
        total=calibration.load_seconds + steps * step * trains + evaluated + written,
    )


def _agent(config: RunConfig, calibration: Calibration, name: str, held_out: int) -> AgentSeconds:
    steps = calibration.steps
    problems = config.update.problems_per_step

    def per_problem(value: Callable[[StepTimes], float]) -> float:
        total = sum(s.problems for s in steps)
        return sum(value(s) for s in steps) / total if total else 0.0

    def share(value: Callable[[StepTimes], float]) -> float:
        return per_problem(lambda s: value(s) * s.problems)

    def phase(work: Callable[[RunConfig], float], seconds: Callable[[StepTimes], float]) -> float:
        measured = [(work(calibrated_config(config, s.problems)), float(s.problems)) for s in steps]
        return _fit(measured, [seconds(s) for s in steps], (work(config), float(problems)))

    graded = [s.agents[name].reward for s in steps]
    rewards = [reward for reward in graded if reward is not None]
    return AgentSeconds(
        rollouts=training(config).problems * training(config).samples if steps else 0,
        tokens=per_problem(lambda s: s.agents[name].tokens) * problems,
        reward=sum(rewards) / len(rewards) if rewards else None,
        truncated=share(lambda s: s.agents[name].truncated),
        uniform=share(lambda s: s.agents[name].uniform),
        rollout=phase(
            lambda c: float(training(c).batches(c.rollout.batch_rows)),
            lambda s: s.agents[name].rollout,
        ),
        verify=phase(lambda _: 1.0, lambda s: s.agents[name].verify),
        update=phase(lambda c: float(len(updates_per_step(c))), lambda s: s.agents[name].update),
        evaluation=_fit(
            [(_batches(config, e.problems), float(e.problems)) for e in calibration.evaluations],
            [e.seconds[name] for e in calibration.evaluations],
            (_batches(config, held_out), float(held_out)),
        ),
    )


def _batches(config: RunConfig, held_out: int) -> float:
    rows = config.rollout.batch_rows
    return float(sum(call.batches(rows) for call in evaluations(config, held_out)))


def _phases(step: StepTimes) -> float:
    return sum(a.rollout + a.verify + a.update for a in step.agents.values())


def _fit(
    measured: Sequence[tuple[float, float]], seconds: Sequence[float], asked: tuple[float, float]
) -> float:
    """Seconds of `asked` = (fixed parts, problems), both costing something or nothing, never less.

    Relative errors are made small, so that short steps tell as much as long ones.
    """
    if not measured:
        return 0.0
    times = np.maximum(np.array(seconds), 1e-6)
    costs, _ = nnls(np.array(measured) / times[:, None], np.ones(len(times)))
    return float(costs @ np.array(asked))
