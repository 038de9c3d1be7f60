"""The end of a step: metrics from its data, a checkpoint when due, then registry and MLflow."""

import dataclasses
import logging
import math
import re
import resource
import sys
import time
from pathlib import Path

import numpy as np
import torch

from hacpo.agents import Agent
from hacpo.checkpoints import Written, prune, write_checkpoint
from hacpo.errors import NotFiniteError
from hacpo.phases.pool import Pool, read_pool
from hacpo.phases.rollout import problems_of
from hacpo.run import Run, open_run
from hacpo.types import OUTCOMES, AgentStep, StepSummary, Trajectory

logger = logging.getLogger(__name__)

HOPELESS_STEPS = 3
"""Steps of an agent without any finite gradient, after which its run fails."""


def finish_step(run_id: str, step: int, started: float) -> StepSummary:
    """Write the step's summary; everything in it but time, memory and throughput is reproducible.

    Args:
        run_id: open run.
        step: the step whose updates are done, counted from 0.
        started: time.monotonic() at its beginning.
    """
    run = open_run(run_id)
    pool = read_pool(run, step, problems_of(run, step))
    seconds = time.monotonic() - started
    agents = {name: _agent_step(run, pool, name, seconds) for name in sorted(run.agents)}
    summary = StepSummary(run_id=run_id, step=step, agents=agents, seconds=seconds)
    run.ledger.write_summary(summary)
    run.state.step = step + 1
    run.step_metrics.clear()
    if (step + 1) % run.config.checkpoints.every == 0 or step + 1 == run.config.steps:
        _checkpoint(run, agents)
    _record(run, summary)
    _check_finite(run, summary)
    return summary


def record_steps(run_id: str) -> None:
    """Tell registry and MLflow of the steps up to the checkpoint that a run resumes from.

    A kill between a checkpoint and the record of its step would leave a hole; what they know
    already is overwritten by the same, or skipped.
    """
    run = open_run(run_id)
    for step in run.ledger.steps():
        if step < run.state.step:
            _record(run, run.ledger.read_summary(step))


def checkpoint_here(run_id: str) -> None:
    """A checkpoint of the step reached, for a run that stops before its next planned one.

    It counts in no ranking and removes no other, so that the run goes on as if it had not stopped.
    """
    run = open_run(run_id)
    path = _path(run)
    if run.state.step and not path.exists():
        run.recorder.checkpoint(_write(run), [])


def _record(run: Run, summary: StepSummary) -> None:
    run.recorder.step(summary)
    run.tracker.log_step(
        summary.step,
        {name: agent.metrics for name, agent in summary.agents.items()},
        {f"agent_{name}/reward": a.reward_mean for name, a in summary.agents.items()},
    )


def _checkpoint(run: Run, agents: dict[str, AgentStep]) -> None:
    step, keep = run.state.step, run.config.checkpoints
    run.state.best[str(step)] = sum(a.capability for a in agents.values()) / len(agents)
    ranked = sorted(run.state.best, key=lambda s: (-run.state.best[s], int(s)))
    kept_best = {int(s) for s in ranked[: keep.keep_best]}
    newest = sorted(map(int, run.state.best))[-keep.keep_last :]
    run.state.best = {
        s: v for s, v in run.state.best.items() if int(s) in kept_best or int(s) in newest
    }
    written = _write(run)
    removed = prune(run.checkpoints, keep_last=keep.keep_last, keep=kept_best)
    run.recorder.checkpoint(written, removed)


def _path(run: Run) -> Path:
    return run.checkpoints / f"{run.state.step:06d}"


def _write(run: Run) -> Written:
    return write_checkpoint(
        _path(run),
        run.state.step,
        {name: agent.policy.save for name, agent in run.agents.items()},
        {name: agent.learner.state() for name, agent in run.agents.items()},
        dataclasses.asdict(run.state),
    )


