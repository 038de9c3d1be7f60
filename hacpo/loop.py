"""Training in a straight line: the paper's Algorithm 1, once per step.

The phases are injected: the plain functions here, the same functions as Prefect tasks in flows/.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from hacpo.phases.evaluate import evaluate
from hacpo.phases.finish import checkpoint_here, finish_step, record_steps
from hacpo.phases.rollout import rollout
from hacpo.phases.update import update
from hacpo.phases.verify import verify
from hacpo.run import Run, open_run
from hacpo.types import StepSummary

Phase = Callable[[str, int, tuple[str, ...]], None]


class Phases(NamedTuple):
    """The four phases; each takes ids only and is idempotent."""

    rollout: Phase
    verify: Phase
    update: Phase
    evaluate: Phase


LOCAL = Phases(rollout, verify, update, evaluate)


def train_step(run_id: str, step: int, phases: Phases = LOCAL) -> StepSummary:
    """Every agent samples, every response is verified, every agent learns from the pool."""
    started = time.monotonic()
    agents = tuple(sorted(open_run(run_id).agents))
    phases.rollout(run_id, step, agents)
    phases.verify(run_id, step, agents)
    phases.update(run_id, step, agents)
    return finish_step(run_id, step, started)


def train_run(run_id: str, phases: Phases = LOCAL) -> bool:
    """Train to the last step, from wherever the run's newest checkpoint is.

    Returns:
        Whether it came to its end; False: it was asked to stop, and has a checkpoint of here.
    """
    agents = tuple(sorted(open_run(run_id).agents))
    record_steps(run_id)
    while True:
        run = open_run(run_id)
        if not run.recorder.is_wanted():
            checkpoint_here(run_id)
            return False
        if evaluation_due(run):
            phases.evaluate(run_id, run.state.step, agents)
        if run.config.rule == "initial" or run.state.step >= run.config.steps:
            return True
        train_step(run_id, run.state.step, phases)


def evaluation_due(run: Run) -> bool:
    settings, step = run.config.evaluate, run.state.step
    if step in (0, run.config.steps) and settings.benchmarks:
        return True
    if not settings.samples and not settings.greedy:
        return False
    return step in (0, run.config.steps) or bool(settings.every and step % settings.every == 0)
