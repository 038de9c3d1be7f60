"""Events on their way to MLflow: one JSON line each, in the run's folder, before anything is sent.

A line is written whole or cut off by the next open, never changed. How far MLflow has got is kept
beside it, in `tracking_state.json`.
"""

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hacpo.errors import StorageError

Event = dict[str, Any]
VOLATILE = ("time/", "memory/", "throughput/")
"""Metrics that differ between two executions of the same step."""
PARENT = ""
"""Stands for the parent run where an agent's name is expected."""


class Spool:
    """The events of one run; safe for one writing process with several threads.

    Args:
        folder: the run's ledger folder.
        repair: cut off a last line that a killed process left unfinished; only the writer may.
    Raises:
        StorageError: the file cannot be read or repaired.
    """

    def __init__(self, folder: Path, *, repair: bool = True) -> None:
        self.path = folder / "tracking.jsonl"
        self.start: Event | None = None
        """The newest start event."""
        self.replayed = 0
        """Replayed (step, agent) pairs whose metrics were not those of the first time."""
        self._offsets = [0]
        self._logged: dict[tuple[str, int, str], str] = {}
        self._lifecycle = ""
        self._lock = threading.Lock()
        try:
            self._open(repair)
        except OSError as error:
            raise StorageError(f"cannot read {self.path}: {error.strerror}") from error

    def _open(self, repair: bool) -> None:
        if not self.path.exists():
            return
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if repair and whole < len(data):
            os.truncate(self.path, whole)
        for line in data[:whole].splitlines(keepends=True):
            self._remember(_parse(line), len(line))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def read(self, start: int, limit: int) -> list[Event]:
        """Up to `limit` events from number `start` on; a damaged line has no kind."""
        end = min(start + limit, len(self))
        if start >= end:
            return []
        with self.path.open("rb") as file:
            file.seek(self._offsets[start])
            data = file.read(self._offsets[end] - self._offsets[start])
        return [_parse(line) for line in data.splitlines(keepends=True)]

    def append(self, event: Event) -> None:
        """Add one event.

        Raises:
            StorageError: disk full or folder not writable; the file stays as it was.
        """
        with self._lock:
            self._append(event)

    def append_lifecycle(self, event: Event) -> None:
        """Add a start or finish unless the newest one says the same."""
        with self._lock:
            if _lifecycle_text(event) != self._lifecycle:
                self._append(event)

    def append_metrics(
        self, event: Event, agents: Mapping[str, dict[str, float]], parent: dict[str, float]
    ) -> None:
        """Add what was not logged before under the same name and step, if anything.

        Values are compared bit for bit, those of `VOLATILE` names not at all.
        """
        with self._lock:
            fresh: dict[str, dict[str, float]] = {}
            differing = 0
            for owner, values in {PARENT: parent, **agents}.items():
                before = self._logged.get((event["name"], event["step"], owner))
                if values and before != _fingerprint(values):
                    fresh[owner] = values
                    differing += before is not None and owner != PARENT
            if fresh:
                total = {"replayed": self.replayed + differing} if differing else {}
                self._append({**event, **total, "metrics": fresh})

    def _append(self, event: Event) -> None:
        line = json.dumps(event).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab", buffering=0) as file:
                if file.write(line) != len(line):
                    file.truncate(self._offsets[-1])
                    raise StorageError(f"cannot write {self.path}: disk full")
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError(f"cannot write {self.path}: {error.strerror}") from error
        self._remember(event, len(line))

    def _remember(self, event: Event, size: int) -> None:
        match event.get("kind"):
            case "start":
                self.start = event
                self._lifecycle = _lifecycle_text(event)
            case "finish":
                self._lifecycle = _lifecycle_text(event)
            case "metrics":
                self.replayed = event.get("replayed", self.replayed)
                for owner, values in event["metrics"].items():
                    self._logged[event["name"], event["step"], owner] = _fingerprint(values)
        self._offsets.append(self._offsets[-1] + size)


@dataclass(slots=True)
class State:
    """How far MLflow has got, and what it calls the runs; losing it only costs a resend."""

    uri: str = ""
    cursor: int = 0
    """Events that MLflow has acknowledged."""
    experiment: str = ""
    parent: str = ""
    agents: dict[str, str] = field(default_factory=dict)
    """agent -> run id"""

    def save(self, folder: Path) -> None:
        temporary = folder / "tracking_state.json.tmp"
        temporary.write_text(json.dumps(asdict(self), indent=2))
        temporary.replace(folder / "tracking_state.json")


def load_state(folder: Path) -> State:
    """The saved state; a new one if there is none or a crash damaged it."""
    try:
        return State(**json.loads((folder / "tracking_state.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return State()


def _parse(line: bytes) -> Event:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _fingerprint(values: dict[str, float]) -> str:
    kept = {name: value for name, value in values.items() if not name.startswith(VOLATILE)}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def _lifecycle_text(event: Event) -> str:
    return json.dumps({**event, "time": 0}, sort_keys=True)
