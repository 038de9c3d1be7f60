"""How many experiment runs a grid submits, and when it gives up; without Prefect."""

import dataclasses
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.client.schemas.objects import StateType

from flows import supervise
from flows.runs import runs_to_submit
from flows.supervise import LOST_SECONDS, SILENT_SECONDS, NobodyTakesCellsError, Supervisor
from hacpo.registry import CellView, StateCounts, SweepView

EMPTY = {field.name: None for field in dataclasses.fields(CellView)}


def cell(state: str, flow_run: str | None = None, *, stale: bool = False) -> CellView:
    facts = {"state": state, "stale": stale, "prefect_flow_run_id": flow_run}
    return CellView(**{**EMPTY, **facts})  # type: ignore[arg-type]


def view(*cells: CellView) -> SweepView:
    found = [one.state for one in cells]
    return SweepView(
        name="s",
        owner="",
        created=datetime.now(UTC),
        submitted=datetime.now(UTC),
        priority=0,
        prefect_flow_run_id=None,
        mlflow_experiment_url=None,
        counts=StateCounts(
            **{state: found.count(state) for state in ("queued", "running", "done")}
        ),
        config={},
        cells=list(cells),
    )


class Prefect:
    """Stands for the server: live runs by id, and how often one was submitted."""

    def __init__(self) -> None:
        self.live: dict[str, Any] = {}
        self.submitted = 0

    def submit_run(self, sweep: str, *, limit: int, offline: bool) -> str:
        self.submitted += 1
        run = f"run{self.submitted}"
        self.live[run] = SimpleNamespace(state_type=StateType.SCHEDULED)
        return run

    def live_runs(self, sweep: str) -> dict[str, Any]:
        return dict(self.live)

    def begin(self, *runs: str) -> None:
        for run in runs:
            self.live[run] = SimpleNamespace(state_type=StateType.RUNNING)


@pytest.fixture
def prefect(monkeypatch: pytest.MonkeyPatch) -> Prefect:
    server = Prefect()
    monkeypatch.setattr(supervise, "live_runs", server.live_runs)
    monkeypatch.setattr(supervise, "submit_run", server.submit_run)
    return server


@pytest.fixture
def look(prefect: Prefect) -> Callable[..., None]:
    """Look at these cells at that time, with two runs wanted."""
    supervisor = Supervisor(
        registry=None,  # type: ignore[arg-type]
        sweep="s",
        runs=2,
        cells_per_run=12,
        offline=False,
        log=logging.getLogger("test"),
    )
    supervisor._taken = 0.0

    def at(seconds: float, *cells: CellView) -> None:
        supervisor._look(view(*cells), seconds)

    return at


@pytest.mark.parametrize(
    ("queued", "idle", "alive", "runs", "wanted"),
    [
        (12, 0, 0, 2, 2),
        (1, 0, 0, 2, 1),
        (0, 0, 1, 2, 0),
        (1, 0, 1, 2, 1),  # the live one may be at its last cell
        (1, 1, 1, 2, 0),  # the live one will take it
        (9, 2, 2, 2, 0),
        (9, 0, 3, 2, 0),
    ],
)
def test_runs_to_submit(queued: int, idle: int, alive: int, runs: int, wanted: int) -> None:
    assert runs_to_submit(queued=queued, idle=idle, alive=alive, runs=runs) == wanted


def test_submits_once_and_again_when_a_run_has_ended(
    prefect: Prefect, look: Callable[..., None]
) -> None:
    queued = [cell("queued")] * 6
    look(1, *queued)
    look(2, *queued)
    assert prefect.submitted == 2
    prefect.begin("run1", "run2")
    look(3, cell("running", "run1"), cell("running", "run2"), *queued)
    assert prefect.submitted == 2
    del prefect.live["run1"]  # killed; its cell is leased for a while
    look(4, cell("running", "run1"), cell("running", "run2"), *queued)
    assert prefect.submitted == 3


def test_does_not_count_on_a_run_whose_lease_has_passed(
    prefect: Prefect, look: Callable[..., None]
) -> None:
    prefect.begin("lost", "well")
    look(1, cell("queued", "lost", stale=True), cell("running", "well"))
    assert prefect.submitted == 1


def test_does_not_count_on_a_run_without_a_cell_for_long(
    prefect: Prefect, look: Callable[..., None]
) -> None:
    prefect.begin("lost", "well")
    cells = [cell("queued"), cell("queued"), cell("running", "well")]
    look(1, *cells)
    assert prefect.submitted == 0
    look(2 + LOST_SECONDS, *cells)
    assert prefect.submitted == 1


def test_gives_up_when_runs_end_without_taking_cells(
    prefect: Prefect, look: Callable[..., None]
) -> None:
    for second in (1, 2, 3):
        look(second, cell("queued"))
        prefect.live.clear()
    with pytest.raises(NobodyTakesCellsError, match="without taking one of the 1 queued cells"):
        look(4, cell("queued"))


def test_says_once_that_no_worker_takes_runs(
    prefect: Prefect, look: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(0, int(3 * SILENT_SECONDS), 10):
        look(float(second), cell("queued"))
    assert [record.message for record in caplog.records] == [
        "no worker has taken an experiment run for 60 s: start one with "
        "`prefect worker start --pool hacpo-cells`"
    ]
