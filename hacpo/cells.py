"""From a config to cells: one cell is one training, keyed by exactly what its method reads.

So the gspo cell of one model is the same cell in every pair's file, and a setting that a method
does not read (the floor under gspo) never repeats its work. Loads no torch.
"""

import hashlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from hacpo.config import JOINT_METHODS, GridConfig, RunConfig, settings_of
from hacpo.errors import ConfigError
from hacpo.inputs import Inputs
from hacpo.presets import set_dotted, validate
from hacpo.settings import AgentConfig
from hacpo.types import CellSpec

RESULTS_VERSION = 4
"""Raised by hand when a change of the code changes results; every key changes with it."""
BFLOAT16_VERSION = 2
"""The same for what changes results of agents in bfloat16 alone; 2: layers computed together."""

_BENCHMARK_SETTINGS = {"benchmarks", "benchmark_tokens", "benchmark_prompt", "benchmark_limit"}
_SELF_CLIP = ("clip_low", "clip_high", "max_abs_log_ratio")
_SHARED = ("epsilon", "kl", "denominator", "max_sampler_weight")
_CAPABILITY = ("capability_window", "capability_minimum", "ratio_low", "ratio_high")
_MECHANISMS = ("capability_aware", "guard_baseline", "baseline_of", "modulation")
_CROSS = ("alpha", "floor", "floor_step")
ALGORITHM_READS: dict[str, tuple[str, ...]] = {
    "initial": (),
    "grpo": ("token_clip_low", "token_clip_high", *_SHARED),
    "gspo": (*_SELF_CLIP, *_SHARED),
    "naive": (*_SELF_CLIP, *_SHARED),
    "hacpo": (*_SELF_CLIP, *_SHARED, *_CAPABILITY, *_MECHANISMS, *_CROSS),
}
"""The fields of AlgorithmConfig that each rule reads."""


def run_cell_spec(
    config: RunConfig, home: Path, *, column: str | None = None, inputs: Inputs | None = None
) -> CellSpec:
    """The cell of one training.

    Args:
        config: the resolved run.
        home: where model identities are cached.
        column: the table's column, if it is not the method's own name (a variant).
        inputs: None: models and data that are here.
    Raises:
        DataError: a missing model or benchmark, an unusable problem file, train and held-out
            overlapping.
    """
    inputs = inputs or Inputs(home)
    trains = config.rule != "initial"
    identities = {name: inputs.model(agent) for name, agent in config.agents.items()}
    inputs.check_problems(config.problems, config.update.problems_per_step * trains)
    reads = _what_it_reads(config, identities, inputs)
    canonical = json.dumps(reads, sort_keys=True, separators=(",", ":"))
    combination = "+".join(sorted(config.agents))
    seed = 0 if config.rule == "initial" else config.seed  # an untrained model has no seed
    rollouts = 0
    if trains:
        per_step = config.update.problems_per_step * config.responses_per_problem
        rollouts = config.steps * per_step * len(config.agents)
    return CellSpec(
        key=hashlib.sha256(canonical.encode()).hexdigest(),
        label=f"{column or config.method} {combination} s{seed}",
        method=column or config.method,
        seed=seed,
        combination=combination,
        agents={
            name: {"model": agent.model, "identity": identities[name]}
            for name, agent in config.agents.items()
        },
        config=config.model_dump(mode="json"),
        rollouts=rollouts,
        gpus=config.gpus,
    )


def expand(grid: GridConfig, home: Path, inputs: Inputs | None = None) -> list[CellSpec]:
    """Every cell of a grid, the longest first so that the last to end is a short one.

    Single-agent methods give one cell per agent, joint ones one per combination. Two columns that
    come to the same work (hacpo and an ablation's own value of alpha) share one key.

    Raises:
        ConfigError: no cells, an invalid variant, settings that make one training into two.
        DataError: as `run_cell_spec`.
    """
    inputs = inputs or Inputs(home)
    cells: dict[tuple[str, str], CellSpec] = {}
    for column, config in expand_runs(grid):
        spec = run_cell_spec(config, home, column=column, inputs=inputs)
        cells.setdefault((spec.key, spec.label), spec)
    labels: dict[str, str] = {}
    for key, label in cells:
        if labels.setdefault(label, key) != key:
            raise ConfigError(
                f"grid {grid.name!r}: {label!r} would be two trainings, since grid.settings differ "
                "for its combinations: set there only what methods that share read, such as "
                "algorithm.alpha"
            )
    if not cells:
        raise ConfigError(f"grid {grid.name!r} has no cells: list combinations, methods and seeds")
    return sorted(cells.values(), key=lambda spec: -spec.rollouts)


