"""Embedded agents on disk: built on first use, once, by whichever process comes first.

Torch is loaded only to build one.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from hacpo.errors import StorageError
from hacpo.models.recipes import RECIPE_VERSION, Recipe, recipe, recipe_hash
from hacpo.models.store import Progress, locked, silent, write_folder

PREFIX = "embedded:"


def agent_folder(name: str, home: Path) -> Path:
    """Where an embedded agent lies once it is built.

    Raises:
        DataError: no such agent.
    """
    return home / "agents" / f"{name}-{recipe_hash(name)[:12]}"


def build(name: str, home: Path, *, progress: Progress | None = None) -> Path:
    """An embedded agent's folder, an ordinary model folder; built if it is missing.

    Raises:
        DataError: no such agent.
        StorageError: `home` cannot be written.
    """
    return ensure([name], home, progress)[name]


def ensure(names: Iterable[str], home: Path, progress: Progress | None = None) -> dict[str, Path]:
    """Build every missing agent; two processes that need the same two build one each.

    Raises:
        DataError: no such agent.
        StorageError: `home` cannot be written.
    """
    tell = progress or silent
    folders = {name: agent_folder(name, home) for name in names}
    missing = [name for name, folder in folders.items() if not folder.exists()]
    try:
        elsewhere = [name for name in missing if not _build_if_free(name, folders[name], tell)]
        for name in elsewhere:
            tell(f"waiting for agent {name}, built by another process")
            with locked(_lock(folders[name], name), wait=True):
                _build_locked(name, folders[name], tell)
    except OSError as error:
        raise StorageError(
            f"{home}: embedded agents cannot be stored: {error.strerror or error}; "
            "free space or set HACPO_HOME to a writable folder"
        ) from error
    return folders


def _build_if_free(name: str, folder: Path, tell: Progress) -> bool:
    with locked(_lock(folder, name), wait=False) as is_ours:
        if is_ours:
            _build_locked(name, folder, tell)
        return is_ours


def _lock(folder: Path, name: str) -> Path:
    return folder.with_name(f"{name}.lock")


def _build_locked(name: str, folder: Path, tell: Progress) -> None:
    def write(part: Path) -> None:
        _write_agent(recipe(name), part, lambda line: tell(f"building agent {name}: {line}"))

    if not folder.exists():
        write_folder(folder, folder.with_name(f".{name}.part"), write)


def _write_agent(recipe: Recipe, folder: Path, tell: Progress) -> None:
    tell("loading torch")
    from hacpo.models.pretrain import pretrain
    from hacpo.models.saving import save_model

    save_model(*pretrain(recipe, tell), folder)
    facts = {"version": RECIPE_VERSION, **asdict(recipe)}
    written = folder / "recipe.json"
    written.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
