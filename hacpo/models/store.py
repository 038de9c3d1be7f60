"""Model folders that are written once: locked against other processes, complete or absent."""

import contextlib
import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from hacpo import locks

Progress = Callable[[str], None]
"""Takes one line that says what is going on."""


@contextlib.contextmanager
def locked(lock: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a lock file; yields False if another process has it and `wait` is not set."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with locks.locked(lock, patience=math.inf if wait else 0.0) as held:
        yield held


def write_folder(folder: Path, part: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill `part` (same file system), sync it and rename it to `folder`.

    The caller holds the folder's lock. What a killed writer left is removed first.
    """
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        write(part)
        for file in part.iterdir():
            sync(file)
        os.rename(part, folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def sync(path: Path) -> None:
    """Force a file or a folder's entries to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def silent(line: str) -> None:
    """Progress that nobody reads."""
