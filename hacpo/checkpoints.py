"""Joint checkpoints: all agents, their optimizers and the capability history, complete or absent.

A folder `checkpoints/000020` holds the state after 20 completed steps:
    agents/A/model/...               loads with AutoModelForCausalLM.from_pretrained
    agents/A/optimizer.safetensors
    state.json                       step, capability history, rollouts so far
    COMPLETE                         sha256 and size of every file, written last
It is filled under a temporary name and renamed when whole.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from hacpo.errors import StorageError
from hacpo.ledger import read_json, storage_errors, write_folder, write_json

logger = logging.getLogger(__name__)

MARKER = "COMPLETE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A complete checkpoint on disk."""

    step: int
    path: Path
    bytes: int
    sha256: str
    """Of the marker, which holds the sha256 of every file."""


def write_checkpoint(
    path: Path,
    step: int,
    save_agents: dict[str, Callable[[Path], None]],
    optimizers: dict[str, dict[str, Tensor]],
    state: dict[str, Any],
) -> Written:
    """Write a checkpoint atomically.

    Args:
        path: final folder.
        step: completed steps.
        save_agents: agent -> writes an ordinary model folder at the path given.
        optimizers: agent -> named tensors.
        state: JSON data beside them.
    Raises:
        StorageError: disk full or not writable; nothing half-written is left.
    """

    def fill(folder: Path) -> None:
        try:
            for agent, save in save_agents.items():
                place = folder / "agents" / agent
                place.mkdir(parents=True)
                save(place / "model")
                save_file(optimizers[agent], place / "optimizer.safetensors")
        except SafetensorError as error:
            raise StorageError(f"{path}: checkpoint not written: {error}") from error
        write_json(folder / "state.json", {**state, "step": step})
        write_json(folder / MARKER, _manifest(folder))

    write_folder(path, fill)
    return _written(path, step)


def latest_checkpoint(folder: Path) -> Written | None:
    """The newest complete checkpoint whose files are as its marker says, or None."""
    for path in sorted(folder.glob("[0-9]*"), reverse=True):
        if not (path / MARKER).is_file():
            continue
        if _manifest(path) == _marked(path):
            return _written(path, int(path.name))
        logger.warning("%s is damaged: its files are not as its marker says; not used", path)
    return None


def read_state(checkpoint: Written) -> dict[str, Any]:
    return dict(read_json(checkpoint.path / "state.json"))


def read_optimizer(checkpoint: Written, agent: str) -> dict[str, Tensor]:
    return load_file(checkpoint.path / "agents" / agent / "optimizer.safetensors")


def model_folder(checkpoint: Path, agent: str) -> Path:
    return checkpoint / "agents" / agent / "model"


def prune(folder: Path, *, keep_last: int, keep: set[int]) -> list[int]:
    """Remove all but the newest `keep_last` and the steps in `keep`; returns the removed steps."""
    steps = sorted(int(path.name) for path in folder.glob("[0-9]*"))
    removed = [step for step in steps[:-keep_last] if step not in keep]
    for step in removed:
        with storage_errors(folder):
            path = folder / f"{step:06d}"
            (path / MARKER).unlink(
                missing_ok=True
            )  # first, so that a half-removed one is not taken
            shutil.rmtree(path)
    return removed


def _marked(folder: Path) -> Any:
    """What the marker says; None if it was torn."""
    with storage_errors(folder):
        text = (folder / MARKER).read_text(encoding="utf-8")
    try:
        return json.loads(text)
    except ValueError:
        return None


def _manifest(folder: Path) -> dict[str, dict[str, Any]]:
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != MARKER:
            with path.open("rb") as handle:
                digest = hashlib.file_digest(handle, "sha256").hexdigest()
            files[str(path.relative_to(folder))] = {
                "sha256": digest,
                "bytes": path.stat().st_size,
            }
    return files


def _written(path: Path, step: int) -> Written:
    manifest = read_json(path / MARKER)
    return Written(
        step=step,
        path=path,
        bytes=sum(file["bytes"] for file in manifest.values()),
        sha256=hashlib.sha256((path / MARKER).read_bytes()).hexdigest(),
    )
