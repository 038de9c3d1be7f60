"""Runs that may have outlived their worker: which there are, and their end."""

import contextlib
import os
import signal
import sys
from pathlib import Path

from processes import wait_until

# This checkout's, whichever one is installed; both need the standard library alone.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from flows.running import live_runs
from hacpo.errors import HacpoError, StorageError
from hacpo.slots import machine_slots

__all__ = ["HacpoError", "end_runs", "live_runs", "machine_slots"]
SECONDS = 40  # a run ends its processes within 25


def end_runs(home: Path, *, grids_only: bool = False) -> int:
    """End the runs of a home that no worker ends any more, politely first; how many there were.

    Raises:
        StorageError: something of a run cannot be killed.
    """
    asked: set[str] = set()

    def gone() -> bool:
        left = [run for run in live_runs(home) if not (grids_only and run.asked)]
        for run in left:
            if run.guard and run.id not in asked:
                asked.add(run.id)
                _signal(run.guard, signal.SIGTERM)
        return not left

    if not wait_until(gone, SECONDS):
        for run in live_runs(home):
            if run.id in asked:
                _signal(run.guard, signal.SIGKILL)
                _signal(run.engine, signal.SIGKILL)
        if not wait_until(gone, SECONDS):
            raise StorageError(f"some runs do not end: see {home / 'logs' / 'runs'}")
    return len(asked)


def _signal(process: int | None, number: signal.Signals) -> None:
    """Guard and engine lead sessions: what does not is another process by now."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if process and os.getsid(process) == process:
            os.kill(process, number)