def expand_runs(grid: GridConfig) -> list[tuple[str, RunConfig]]:
    """(column of the table, run) for each training of a grid, in the order of the file."""
    base = grid.model_dump(mode="json", exclude={"grid"})
    section = grid.grid
    asked = section.model_dump(mode="json", include={"settings"})
    columns: list[tuple[str, str, dict[str, object]]] = [(m, m, {}) for m in section.methods]
    columns += [(name, v.method, v.set) for name, v in section.variants.items()]
    runs = []
    for seed in section.seeds:
        for column, method, overrides in columns:
            for combination in section.combinations:
                resolved = f"gspo_x{len(combination)}" if method == "gspo_xN" else method
                shown = resolved if column == "gspo_xN" else column
                joint = resolved in JOINT_METHODS
                where = f"grid column {column!r} of {'+'.join(combination)}"
                for members in [combination] if joint else [[agent] for agent in combination]:
                    data: dict[str, Any] = json.loads(json.dumps(base))
                    data |= {"method": resolved, "seed": seed}
                    for dotted, value in (settings_of(asked, combination) | overrides).items():
                        set_dotted(data, dotted, value)
                    data["agents"] = {name: data["agents"][name] for name in sorted(members)}
                    runs.append((shown, validate(RunConfig, data, where)))
    return runs


def _what_it_reads(config: RunConfig, identities: dict[str, str], inputs: Inputs) -> dict[str, Any]:
    # Absent unless asked for: older keys stay as they are.
    benchmarks = _benchmark_reads(config, inputs)
    evaluate = config.evaluate.model_dump(exclude=_BENCHMARK_SETTINGS)
    evaluate["max_response_tokens"] = (
        config.evaluate.max_response_tokens or config.rollout.max_response_tokens
    )
    reads: dict[str, Any] = {
        "results_version": RESULTS_VERSION,
        "rule": config.rule,
        "agents": sorted(
            (_agent_reads(agent, identities[name]) for name, agent in config.agents.items()),
            key=json.dumps,  # lists that hold None and mappings have no order of their own
        ),
        "held_out": inputs.problems(config.problems.held_out),
        "evaluate": evaluate,
        "verifier": verifier_reads(config),
        "max_prompt_tokens": config.rollout.max_prompt_tokens,
        "truncated": config.rollout.truncated,  # evaluations are graded under it too
        **benchmarks,
    }
    if config.vllm.compile_on_cpu and any(a.engine == "vllm" for a in config.agents.values()):
        reads["compile_on_cpu"] = True  # rounds otherwise
    if config.rule == "initial":
        reads["evaluate"].pop("every")
        return reads
    reads |= {
        "seed": config.seed,
        "steps": config.steps,
        "train": inputs.problems(config.problems.train),
        "responses_per_problem": config.responses_per_problem,
        "rollout": config.rollout.model_dump(include={"temperature", "max_response_tokens"}),
        "update": config.update.model_dump(
            exclude={"micro_tokens", "gradient_checkpointing"}, mode="json"
        ),
        "algorithm": config.algorithm.model_dump(include=set(ALGORITHM_READS[config.rule])),
    }
    if config.rule in JOINT_METHODS:
        reads["drop_changed"] = config.rollout.drop_changed
    return reads


def _benchmark_reads(config: RunConfig, inputs: Inputs) -> dict[str, Any]:
    settings = config.evaluate
    if not settings.benchmarks:
        return {}
    return {
        "benchmarks": {name: inputs.benchmark(name) for name in settings.benchmarks},
        "benchmark_tokens": settings.benchmark_tokens,
        "benchmark_prompt": settings.benchmark_prompt,
        "benchmark_limit": settings.benchmark_limit,
    }


def _agent_reads(agent: AgentConfig, identity: str) -> list[Any]:
    """What is at its default is left out where keys are older than the setting."""
    lora = agent.lora and agent.lora.model_dump(mode="json")
    reads: list[Any] = [identity, agent.prompt, agent.dtype, agent.engine, lora]
    if agent.dtype == "bfloat16":
        reads.append(BFLOAT16_VERSION)
    if agent.end_tokens:
        reads.append(list(agent.end_tokens))
    if agent.chat_template_kwargs:
        reads.append(agent.chat_template_kwargs)
    return reads


def verifier_reads(config: RunConfig) -> dict[str, Any]:
    """What decides a grade, the source of an own reward included."""
    verifier = config.verifier
    reads: dict[str, Any] = {"type": verifier.type, "timeout": verifier.timeout}
    if verifier.type == "math":
        reads["strict"] = verifier.strict
    if verifier.type == "marker":
        reads["marker"] = verifier.marker
    if verifier.reward is not None:
        reads["reward"] = [
            verifier.reward,
            _source_digest(verifier.reward, verifier.folder or os.getcwd()),
        ]
    return reads


def _source_digest(dotted: str, folder: str) -> str:
    """sha256 of the file that defines a custom reward, so that an edited reward is new work."""
    module = dotted.partition(":")[0]
    sys.path.insert(0, folder)  # where the verifier's worker looks, too
    importlib.invalidate_caches()
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    finally:
        sys.path.pop(0)
    if spec is None or not spec.origin or not Path(spec.origin).is_file():
        raise ConfigError(
            f"verifier.reward: module {module!r} is not found in {folder}; "
            "set verifier.folder to the folder that holds it, or install it"
        )
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()
