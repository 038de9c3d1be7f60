"""What is refused before any compute is spent and before anything is registered."""

import os
from pathlib import Path

from hacpo.config import JOINT_METHODS, RUNS, BaseConfig, GridConfig
from hacpo.errors import ConfigError, StorageError
from hacpo.extras import require
from hacpo.settings import AgentConfig
from hacpo.tracking import check_server
from hacpo.verifiers import VerifierPool


def preflight(config: BaseConfig, home: Path, *, offline: bool = False) -> None:
    """Check folder, tracking server, verifier and tokenizers of a run or grid.

    Models and problem files are checked by `hacpo.cells`, which must identify them.

    Raises:
        StorageError: `home` cannot be written.
        ServiceError: MLflow does not answer and `offline` is False.
        ConfigError: a reward that cannot be imported, what is not installed.
        DataError: an agent without end token, an unreadable tokenizer.
    """
    check_writable(home)
    uri = tracking_uri(config)
    if uri and not offline:
        check_server(uri)
    agents = agents_in_use(config)
    VerifierPool(config.verifier).close()
    if config.device.startswith("cuda"):
        from hacpo.agents import pick_device

        pick_device(config.device)
    for name, agent in agents.items():
        if agent.engine == "vllm":
            require("vllm", f"agent {name!r}: engine vllm")
        if agent.lora:
            require("peft", f"agent {name!r}: lora")
    given = {name: a for name, a in agents.items() if not a.model.startswith("embedded:")}
    if given:
        from hacpo.models.resolve import resolve_model
        from hacpo.models.tokens import load_tokens

        for name, agent in given.items():
            load_tokens(name, agent, resolve_model(agent.model, agent.revision, home))


def agents_in_use(config: BaseConfig) -> dict[str, AgentConfig]:
    """The agents that are trained: a grid's file may describe more than its combinations name."""
    if not isinstance(config, GridConfig):
        return config.agents
    named = {agent for combination in config.grid.combinations for agent in combination}
    return {name: agent for name, agent in config.agents.items() if name in named}


MANY_CELLS = 10_000


def check_grid(grid: GridConfig, *, confirmed: bool, how: str) -> None:
    """Refuse a grid that is surely not meant as it is.

    Args:
        grid: checked.
        confirmed: it is meant so.
        how: what confirms it, e.g. `--yes`.
    Raises:
        ConfigError: more than MANY_CELLS trainings and not confirmed, or a name that is taken.
    """
    if grid.name == RUNS:
        raise ConfigError(f"name: {RUNS!r} lists the trainings of `hacpo run`; choose another")
    section = grid.grid
    columns = [*section.methods, *(variant.method for variant in section.variants.values())]
    singles = sum(len(members) for members in section.combinations)
    joint = sum(method in JOINT_METHODS for method in columns)
    each = joint * len(section.combinations) + (len(columns) - joint) * singles
    cells = each * len(section.seeds)
    if cells > MANY_CELLS and not confirmed:
        raise ConfigError(
            f"grid {grid.name!r} has up to {cells:,} cells ({len(columns)} methods, "
            f"{len(section.combinations)} combinations, {len(section.seeds)} seeds): "
            f"confirm with {how} if that is meant"
        )


def tracking_uri(config: BaseConfig) -> str | None:
    """The config's MLflow server, else MLFLOW_TRACKING_URI, else none."""
    return config.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI") or None


def check_writable(folder: Path) -> None:
    probe = folder / f".probe-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise StorageError(
            f"{folder}: cannot be written ({error.strerror}); set HACPO_HOME to a folder of yours"
        ) from error
