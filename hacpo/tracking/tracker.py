"""What a run tells MLflow. Every call appends one line to the spool; a thread of its own sends."""

import json
import logging
import math
import posixpath
import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from hacpo.tracking.sender import Sender
from hacpo.tracking.server import check_scheme
from hacpo.tracking.spool import Event, Spool, State, load_state
from hacpo.tracking.view import CURVE, curve
from hacpo.types import Evaluation

logger = logging.getLogger(__name__)

Status = Literal["FINISHED", "FAILED", "KILLED"]

_PAUSE = 5.0  # seconds between two rounds of sending, so that steps share requests
_MAX_BACKOFF = 60.0
_NAME = re.compile(r"[/\w.\- :]+", re.ASCII)


class Tracker:
    """One run's metrics: a parent run for the cell, a child run for each agent.

    Args:
        folder: the run's ledger folder; events go to `tracking.jsonl` in it.
        uri: http(s)://... or sqlite:///...; None sends nothing (see `sync`).
    Raises:
        ConfigError: another kind of address.
        StorageError: here and from all that logs: the folder cannot be read or written.
    """

    def __init__(self, folder: Path, uri: str | None) -> None:
        self._folder = folder
        self._spool = Spool(folder)
        self._sender: Sender | None = None
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._closing = threading.Event()
        self._abandoned = threading.Event()
        self._attempts = 0
        self._failing = False
        self._thread: threading.Thread | None = None
        if uri is not None:
            check_scheme(uri)
            self._sender = Sender(self._spool, uri)
            self._thread = threading.Thread(target=self._work, name="mlflow sender", daemon=True)
            self._thread.start()
            self._wake.set()

    def start(
        self,
        experiment: str,
        run_name: str,
        params: Mapping[str, Any],
        tags: Mapping[str, Any],
        agents: Mapping[str, Mapping[str, Any]],
        config_text: str,
    ) -> None:
        """Name the run; call it again when the run resumes.

        Args:
            experiment: the sweep's name.
            run_name: the parent's name, e.g. `hacpo a+b s0`; an agent's is `hacpo a+b s0: a`.
            params: the config as nested data; flattened to dotted names.
            tags: for every run: hacpo.cell, hacpo.sweep, hacpo.method, hacpo.combination,
                hacpo.seed and others.
            agents: agent -> tags of its run, e.g. hacpo.model.
            config_text: the whole config, kept as `config.yaml`.
        """
        shared = {name: str(value) for name, value in tags.items()}
        # A folder that was forgotten and begun again is another run, a resumed one the same.
        before = self._spool.start or {"tags": {}}
        shared["hacpo.run"] = before["tags"].get("hacpo.run") or uuid4().hex
        assert "'" not in shared["hacpo.cell"], shared
        children = {
            agent: {
                "run_name": f"{run_name}: {agent}",
                "tags": {name: str(value) for name, value in own.items()}
                | {"hacpo.agent": agent}
                | {CURVE: curve(shared["hacpo.method"], shared["hacpo.combination"], agent)},
            }
            for agent, own in agents.items()
        }
        event = _event("start", experiment=experiment, run_name=run_name, agents=children)
        event |= {"params": flatten(params), "tags": shared, "config_text": config_text}
        self._spool.append_lifecycle(event)
        self._wake.set()

    def log_step(
        self,
        step: int,
        metrics: Mapping[str, Mapping[str, float]],
        parent: Mapping[str, float] | None = None,
    ) -> None:
        """Log a step's metrics by agent, and the parent's. What the spool already has is skipped.

        Raises:
            ValueError: a name that MLflow would refuse.
        """
        self._log("step", step, metrics, parent or {})

    def log_evaluation(
        self,
        agent: str,
        step: int,
        evaluations: list[Evaluation],
        more: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None:
        """Log held-out means, e.g. `eval/held_out/avg_at_8`, and how much was not graded or cut.

        Args:
            agent: whose.
            step: completed ones.
            evaluations: of that agent.
            more: task -> further metrics, e.g. `best@30` as `eval/aime25/best_at_30`.
        """
        own: dict[str, float] = {}
        parent = {}
        for evaluation in evaluations:
            protocol = evaluation.protocol.replace("@", "_at_")
            scores = [score for problem in evaluation.problems for score in problem.scores]
            name = f"eval/{evaluation.task}/{protocol}"
            own[name] = parent[f"agent_{agent}/{evaluation.task}_{protocol}"] = evaluation.mean
            if scores:
                own[f"{name}_truncated"] = evaluation.counts.get("truncated", 0) / len(scores)
            if ungraded := sum(map(math.isnan, scores)):
                own[f"{name}_ungraded_count"] = ungraded
        for task, metrics in (more or {}).items():
            for metric, value in metrics.items():
                own[f"eval/{task}/{metric.replace('@', '_at_')}"] = value
        self._log(f"evaluation of {agent}", step, {agent: own}, parent)

    def log_artifact_folder(self, agent: str, local_folder: Path, name: str) -> None:
        """Give MLflow a folder, as `name` in the agent's run; it must stay until it is sent."""
        folder = str(local_folder.absolute())
        self._spool.append(_event("artifacts", agent=agent, folder=folder, name=name))
        self._wake.set()

    def finish(self, status: Status) -> None:
        """Set the final status of parent and children."""
        self._spool.append_lifecycle(_event("finish", status=status))
        self._wake.set()

    def flush(self, timeout: float = 10.0) -> int:
        """Wait until MLflow has everything, up to `timeout` seconds or until it fails.

        Returns:
            Events that a server should have got and has not.
        """
        if self._sender is None:
            return 0
        attempts, deadline = self._attempts, time.monotonic() + timeout
        self._hurry.set()
        self._wake.set()
        while self.unsent and time.monotonic() < deadline:
            if self._failing and self._attempts > attempts:
                break
            time.sleep(0.01)
        return self.unsent

    def close(self, timeout: float = 10.0) -> int:
        """Send what is left for up to `timeout` seconds, but do not wait for a server that is down.

        Returns:
            Events that a server should have got and has not. They stay in the spool for the next
            Tracker or `sync`.
        """
        self._closing.set()
        self._hurry.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout)
        self._abandoned.set()
        return 0 if self._sender is None else self.unsent

    @property
    def unsent(self) -> int:
        """Events in the spool that MLflow has not acknowledged."""
        if self._sender is None:
            return len(self._spool) - load_state(self._folder).cursor
        return self._sender.unsent

    @property
    def experiment_id(self) -> str | None:
        return self._state().experiment or None

    def run_ids(self) -> tuple[str, dict[str, str]] | None:
        """MLflow's ids, (parent, agent -> child), once known."""
        state = self._state()
        return (state.parent, dict(state.agents)) if state.parent else None

    def _state(self) -> State:
        return load_state(self._folder) if self._sender is None else self._sender.state

    def _log(
        self,
        name: str,
        step: int,
        metrics: Mapping[str, Mapping[str, float]],
        parent: Mapping[str, float],
    ) -> None:
        agents = {agent: _floats(values) for agent, values in metrics.items()}
        self._spool.append_metrics(_event("metrics", name=name, step=step), agents, _floats(parent))
        self._wake.set()

    def _work(self) -> None:
        assert self._sender is not None
        backoff = 0.0
        while True:
            if backoff:
                self._hurry.wait(backoff)
            else:
                self._wake.wait()
            self._wake.clear()
            self._hurry.clear()
            try:
                self._sender.send(self._abandoned.is_set)
            except Exception as error:  # whatever MLflow does, training goes on
                if not backoff:
                    reason = str(error).partition("\n")[0]
                    logger.warning("events for MLflow wait in %s: %s", self._folder, reason)
                backoff = min(2 * backoff or 1.0, _MAX_BACKOFF)
            else:
                if backoff:
                    logger.warning("MLflow answers again and has got the events that waited")
                backoff = 0.0
            self._failing = bool(backoff)
            self._attempts += 1
            if self._closing.is_set() and (backoff or not self._wake.is_set()):
                return
            if not backoff and not self._closing.is_set():
                self._hurry.wait(_PAUSE)


def flatten(params: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested data as dotted names and text.

    >>> flatten({"update": {"learning_rate": 1e-06}, "device": "cpu"})
    {'update.learning_rate': '1e-06', 'device': 'cpu'}
    """
    flat: dict[str, str] = {}
    for name, value in params.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value if isinstance(value, str) else json.dumps(value)
    return flat


def _event(kind: str, **fields: Any) -> Event:
    return {"kind": kind, "time": int(time.time() * 1000), **fields}


def _floats(values: Mapping[str, float]) -> dict[str, float]:
    for name in values:
        if not _NAME.fullmatch(name) or posixpath.normpath(name) != name or name[0] in "/.":
            raise ValueError(
                f"metric name {name!r}: MLflow takes letters, digits, _ - . : space and single /"
            )
    return {name: float(value) for name, value in values.items()}
