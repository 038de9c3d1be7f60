"""What a follower sees."""

import dataclasses
import io
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from flows.links import artifact_key, cell_table
from flows.progress import headline, live, plain, seconds_left, share_done
from hacpo.registry import AgentView, CellView, SharedCurves, StateCounts, SweepView

START = datetime(2026, 1, 1, tzinfo=UTC)
EMPTY: dict[str, Any] = {field.name: None for field in dataclasses.fields(CellView)}
QUEUED: dict[str, Any] = {
    "state": "queued",
    "steps_done": 0,
    "steps_total": 60,
    "rollouts": 0,
    "rollouts_planned": 600,
    "activity": "",
    "agents": {},
}


def cell(label: str, **facts: Any) -> CellView:
    return CellView(**{**EMPTY, **QUEUED, "label": label, **facts})


def view(*cells: CellView) -> SweepView:
    states = [one.state for one in cells]
    return SweepView(
        name="demo",
        owner="",
        created=START,
        submitted=START,
        priority=0,
        wanted="run",
        offline=False,
        prefect_flow_run_id=None,
        mlflow_experiment_url="http://mlflow/#/experiments/4/runs",
        counts=StateCounts(**Counter(states)),
        config={},
        cells=list(cells),
    )


def agent(name: str, reward: float) -> AgentView:
    empty: dict[str, Any] = {field.name: None for field in dataclasses.fields(AgentView)}
    return AgentView(**{**empty, "agent": name, "reward_recent": reward})


DONE = cell(
    "hacpo a+b s0",
    state="done",
    steps_done=60,
    rollouts=600,
    seconds_per_step=2.0,
    started=START,
    ended=START + timedelta(seconds=150),
    prefect_flow_run_id="f1",
    mlflow_run_id="m1",
)
HALF = cell(
    "hacpo a+b s1",
    state="running",
    steps_done=30,
    rollouts=300,
    seconds_per_step=2.0,
    agents={"a": agent("a", 0.714), "b": agent("b", 0.5)},
)
BUILDING = cell("gspo a s0", state="running", activity="building agent a: batch 20 of 300")


def test_time_left_counts_steps_and_what_is_beside_them() -> None:
    assert seconds_left(view(cell("x"))) is None
    # 0.2 s a response; 900 responses; 30 s beside the steps for each of two cells; two at a time
    sweep = view(DONE, HALF, dataclasses.replace(BUILDING))
    assert seconds_left(sweep) == pytest.approx((900 * 0.2 + 2 * 30) / 2)
    assert share_done(sweep) == pytest.approx(0.5)


def test_plain_line_tells_what_every_running_cell_does() -> None:
    assert plain(view(DONE, HALF, BUILDING, cell("x")), 130) == (
        "demo: 1 of 4 cells done, 2 running, 1 queued; 02:10, about 3 min left "
        "[hacpo a+b s1: step 30/60, reward a 0.71 b 0.50] "
        "[gspo a s0: building agent a: batch 20 of 300]"
    )


def test_live_display_gives_every_cell_a_line() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(live(view(DONE, HALF, BUILDING), 5))
    head, bar, *cells = console.export_text().splitlines()
    assert head.startswith("demo: 1 of 3 cells done")
    assert len(bar.rstrip()) == 30  # of 60; half of the responses are sampled
    assert [line.split()[0] for line in cells] == ["hacpo", "gspo"]


def test_headline_of_a_paused_sweep_promises_nothing() -> None:
    paused = cell("hacpo a+b s1", state="paused", steps_done=30)
    assert headline(view(DONE, paused), 61) == "demo: 1 of 2 cells done, 1 paused; 01:01"


def test_headline_of_a_finished_sweep_has_no_time_left() -> None:
    failed = cell("x", state="failed")
    assert headline(view(DONE, failed), 61) == "demo: 1 of 2 cells done, 1 failed; 01:01"


def test_cell_table_links_and_survives_pipes() -> None:
    failed = cell("x", state="failed", error="no | here")
    table = cell_table(view(DONE, failed))
    assert "[curves](http://mlflow/#/experiments/4/runs/m1?workflowType=machine_learning)" in table
    assert "failed: no \\| here" in table
    shared = [SharedCurves("first", 2, "http://mlflow/#/experiments/1/runs")]
    line = "[Those of 2 cells shared with first](http://mlflow/#/experiments/1/runs?view"
    assert line in cell_table(view(DONE), shared)


def test_artifact_keys_are_what_prefect_takes() -> None:
    assert artifact_key("report", "My_sweep.v2-") == "report-my-sweep-v2"
