"""The runs that live on this machine under a HACPO_HOME, whether or not their worker still does.

Each has a file that it keeps locked (HACPO_HOME/slots/runs/FLOW_RUN_ID); an unlocked one is what a
killed run left. Standard library only.
"""

import fcntl
import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from hacpo.errors import ConfigError, StorageError

SIZE = 8192
ATTEMPTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """What a run says of itself."""

    id: str
    """Of its flow run."""
    asked: int
    """Slots that it asked for; grids ask for none."""
    slots: tuple[str, ...] = ()
    """Those that it holds; none yet while it waits."""
    guard: int | None = None
    """Process that ends the run when it gets SIGTERM; None before it has started."""
    engine: int | None = None
    """Process that does the work."""
    host: str = ""


class Registration:
    """The file of this process's run.

    Raises:
        ConfigError: a process of the same flow run is alive.
        StorageError: the file cannot be written.
    """

    def __init__(self, home: Path, run: LiveRun) -> None:
        self.path = _folder(home) / run.id
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.descriptor = _locked(self.path)
        except BlockingIOError:
            raise ConfigError(f"flow run {run.id} still lives on this machine") from None
        except OSError as error:
            raise StorageError(f"{self.path}: {error.strerror}: set HACPO_HOME") from error
        self.write(run)

    def write(self, run: LiveRun) -> None:
        told = {name: getattr(run, name) for name in LiveRun.__slots__} | {"host": _HOST}
        os.pwrite(self.descriptor, json.dumps(told).encode().ljust(SIZE), 0)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def live_runs(home: Path) -> list[LiveRun]:
    """The runs of this machine, those of grids first; removes what killed ones left."""
    if not _folder(home).is_dir():
        return []
    found = [run for path in sorted(_folder(home).iterdir()) if (run := _read(path))]
    return sorted((run for run in found if run.host == _HOST), key=lambda run: run.asked)


def _read(path: Path) -> LiveRun | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        try:
            # Shared, so that two who look don't take each other for the run.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
            return None
        except BlockingIOError:
            pass
        for _ in range(ATTEMPTS):
            try:
                told = json.loads(os.pread(descriptor, SIZE, 0))
                return LiveRun(**told | {"slots": tuple(told["slots"])})
            except (ValueError, TypeError, KeyError):  # just being written
                time.sleep(0.05)
        raise StorageError(f"{path} is damaged: end the run that holds it (`fuser {path}`)")
    finally:
        os.close(descriptor)


def _locked(path: Path) -> int:
    """The file at `path`, locked; BlockingIOError if a run has it."""
    for attempt in range(ATTEMPTS):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            if attempt > 2:
                raise
        else:
            if os.fstat(descriptor).st_nlink:
                return descriptor
            os.close(descriptor)
        time.sleep(0.02)  # someone looks at it for a moment, or has removed it
    raise BlockingIOError(path)


def _folder(home: Path) -> Path:
    return home / "slots" / "runs"


_HOST = socket.gethostname()
