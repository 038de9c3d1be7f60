"""A sweep in a registry, recorded as workers do, with scores of the test's own choice."""

import hashlib
import math
from collections.abc import Callable, Sequence

from hacpo.config import JOINT_METHODS, parse_method
from hacpo.registry import DONE, Registry
from hacpo.types import CellSpec, Evaluation, ProblemScore

STEPS = 3
SAMPLED = 24
"""Rollouts of one agent in one training of gspo."""
TOKENS = 10
"""Of every rollout."""

Scorer = Callable[[str, str, int, str, int], Sequence[Sequence[float]]]
"""(method, agent, seed, task, step) -> samples of every problem."""


def record_sweep(
    registry: Registry,
    scorer: Scorer,
    *,
    models: dict[str, str],
    methods: Sequence[str],
    seeds: Sequence[int],
    tasks: dict[str, str],
    name: str = "recorded",
    unfinished: Sequence[str] = (),
) -> list[CellSpec]:
    """Register one combination of all agents and finish its cells, as far as they are not.

    Args:
        registry: open.
        scorer: what the agents score.
        models: agent -> model.
        methods, seeds: of the grid.
        tasks: benchmark -> protocol.
        name: of the sweep.
        unfinished: labels of cells that stay queued.
    """
    specs = []
    for method in methods:
        joint = parse_method(method)[0] in JOINT_METHODS
        groups = [sorted(models)] if joint else [[agent] for agent in models]
        specs += [_spec(method, group, seed, models) for group in groups for seed in seeds]
    config = {
        "agents": {agent: {"model": model} for agent, model in models.items()},
        "grid": {
            "combinations": [list(models)],
            "methods": list(methods),
            "seeds": list(seeds),
        },
        "steps": STEPS,
        "evaluate": {},
    }
    registry.register_sweep(name, owner="me", config=config, cells=specs)
    for spec in specs:
        done = registry.cell_states([spec.key])[spec.key] == DONE
        if spec.label not in unfinished and not done:
            _finish(registry, spec, scorer, tasks)
    return specs


def _spec(method: str, group: list[str], seed: int, models: dict[str, str]) -> CellSpec:
    label = f"{method} {'+'.join(group)} s{seed}"
    return CellSpec(
        key=hashlib.sha256(label.encode()).hexdigest(),
        label=label,
        method=method,
        seed=seed,
        combination="+".join(group),
        agents={agent: {"model": models[agent], "identity": f"id of {agent}"} for agent in group},
        config={},
        rollouts=SAMPLED * len(group),
    )


def _finish(registry: Registry, spec: CellSpec, scorer: Scorer, tasks: dict[str, str]) -> None:
    claim = registry.claim("test", cell_key=spec.key, lease_seconds=60, host="h", pid=1)
    assert claim is not None
    times = parse_method(spec.method)[1] or 1
    for agent in spec.agents:
        for task, protocol in tasks.items():
            for step in (0, STEPS):
                scores = scorer(spec.method, agent, spec.seed, task, step)
                graded = [x for samples in scores for x in samples if not math.isnan(x)]
                evaluation = Evaluation(
                    agent=agent,
                    step=step,
                    task=task,
                    protocol=protocol,
                    mean=sum(graded) / len(graded),
                    problems=[
                        ProblemScore(problem_id=f"p{i}", scores=list(samples))
                        for i, samples in enumerate(scores)
                    ],
                    counts={},
                )
                registry.record_evaluation(claim, evaluation)
        registry.record_cost(
            claim,
            agent,
            rollouts_generated=SAMPLED * times,
            rollouts_consumed=SAMPLED * times * len(spec.agents),
            tokens=SAMPLED * times * TOKENS,
            device_seconds=1.0,
        )
    registry.finish(claim)
