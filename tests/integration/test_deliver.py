"""Events that an ended run could not send reach MLflow later, once, by whoever looks."""

import fcntl
from pathlib import Path
from typing import Any

import pytest

from hacpo.deliver import MARKER, deliver_waiting, mark_sent, mark_unsent
from hacpo.ledger import write_json
from hacpo.places import run_folder
from hacpo.tracking import Tracker
from tests.integration.test_mlflow import begin, history, log, runs_of

pytestmark = pytest.mark.slow


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HACPO_HOME", str(tmp_path / "home"))
    address = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    return address


def ended(name: str) -> Path:
    """The folder of a run whose events MLflow never got."""
    folder = run_folder(name)
    mark_unsent(folder)
    write_json(folder / "config.json", {"tracking": {"uri": None}})
    tracker = Tracker(folder, None)
    begin(tracker, name)
    log(tracker, range(3))
    tracker.finish("FINISHED")
    tracker.close()
    return folder


def test_they_arrive_once_and_runs_that_go_on_are_left_alone(uri: str) -> None:
    from mlflow.tracking import MlflowClient

    late, going_on, sent = ended("late"), ended("going-on"), ended("sent")
    mark_sent(sent)
    with (going_on / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert deliver_waiting() == 1
        assert not (late / MARKER).exists()
        assert (going_on / MARKER).exists()
        assert deliver_waiting() == 0
    client: Any = MlflowClient(tracking_uri=uri)
    assert runs_of(client, "sent") == runs_of(client, "going-on") == []
    runs = runs_of(client, "late")
    assert len(runs) == 3
    for run in runs:
        assert run.info.status == "FINISHED"
        if "hacpo.agent" in run.data.tags:
            steps = [step for step, _ in history(client, run.info.run_id, "reward/mean")]
            assert steps == [0, 1, 2]
    assert deliver_waiting() == 1  # the other one has ended by now


def test_a_server_that_is_still_down_is_asked_again_later(
    uri: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = ended("late")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    assert deliver_waiting() == 0
    assert "events wait in" in caplog.text
    assert (folder / MARKER).exists()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert deliver_waiting() == 1
