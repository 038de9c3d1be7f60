"""Measuring a few small steps of the config itself: its models, problems, verifier and engine.

They are the real phases of `hacpo.loop`, so nothing that a step does is forgotten. They leave
nothing behind but the calibration under HACPO_HOME/calibrations.
"""

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError

from hacpo.agents import pick_device
from hacpo.cells import verifier_reads
from hacpo.config import RunConfig
from hacpo.errors import HacpoError
from hacpo.ledger import read_json, write_json
from hacpo.loop import train_step
from hacpo.phases.evaluate import evaluate
from hacpo.phases.rollout import problems_of
from hacpo.places import code_version, home, run_folder
from hacpo.plan.machine import machine_facts, peak_bytes
from hacpo.plan.workload import Group, updates_per_step
from hacpo.problems import load_problems, problems_digest
from hacpo.run import Run, close_run, start_run
from hacpo.types import CellSpec, StepSummary

VERSION = 1
"""Raised when what is measured changes."""
_PREFIX = ".plan-"
_FEW, _SOME, _EVALUATED = 2, 8, 16
"""Problems of the small steps, of the larger ones, and of the larger evaluation."""
_REPEATS = 4
"""Larger steps at most: their problems differ, and with them lengths and rewards."""
_SECONDS = 60.0
"""After which no larger step is begun but the first."""


@dataclass(frozen=True, slots=True)
class AgentTimes:
    """One agent in one measured step, seconds."""

    rollout: float
    verify: float
    update: float
    tokens: int
    """Of all its responses."""
    reward: float | None
    truncated: float
    uniform: float
    """Share of problems without signal, which cost this learner no backward pass."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """One measured step."""

    problems: int
    updates: int
    seconds: float
    agents: dict[str, AgentTimes]


@dataclass(frozen=True, slots=True)
class EvaluationTimes:
    """One measured evaluation of all agents."""

    problems: int
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured; without the first step and evaluation, which warm up."""

    steps: list[StepTimes] = field(default_factory=list)
    evaluations: list[EvaluationTimes] = field(default_factory=list)
    groups: dict[str, list[Group]] = field(default_factory=dict)
    """learner -> tokens of prompts and responses as it reads them."""
    problems: int = 0
    """Of the largest step: what `peak_bytes` belongs to."""
    load_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    peak_bytes: int = 0
    """Of this process, or of the GPU's tensors."""


def calibrate(
    config: RunConfig, cell: CellSpec, *, fresh: bool, tell: Callable[[str], None]
) -> tuple[Calibration, bool]:
    """The calibration of a config on this machine, and whether it was there already.

    Args:
        config: resolved.
        cell: of the config, for its models' identities.
        fresh: measure again.
        tell: what takes time.
    Raises:
        HacpoError: as a run would.
    """
    path = home() / "calibrations" / f"{_key(config, cell)}.json"
    adapter = TypeAdapter(Calibration)
    if not fresh and path.exists():
        with contextlib.suppress(HacpoError, ValidationError, KeyError):  # damaged: measured again
            return adapter.validate_python(read_json(path)["calibration"]), True
    calibration = _measure(config, tell)
    facts = machine_facts(pick_device(config.device))
    write_json(path, {"machine": facts, "calibration": asdict(calibration)})
    return calibration, False


def calibrated_config(config: RunConfig, problems: int) -> RunConfig:
    """The config with smaller steps."""
    update = config.update.model_copy(update={"problems_per_step": problems})
    return config.model_copy(update={"update": update})


def _measure(config: RunConfig, tell: Callable[[str], None]) -> Calibration:
    most = config.update.problems_per_step
    few, some = min(_FEW, most), min(_SOME, most)
    counts = [few, few, *[some] * _REPEATS]  # the first warms up
    if config.rule == "initial":
        counts = []
    # Its second step writes a checkpoint, which takes time and memory, too.
    checkpoints = config.checkpoints.model_copy(update={"every": len(counts) + 1})
    small = calibrated_config(config, some)
    small = small.model_copy(update={"steps": 2, "checkpoints": checkpoints})
    run_id = f"{_PREFIX}{os.getpid()}"
    _remove_left_overs()
    shutil.rmtree(run_folder(run_id), ignore_errors=True)  # of an older process of this number
    tell("calibration: loading")
    started = time.monotonic()
    try:
        run = start_run(run_id, small, progress=tell)
        load_seconds = time.monotonic() - started
        steps, walls = [], []
        for step, problems in enumerate(counts):
            if step > 2 and time.monotonic() - started > _SECONDS:
                break
            tell(f"calibration: step {step + 1} of {len(counts)}, {problems} problems")
            run.config = calibrated_config(small, problems)
            began = time.monotonic()
            steps.append(_step_times(run, train_step(run_id, step)))
            walls.append(time.monotonic() - began)
        run.config = small
        peak = _peak(run)
        groups = _groups(run, range(2, len(steps))) if steps else {}
        evaluations = _evaluations(run, run_id, tell, slow=time.monotonic() - started > _SECONDS)
        return Calibration(
            steps=steps[1:],
            evaluations=evaluations[1:],
            groups=groups,
            problems=some,
            load_seconds=load_seconds,
            checkpoint_seconds=walls[1] - steps[1].seconds if steps else 0.0,
            peak_bytes=max(peak, _peak(run)),
        )
    finally:
        close_run(run_id)
        shutil.rmtree(run_folder(run_id), ignore_errors=True)


