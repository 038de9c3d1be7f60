"""What must hold after a fault, whatever it was."""

import fcntl
import os
from pathlib import Path
from typing import Any

from hacpo.registry import Registry
from tests.chaos.faults import engines
from tests.chaos.stage import STEPS, Stage, results, wait_for

END_SECONDS = 600
CLEAR_SECONDS = 180


def wait_until_done(stage: Stage, name: str) -> None:
    """Every cell ends, and ends done."""

    def ended() -> bool:
        return not stage.view(name).counts.unfinished

    wait_for(ended, END_SECONDS, f"every cell of {name} ends")
    view = stage.view(name)
    assert view.counts.done == view.counts.total, [(c.label, c.error) for c in view.cells]


def check_results(stage: Stage, name: str) -> None:
    """Bit for bit those of a run without faults."""
    with Registry.open(stage.registry_url) as registry:
        for cell in registry.sweep(name).cells:
            found = results(registry, stage.folder, cell.key)
            for mine, theirs, what in zip(
                found, stage.undisturbed[cell.key], ("files", "steps", "scores"), strict=True
            ):
                assert mine == theirs, f"{cell.label}: other {what} than undisturbed"


def check_nothing_is_left(stage: Stage) -> None:
    """No process of an experiment, no slot that is held."""
    (flow,) = stage.prefect("flows/filter", {"flows": {"name": {"any_": ["hacpo-experiment"]}}})

    def left() -> list[int]:
        return [
            pid
            for pid, run in engines(stage).items()
            if stage.prefect(f"flow_runs/{run}")["flow_id"] == flow["id"]
        ]

    wait_for(lambda: not left(), CLEAR_SECONDS, "no process of an experiment is left")
    wait_for(lambda: not held_slots(stage.folder), CLEAR_SECONDS, "every slot is free")


def held_slots(home: Path) -> list[str]:
    held = []
    for path in (home / "slots").glob("cpu*"):
        descriptor = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.append(path.name)
        finally:
            os.close(descriptor)
    return held


def check_mlflow(stage: Stage, name: str) -> None:
    """One run for each cell and each of its agents, with every step's reward once."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(stage.env["MLFLOW_TRACKING_URI"])
    wait_for(
        lambda: not list((stage.folder / "runs").glob("*/unsent")),
        CLEAR_SECONDS + 120,
        "MLflow has every event",
    )
    experiment = client.get_experiment_by_name(name)
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id], max_results=1000)
    runs = [run for run in found if "hacpo.cell" in run.data.tags]  # beside them the report
    cells = stage.view(name).cells
    agents = {f"{cell.key} {agent}" for cell in cells for agent in cell.agents}
    names = [_name(run) for run in runs]
    assert sorted(names) == sorted([*agents, *(f"{cell.key} " for cell in cells)]), names
    for run in runs:
        assert run.info.status == "FINISHED", (_name(run), run.info.status)
        if "hacpo.agent" in run.data.tags:
            history = client.get_metric_history(run.info.run_id, "reward/mean")
            assert sorted(metric.step for metric in history) == list(range(STEPS)), _name(run)


def _name(run: Any) -> str:
    return f"{run.data.tags['hacpo.cell']} {run.data.tags.get('hacpo.agent', '')}"
