"""Events that an ended run could not send reach MLflow later, once, by whoever looks."""

import fcntl
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import hacpo
from hacpo.deliver import MARKER, deliver_waiting, mark_sent, mark_unsent
from hacpo.ledger import write_json
from hacpo.places import run_folder
from hacpo.tracking import Tracker, sync
from tests.integration.mlflow_runs import begin, history, log, runs_of
from tests.tiny import tiny_pair

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
    assert deliver_waiting() == 0  # left alone for a while
    monkeypatch.setattr("hacpo.deliver._again", {})
    assert deliver_waiting() == 1


def test_a_folder_that_cannot_be_sent_does_not_hold_up_the_others(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hacpo.deliver._again", {})
    broken, elsewhere, fine = ended("0-broken"), ended("1-elsewhere"), ended("2-fine")
    (broken / "config.json").write_text("{")
    write_json(elsewhere / "config.json", {"tracking": {"uri": "http://127.0.0.1:9"}})
    mark_unsent(run_folder("00-not-begun"))  # killed before it wrote its config
    assert deliver_waiting() == 1
    assert not (fine / MARKER).exists()
    assert (broken / MARKER).exists()
    assert (elsewhere / MARKER).exists()


def test_what_somebody_else_is_sending_is_not_waited_for_long(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hacpo.deliver._again", {})
    monkeypatch.setattr("hacpo.tracking.sender._OTHER_SECONDS", 0.3)
    folder = ended("busy")
    with (folder / "tracking.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert deliver_waiting() == 0
    assert (folder / MARKER).exists()


def test_two_senders_of_one_spool_create_its_runs_once(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.tracking import MlflowClient

    create = MlflowClient.create_run

    def slowly(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.5)  # each has looked before the other has created
        return create(*args, **kwargs)

    monkeypatch.setattr(MlflowClient, "create_run", slowly)
    folder = ended("twice")
    MlflowClient(tracking_uri=uri).search_experiments()  # creates the tables
    threads = [threading.Thread(target=sync, args=(folder, uri)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(runs_of(MlflowClient(tracking_uri=uri), "twice")) == 3


def test_a_request_that_was_sent_twice_leaves_one_run(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.tracking import MlflowClient

    create = MlflowClient.create_run

    def twice(*args: Any, **kwargs: Any) -> Any:
        create(*args, **kwargs)
        return create(*args, **kwargs)

    monkeypatch.setattr(MlflowClient, "create_run", twice)
    folder = ended("again")
    sync(folder, uri)
    runs = runs_of(MlflowClient(tracking_uri=uri), "again")
    assert len(runs) == 3
    assert {run.info.status for run in runs} == {"FINISHED"}


@pytest.mark.parametrize("failing", [False, True])
def test_a_run_says_its_last_word_while_its_folder_is_held(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: bool
) -> None:
    free: list[bool] = []
    close = Tracker.close

    def closing(tracker: Tracker, timeout: float = 10.0) -> int:
        with (tracker._folder / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                free.append(False)
            else:
                free.append(True)
        return close(tracker, timeout)

    def failed(*_: object, **__: object) -> None:
        raise RuntimeError("not of this world")

    monkeypatch.setattr(Tracker, "close", closing)
    if failing:
        monkeypatch.setattr("hacpo.work.train_run", failed)
    config = tiny_pair(tmp_path / "models") | {"steps": 1}
    if failing:
        with pytest.raises(RuntimeError, match="not of this world"):
            hacpo.train(config)
    else:
        hacpo.train(config)
    assert free == [False]
