"""Embedded agents on disk: built on first use, once, by whichever process comes first.

Torch is loaded only to build one.
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from hacpo.errors import StorageError
from hacpo.models.recipes import RECIPE_VERSION, Recipe, recipe, recipe_hash

PREFIX = "embedded:"
Progress = Callable[[str], None]
"""Takes one line that says what is going on."""


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
    tell = progress or _silent
    folders = {name: agent_folder(name, home) for name in names}
    missing = [name for name, folder in folders.items() if not folder.exists()]
    try:
        elsewhere = [name for name in missing if not _build_if_free(name, folders[name], tell)]
        for name in elsewhere:
            tell(f"waiting for agent {name}, built by another process")
            with _locked(name, folders[name].parent, wait=True):
                _build_locked(name, folders[name], tell)
    except OSError as error:
        raise StorageError(
            f"{home}: embedded agents cannot be stored: {error.strerror or error}; "
            "free space or set HACPO_HOME to a writable folder"
        ) from error
    return folders


def _build_if_free(name: str, folder: Path, tell: Progress) -> bool:
    with _locked(name, folder.parent, wait=False) as is_ours:
        if is_ours:
            _build_locked(name, folder, tell)
        return is_ours


@contextlib.contextmanager
def _locked(name: str, agents: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the agent's lock; yields False if another process has it and `wait` is not set."""
    agents.mkdir(parents=True, exist_ok=True)
    with open(agents / f"{name}.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True  # the lock ends with the open file


def _build_locked(name: str, folder: Path, tell: Progress) -> None:
    """Build in a folder beside and rename it; what a killed builder left is removed first."""
    if folder.exists():
        return
    part = folder.with_name(f".{name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        _write_agent(recipe(name), part, lambda line: tell(f"building agent {name}: {line}"))
        for file in part.iterdir():
            _sync(file)
        os.rename(part, folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write_agent(recipe: Recipe, folder: Path, tell: Progress) -> None:
    tell("loading torch")
    from hacpo.models.pretrain import pretrain
    from hacpo.models.saving import save_model

    save_model(*pretrain(recipe, tell), folder)
    facts = {"version": RECIPE_VERSION, **asdict(recipe)}
    written = folder / "recipe.json"
    written.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _silent(line: str) -> None:
    """Progress that nobody reads."""