def _check_finite(run: Run, summary: StepSummary) -> None:
    """Refuse to go on with an agent that has not made a step for a while.

    Raises:
        NotFiniteError: no update of the last steps had a finite gradient.
    """
    steps = range(summary.step - HOPELESS_STEPS + 1, summary.step)
    if steps.start < 0:
        return
    recent = [*(run.ledger.read_summary(step) for step in steps), summary]
    for name in summary.agents:
        made = [one.agents[name].metrics for one in recent]
        if all(m["updates/skipped_nonfinite"] == m["updates/count"] for m in made):
            raise NotFiniteError(
                f"agent {name!r}: no update of the steps {steps.start} to {summary.step} had a "
                "finite gradient: lower update.learning_rate, or take dtype: float32"
            )


def _agent_step(run: Run, pool: Pool, name: str, seconds: float) -> AgentStep:
    own = pool.of(name)
    graded = [row.reward for row in own if not math.isnan(row.reward)]
    reward_mean = float(np.mean(graded)) if graded else math.nan
    measured = run.step_metrics[name]
    gap = _sampler_gap(own)
    allowed = run.config.rollout.warn_sampler_gap
    if gap["sampler_gap/mean"] > allowed:
        logger.warning(
            "agent %r, step %d: sampler_gap/mean %.2g is over %g nats a token: its engine samples "
            "from other probabilities than the trainer computes",
            *(name, run.state.step, gap["sampler_gap/mean"], allowed),
        )
    run.state.capability_history.setdefault(name, []).append(reward_mean)
    run.state.rollouts[name] = run.state.rollouts.get(name, 0) + len(own)
    tokens = sum(len(row.rollout.token_ids) for row in own)
    metrics = {
        "reward/mean": reward_mean,
        "reward/std": float(np.std(graded, ddof=1)) if len(graded) > 1 else 0.0,
        **_response_metrics(own),
        **gap,
        **measured,
        "problems/left_out": float(run.left_out),
        "rollouts/generated": float(len(own)),
        "rollouts/cumulative": float(run.state.rollouts[name]),
        "rollouts/consumed": float(sum(len(pool.of(source)) for source in pool.sources)),
        "time/step": seconds,
        "throughput/tokens_per_second": tokens / seconds,
        "memory/peak": _peak_bytes(run.agents[name]),
    }
    return AgentStep(
        agent=name,
        reward_mean=reward_mean,
        capability=measured["capability"],
        rollouts=len(own),
        tokens=tokens,
        metrics=metrics,
    )


def _response_metrics(own: list[Trajectory]) -> dict[str, float]:
    def count(outcome: str) -> float:
        return float(sum(row.outcome == outcome for row in own))

    cut = sum(row.rollout.finish_reason == "length" for row in own)
    return {
        "response/length_mean": float(np.mean([len(row.rollout.token_ids) for row in own])),
        "response/truncated_fraction": cut / len(own),
        "entropy": float(np.mean([row.rollout.entropy for row in own])),
        **{f"verifier/{outcome}_count": count(outcome) for outcome in OUTCOMES},
        "rollouts/ungraded": float(sum(math.isnan(row.reward) for row in own)),
    }


def _sampler_gap(own: list[Trajectory]) -> dict[str, float]:
    """How far the engine's log-probabilities are from the trainer's, over all sampled tokens."""
    sampler = np.concatenate([row.rollout.sampler_logprobs for row in own])
    trainer = np.concatenate([row.rollout.source_logprobs for row in own])
    gap = trainer - sampler
    per_row = [
        np.mean(row.rollout.source_logprobs) - np.mean(row.rollout.sampler_logprobs) for row in own
    ]
    return {
        "sampler_gap/max": float(np.abs(gap).max()),
        "sampler_gap/mean": float(np.abs(gap).mean()),
        "sampler_gap/kl": float(np.mean(np.exp(gap) - gap - 1)),  # k3 under the sampler
        "sampler_gap/exp_mean": float(np.mean(np.exp(per_row))),
    }


def _peak_bytes(agent: Agent) -> float:
    """Of the GPU; on a CPU of this process and of the engine's own, if it has one."""
    if agent.device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(agent.device))
    unit = 1 if sys.platform == "darwin" else 1024
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return float(own + _peak_of(getattr(agent.engine, "pid", None)))


def _peak_of(pid: int | None) -> int:
    """Largest resident size of another process so far, in bytes; 0 where nobody tells."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    return int(found.group(1)) * 1024 if found else 0
