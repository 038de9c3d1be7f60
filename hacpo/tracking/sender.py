"""Sends a spool's events to MLflow, in order, as often as it takes; the only caller of mlflow.

Sending again changes nothing: runs are found by their tags, MLflow keeps one of several equal
(value, timestamp, step), and timestamps are the spool's. Two processes never send at once: both
would look for the runs, and both create them.
"""

import logging
import math
import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from hacpo.errors import HacpoError, ServiceError
from hacpo.locks import locked
from hacpo.tracking.runs import open_runs
from hacpo.tracking.server import check_server, public
from hacpo.tracking.spool import PARENT, Event, Spool, State, load_state
from hacpo.tracking.view import experiment_tags

logger = logging.getLogger(__name__)

_BATCH = 100  # events between two acknowledgements
_MAX_PARAM_LENGTH = 6000  # MLflow's
_ARTIFACT_ATTEMPTS = 3
_OTHER_SECONDS = 10.0  # how long another sender of the same events is waited for
_REFUSED = (400, 413)  # HTTP: will be refused however often it is sent
_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}


class Sender:
    """One run's events to one MLflow; used by one thread at a time.

    Its errors are MLflow's, and come before anything is acknowledged that was not received.
    """

    def __init__(self, spool: Spool, uri: str) -> None:
        self._spool = spool
        self._uri = uri
        self._folder = spool.path.parent
        self._client: Any = None
        self._opened = False
        self._artifact_attempts = 0
        self.state = load_state(self._folder)
        if self.state.uri != public(uri):
            self.state = State(uri=public(uri))

    @property
    def unsent(self) -> int:
        return len(self._spool) - self.state.cursor

    def send(self, stop: Callable[[], bool] = lambda: False) -> int:
        """Send what is pending, until `stop()`; returns how many events were acknowledged.

        Raises:
            ServiceError: MLflow does not answer, or somebody else is sending.
            MlflowException: it answers with an error of its own.
        """
        start = self._spool.start
        if start is None or not self.unsent:
            return 0
        lock = self._folder / "tracking.lock"  # a closing run may have given up on a thread
        with locked(lock, patience=_OTHER_SECONDS, stop=stop) as alone:
            if not alone:
                raise ServiceError("another process is sending them")
            if not self._opened:
                self._open_runs(start)
            self._opened = False  # after an error, look again: the server may be another one
            sent = 0
            while not stop() and (events := self._spool.read(self.state.cursor, _BATCH)):
                self._send_events(events)
                sent += len(events)
                self.state.cursor += len(events)
                self.state.save(self._folder)
            self._opened = True
        return sent

    def _open_runs(self, start: Event) -> None:
        """Connect, and begin again from the first event if these are not the runs of last time."""
        check_server(self._uri)
        if self._client is None:
            self._client = connect(self._uri)
        runs = open_runs(self._client, start, self._uri)
        self._arrange(runs.experiment)
        if runs.created or (runs.parent, runs.agents) != (self.state.parent, self.state.agents):
            self.state = State(public(self._uri), 0, runs.experiment, runs.parent, runs.agents)
            self.state.save(self._folder)

    def _arrange(self, experiment: str) -> None:
        """Give the experiment its view; a description that somebody wrote stays."""
        there = self._client.get_experiment(experiment).tags
        for name, value in experiment_tags(experiment).items():
            ours = name.startswith("mlflow.sharedViewState.")
            if name not in there or (ours and there[name] != value):
                set_tag = self._client.set_experiment_tag
                self._attempt("a tag of the experiment", set_tag, experiment, name, value)

    def _send_events(self, events: list[Event]) -> None:
        """Send a batch; metrics of neighbouring events share requests."""
        from mlflow.entities import Metric

        metrics: dict[str, list[Metric]] = defaultdict(list)
        for event in events:
            if event.get("kind") == "metrics":
                self._collect(event, metrics)
                continue
            self._flush(metrics)
            match event.get("kind"):
                case "start":
                    self._start(event)
                case "artifacts":
                    self._artifacts(event)
                case "finish":
                    self._finish(event)
                case _:
                    logger.warning("%s holds a damaged line; it is skipped", self._spool.path)
        self._flush(metrics)

    def _collect(self, event: Event, metrics: dict[str, list[Any]]) -> None:
        from mlflow.entities import Metric

        for owner, values in event["metrics"].items():
            run_id = self.state.parent if owner == PARENT else self.state.agents.get(owner)
            if run_id is None:
                continue
            finite = {name: value for name, value in values.items() if math.isfinite(value)}
            if len(finite) < len(values):
                finite["nonfinite/count"] = float(len(values) - len(finite))
            metrics[run_id] += [
                Metric(name, value, event["time"], event["step"]) for name, value in finite.items()
            ]
        if "replayed" in event:
            tag = ("hacpo.replayed_steps_differ", str(event["replayed"]))
            self._attempt("a tag", self._client.set_tag, self.state.parent, *tag)

    def _flush(self, metrics: dict[str, list[Any]]) -> None:
        for run_id, values in metrics.items():
            self._attempt("metrics", self._client.log_batch, run_id, metrics=values)
        metrics.clear()

    def _start(self, event: Event) -> None:
        from mlflow.entities import Param, RunTag

        client, parent = self._client, self.state.parent
        params = [Param(name, value[:_MAX_PARAM_LENGTH]) for name, value in event["params"].items()]
        self._attempt("changed parameters", client.log_batch, parent, params=params)
        self._attempt("config.yaml", client.log_text, parent, event["config_text"], "config.yaml")
        own = {parent: {}} | {
            run_id: event["agents"][agent]["tags"]
            for agent, run_id in self.state.agents.items()
            if agent in event["agents"]
        }
        for run_id, tags in own.items():
            written = [RunTag(name, value) for name, value in {**event["tags"], **tags}.items()]
            self._attempt("tags", client.log_batch, run_id, tags=written)
            self._attempt("the status of a run", client.update_run, run_id, status="RUNNING")

    def _finish(self, event: Event) -> None:
        end = self._client.set_terminated
        for run_id in [*self.state.agents.values(), self.state.parent]:
            self._attempt("the end of a run", end, run_id, event["status"], event["time"])

    def _artifacts(self, event: Event) -> None:
        run_id = self.state.agents.get(event["agent"])
        folder = Path(event["folder"])
        if run_id is None or not folder.is_dir():
            logger.warning("%s is gone; MLflow does not get it", folder)
            return
        self._artifact_attempts += 1
        try:
            self._upload(run_id, folder, event["name"])
        except Exception as error:  # a server that is well but too slow must not hold up the rest
            if self._artifact_attempts < _ARTIFACT_ATTEMPTS:
                raise
            logger.warning(
                "MLflow does not get %s (a larger MLFLOW_HTTP_REQUEST_TIMEOUT may help): %s",
                folder,
                error,
            )
        self._artifact_attempts = 0

    def _upload(self, run_id: str, folder: Path, name: str) -> None:
        # One file at a time: log_artifacts of some stores starts threads that an exit waits for.
        upload = self._client.log_artifact
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            target = PurePosixPath(name) / path.parent.relative_to(folder).as_posix()
            self._attempt(str(path), upload, run_id, str(path), target.as_posix())

    def _attempt(self, what: str, call: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        """Call MLflow; what it will never accept is dropped, or it would block all that follows."""
        from mlflow.exceptions import MlflowException
        from requests import HTTPError

        try:
            call(*args, **kwargs)
        except (MlflowException, HTTPError) as error:
            if isinstance(error, MlflowException):
                status = error.get_http_status_code()
            else:
                status = 0 if error.response is None else error.response.status_code
            if status not in _REFUSED:
                raise
            logger.warning("MLflow refuses %s: %s", what, str(error).partition("\n")[0])


def sync(folder: Path, uri: str) -> int:
    """Send what a run's spool still holds; returns how many events MLflow acknowledged.

    Raises:
        ConfigError: not an address that can be used.
        ServiceError: MLflow does not answer, or with an error of its own.
    """
    check_server(uri)
    sender = Sender(Spool(folder, repair=False), uri)
    try:
        return sender.send()
    except HacpoError:
        raise
    except Exception as error:  # MLflow's and its libraries' many kinds
        raise ServiceError(
            f"MLflow at {public(uri)}: {str(error).partition(chr(10))[0]}"
        ) from error


def connect(uri: str) -> Any:
    """A client without global state. Importing mlflow takes one to three seconds."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow.tracking import MlflowClient

    logging.getLogger("mlflow").setLevel(logging.ERROR)
    return MlflowClient(tracking_uri=uri)
