"""A run's plan: memory first, from sizes alone, then time, from a calibration."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from hacpo.agents import pick_device
from hacpo.cells import run_cell_spec
from hacpo.config import RunConfig
from hacpo.models.resolve import resolve_model
from hacpo.models.tokens import load_tokens
from hacpo.places import home
from hacpo.plan.calibrate import Calibration, calibrate, calibrated_config
from hacpo.plan.fit import MARGIN, Place, check_fits, places
from hacpo.plan.machine import resident_bytes
from hacpo.plan.memory import AgentMemory, Sizes
from hacpo.plan.predict import Seconds, predict
from hacpo.preflight import preflight
from hacpo.problems import load_problems


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will take."""

    label: str
    steps: int
    rollouts: int
    """Of all agents, over all steps."""
    agents: dict[str, AgentMemory]
    """When every response is as long as the config allows."""
    places: list[Place]
    """The memories that the run needs then, and what is there."""
    process: int
    """Bytes of the process without agents."""
    expected: int | None
    """Bytes of its peak with responses as long as they are now; None without calibration."""
    seconds: Seconds | None
    calibrated_before: bool
    """Whether the calibration was there already."""


def make_plan(
    config: RunConfig,
    *,
    measure: bool = True,
    fresh: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Plan:
    """Plan a run.

    Args:
        config: resolved.
        measure: run small steps of it (or use what such steps told before); else memory only.
        fresh: run them again.
        tell: what takes time.
    Raises:
        DoesNotFitError: with the number that must change; before any weights are loaded.
        HacpoError: whatever a run would refuse.
    """
    cell = run_cell_spec(config, home())
    preflight(config, home(), offline=True)
    sizes, held_out = _sizes(config, tell)
    process = resident_bytes()  # all that a run imports is imported by now
    found = check_fits(config, sizes, process)
    expected, seconds, before = None, None, False
    if measure:
        calibration, before = calibrate(config, cell, fresh=fresh, tell=tell)
        process = _process_bytes(config, sizes, calibration)
        found = check_fits(config, sizes, process)
        groups = calibration.groups or None
        expected = int(places(config, sizes.agents(config, groups), process)[0].needed / MARGIN)
        seconds = predict(config, calibration, held_out)
    return Plan(
        label=cell.label,
        steps=config.steps if config.rule != "initial" else 0,
        rollouts=cell.rollouts,
        agents=sizes.agents(config),
        places=found,
        process=process,
        expected=expected,
        seconds=seconds,
        calibrated_before=before,
    )


def _sizes(config: RunConfig, tell: Callable[[str], None]) -> tuple[Sizes, int]:
    problems = load_problems(config.problems.train) if config.rule != "initial" else []
    held_out = load_problems(config.problems.held_out)
    limit = config.rollout.max_prompt_tokens
    folders, prompts = {}, {}
    for name, agent in config.agents.items():
        folders[name] = resolve_model(agent.model, agent.revision, home(), tell)
        tokens = load_tokens(name, agent, folders[name])
        lengths = [len(tokens.render(problem)) for problem in problems]
        kept = [length for length in lengths if length <= limit]  # longer ones are left out
        evaluated = [len(tokens.render(problem)) for problem in held_out]
        prompts[name] = max([*kept, *evaluated], default=1)
    device = pick_device(config.device)
    on_gpu = device.type == "cuda"
    total = torch.cuda.mem_get_info(device)[1] if on_gpu else 0
    return Sizes(folders, prompts, len(held_out), gpu_bytes=total, on_gpu=on_gpu), len(held_out)


def _process_bytes(config: RunConfig, sizes: Sizes, calibration: Calibration) -> int:
    """What the calibration's peak leaves when its agents are taken off.

    Peaks of a GPU and of other processes say nothing about it: there it is this process as it is.
    """
    engines = {agent.engine for agent in config.agents.values()}
    if pick_device(config.device).type != "cpu" or engines != {"hf"}:
        return resident_bytes()
    small = calibrated_config(config, calibration.problems)
    evaluated = max((e.problems for e in calibration.evaluations), default=0)
    agents = replace(sizes, held_out=evaluated).agents(small, calibration.groups or None)
    return max(calibration.peak_bytes - places(small, agents, 0)[0].needed, 0)