def _remove_left_overs() -> None:
    """Run folders of calibrations that were killed."""
    for folder in run_folder(_PREFIX).parent.glob(f"{_PREFIX}*"):
        try:
            os.kill(int(folder.name.removeprefix(_PREFIX)), 0)
        except (ValueError, ProcessLookupError):
            shutil.rmtree(folder, ignore_errors=True)
        except PermissionError:
            pass  # alive, somebody else's


def _step_times(run: Run, summary: StepSummary) -> StepTimes:
    agents = {}
    for name, step in summary.agents.items():
        m = step.metrics
        agents[name] = AgentTimes(
            rollout=m["time/rollout"],
            verify=m["time/verify"],
            update=m["time/update"],
            tokens=step.tokens,
            reward=step.reward_mean if step.reward_mean == step.reward_mean else None,
            truncated=m["response/truncated_fraction"],
            uniform=m["groups/uniform_fraction"],
        )
    updates = len(updates_per_step(run.config))
    return StepTimes(run.config.update.problems_per_step, updates, summary.seconds, agents)


def _groups(run: Run, steps: range) -> dict[str, list[Group]]:
    """Every learner's problems: its own responses, the others' as long as re-encoding made them."""
    groups: dict[str, list[Group]] = {name: [] for name in run.agents}
    for step in steps:
        problems = problems_of(run, step)
        summary = run.ledger.read_summary(step)
        read = {name: run.ledger.read_rollouts(step, name) for name in run.agents}
        for name, agent in run.agents.items():
            ratios = {
                source: summary.agents[name].metrics.get(f"retokenized/length_ratio/{source}", 1.0)
                for source in run.agents
            }
            for problem in problems:
                lengths = [
                    max(1, round(len(rollout.token_ids) * ratios[source]))
                    for source, rollouts in read.items()
                    for rollout in rollouts
                    if rollout.problem_id == problem.id
                ]
                groups[name].append((len(agent.tokens.render(problem)), lengths))
    return groups


def _evaluations(
    run: Run, run_id: str, tell: Callable[[str], None], *, slow: bool
) -> list[EvaluationTimes]:
    settings = run.config.evaluate
    if not settings.samples and not settings.greedy:
        return []
    held_out, found = run.held_out, []
    largest = 2 * _FEW if slow else _EVALUATED
    sizes = [1, min(_FEW, len(held_out)), min(largest, len(held_out))]
    for number, problems in enumerate(sizes):
        tell(f"calibration: evaluation of {problems} problems")
        run.held_out = held_out[:problems]
        seconds = {}
        for name in run.agents:
            started = time.monotonic()
            evaluate(run_id, number + 1, (name,))
            seconds[name] = time.monotonic() - started
        found.append(EvaluationTimes(problems, seconds))
    return found


def _peak(run: Run) -> int:
    for agent in run.agents.values():
        if agent.device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(agent.device))
    return peak_bytes()


def _key(config: RunConfig, cell: CellSpec) -> str:
    """sha256 over what times depend on: identities, settings, machine."""
    data = config.model_dump(mode="json", exclude={"name", "seed", "steps", "checkpoints"})
    data["tracking"].pop("uri"), data["tracking"].pop("artifacts"), data["evaluate"].pop("every")
    facts: dict[str, Any] = {
        "version": VERSION,
        "code": code_version(),
        "problems": [
            problems_digest(load_problems(spec))
            for spec in (config.problems.train, config.problems.held_out)
        ],
        "reward": verifier_reads(config),
        "config": data,
        "identities": {name: agent["identity"] for name, agent in cell.agents.items()},
        "machine": machine_facts(pick_device(config.device)),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
