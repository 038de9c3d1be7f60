"""The report of a sweep as files in MLflow."""

from pathlib import Path

import pytest

from hacpo.errors import ServiceError
from hacpo.registry import Registry
from hacpo.report.publish import publish
from tests.recorded_sweep import record_sweep

NAMES = ["points.csv", "report.html", "report.md", "report.tex"]


def test_a_report_is_published_once_and_then_replaced(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    grid = {"models": {"a": "m"}, "methods": ["gspo", "gspo_x1"], "tasks": {"held_out": "greedy"}}
    with Registry.open(f"sqlite:///{tmp_path}/registry.db") as registry:
        unfinished = ["gspo a s1", "gspo_x1 a s1"]
        record_sweep(registry, lambda *_: [[1.0]], seeds=[0, 1], unfinished=unfinished, **grid)
        first = publish(registry, "recorded", uri)
        client = MlflowClient(tracking_uri=uri)
        assert sorted(file.path for file in client.list_artifacts(first)) == NAMES
        assert "gspo a s1: queued" in text(client, first, tmp_path / "one")
        record_sweep(registry, lambda *_: [[1.0]], seeds=[0, 1], **grid)
        assert publish(registry, "recorded", uri) == first
        assert "queued" not in text(client, first, tmp_path / "two")
    run = client.get_run(first)
    assert (run.info.run_name, run.info.status) == ("report", "FINISHED")
    assert client.get_experiment(run.info.experiment_id).name == "recorded"


def text(client: object, run: str, folder: Path) -> str:
    folder.mkdir()
    return Path(client.download_artifacts(run, "report.md", str(folder))).read_text()  # type: ignore[attr-defined]


def test_a_server_that_is_down_is_told(tmp_path: Path) -> None:
    with Registry.open(f"sqlite:///{tmp_path}/registry.db") as registry:
        grid = {"models": {"a": "m"}, "methods": ["gspo"], "tasks": {"held_out": "greedy"}}
        record_sweep(registry, lambda *_: [[1.0]], seeds=[0], **grid)
        with pytest.raises(ServiceError, match="MLflow does not answer"):
            publish(registry, "recorded", "http://127.0.0.1:9")
