"""The whole platform, for real: CLI, Prefect server, workers, MLflow, registry, tiny models."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows import reconcile
from flows.runs import drop_late, pending_grids
from hacpo.registry import CellView, Registry, SweepView
from tests.servers import CHECKOUT, platform
from tests.tiny import tiny_pair

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

LEASE_SECONDS = 6


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("platform")
    with platform(folder, HACPO_LEASE_SECONDS=str(LEASE_SECONDS)) as environment:
        yield environment


@pytest.fixture(scope="module")
def write_grid(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes a grid of tiny models: gspo for each of two agents, and hacpo."""
    folder = tmp_path_factory.mktemp("tiny")
    config = tiny_pair(folder)
    del config["method"], config["seed"]

    def write(name: str, **changes: Any) -> Path:
        grid = {"combinations": [["a", "b"]], "methods": ["gspo", "hacpo"], "seeds": [0]}
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(config | {"grid": grid, "name": name} | changes))
        return path

    return write


def submit(env: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    """`prefect deployment run hacpo-grid ARGUMENTS` in the checkout."""
    return cli(env, str(Path(sys.executable).parent / "prefect"), "deployment", "run", *arguments)


def cli(env: dict[str, str], *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, cwd=CHECKOUT, env=env, capture_output=True, text=True, timeout=900
    )


def flow_run_of(submitted: "subprocess.CompletedProcess[str]") -> str:
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    found = re.search(r"UUID: (\S+)", submitted.stdout)
    assert found is not None
    return found.group(1)


def follow(env: dict[str, str], flow_run: str) -> "subprocess.CompletedProcess[str]":
    return cli(env, sys.executable, "-m", "flows.follow", flow_run)


def sweep(env: dict[str, str], name: str) -> SweepView:
    with Registry.open(f"sqlite:///{env['HACPO_HOME']}/registry.db") as registry:
        return registry.sweep(name)


def untold(env: dict[str, str]) -> set[str]:
    """Sweeps of which people will yet be told something."""
    with Registry.open(f"sqlite:///{env['HACPO_HOME']}/registry.db") as registry:
        return {news.sweep.name for news in registry.news()}


def post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)


def test_the_schedule_of_the_reconciler_makes_runs(env: dict[str, str]) -> None:
    """Under SQLAlchemy 2.1 it does by the plugin's help."""
    scheduled = {"flow_runs": {"tags": {"all_": ["auto-scheduled"]}}}

    def runs() -> Any:
        return post(f"{env['PREFECT_API_URL']}/flow_runs/filter", scheduled)

    wait_until(runs, "a scheduled run")
    assert {run["auto_scheduled"] for run in runs()} == {True}


def test_scheduled_runs_that_nobody_began_do_not_pile_up(env: dict[str, str]) -> None:
    api = env["PREFECT_API_URL"]
    flow = post(f"{api}/flows/", {"name": "piling"})["id"]
    every_second = {"schedule": {"interval": 1}, "active": True}
    deployment = {"name": "piling", "flow_id": flow, "schedules": [every_second]}
    post(f"{api}/deployments/", deployment)  # of no pool: nobody begins its runs

    def late() -> list[str]:
        now = datetime.now(UTC).isoformat()
        asked = {"flow_runs": {"expected_start_time": {"before_": now}}}
        asked |= {"flows": {"name": {"any_": ["piling"]}}, "sort": "EXPECTED_START_TIME_DESC"}
        return [run["id"] for run in post(f"{api}/flow_runs/filter", asked)]

    wait_until(lambda: len(late()) > 3, "some late runs")
    before = late()
    with temporary_settings({PREFECT_API_URL: api}):
        assert drop_late("piling") >= len(before) - 1
    assert not set(before[1:]) & set(late())


def test_a_grid_that_its_worker_lost_is_started_again(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker took it, and the server's answer never came."""
    api = env["PREFECT_API_URL"]
    named = {"deployments": {"name": {"any_": ["hacpo-grid"]}}}
    (grid,) = post(f"{api}/deployments/filter", named)
    asked = {"state": {"type": "PENDING"}, "parameters": {"config": "nowhere.yaml"}}
    run = post(f"{api}/deployments/{grid['id']}/create_flow_run", asked)
    with temporary_settings({PREFECT_API_URL: api}):
        reconcile.reschedule_lost_grids(logging.getLogger())
        assert [pending.id for pending in pending_grids()] == [UUID(run["id"])]
        monkeypatch.setattr(reconcile, "PENDING_SECONDS", 0)
        reconcile.reschedule_lost_grids(logging.getLogger())
    assert "nowhere.yaml" in follow(env, run["id"]).stdout


def test_a_worker_of_an_unknown_pool_says_so_and_makes_none(env: dict[str, str]) -> None:
    (unit,) = [
        line.removeprefix("ExecStart=/opt/hacpo/.venv/bin/")
        for line in (CHECKOUT / "infra/systemd/hacpo-worker@.service").read_text().splitlines()
        if line.startswith("ExecStart=")
    ]
    words = unit.replace("%i", "hacpo-cels").replace("${HACPO_LIMIT}", "1").split()
    command = [sys.executable, "-m", *words]
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as worker:
        assert worker.stdout is not None
        try:
            assert any("'hacpo-cels' not found" in line for line in worker.stdout)
        finally:
            worker.terminate()
    pools = post(f"{env['PREFECT_API_URL']}/work_pools/filter", {})
    assert "hacpo-cels" not in {pool["name"] for pool in pools}


def test_wrong_parameters_are_refused_at_submission(env: dict[str, str]) -> None:
    for parameter, told in {
        'methods=["hacpoo"]': "methods",
        "seeds=[-1]": "minimum of 0",
        "runs=0": "minimum of 1",
        "stepz=3": "stepz",
    }.items():
        refused = submit(env, "hacpo-grid", "-p", parameter)
        assert refused.returncode == 1
        assert told in refused.stdout + refused.stderr
        assert "Created flow run" not in refused.stdout


def test_unusable_grids_fail_with_one_line(
    env: dict[str, str], write_grid: Callable[..., Path]
) -> None:
    nobody = "http://127.0.0.1:9"
    for name, changes, told in [
        ("unknown_key", {"stepz": 3}, "unknown key 'stepz'; did you mean 'steps'?"),
        ("no_mlflow", {"tracking": {"uri": nobody}}, f"MLflow does not answer at {nobody}"),
    ]:
        flow_run = flow_run_of(
            submit(env, "hacpo-grid", "-p", f"config={write_grid(name, **changes)}")
        )
        followed = follow(env, flow_run)
        assert followed.returncode == 1
        assert told in followed.stdout
        assert "Traceback" not in followed.stdout
    with Registry.open(f"sqlite:///{env['HACPO_HOME']}/registry.db") as registry:
        assert not {"unknown_key", "no_mlflow"} & {row.name for row in registry.sweeps()}


def test_grid_runs_reports_and_is_done_the_second_time(
    env: dict[str, str], write_grid: Callable[..., Path]
) -> None:
    grid = f"config={write_grid('whole')}"
    first = flow_run_of(submit(env, "hacpo-grid", "-p", grid))
    followed = follow(env, first)
    assert followed.returncode == 0, followed.stdout + followed.stderr
    for told in ("gspo", "hacpo", f"/runs/flow-run/{first}", "/#/experiments/"):
        assert told in followed.stdout

    view = sweep(env, "whole")
    assert [cell.state for cell in view.cells] == ["done"] * 3
    assert view.prefect_flow_run_id == first
    wait_until(lambda: "whole" not in untold(env), "the reconciler's news")
    [artifact] = report_of(env, "whole")  # of the grid's run; the reconciler adds no other
    for cell in view.cells:
        assert f"| {cell.label} | done | 2/2 |" in artifact["data"]
        assert f"/runs/{cell.mlflow_run_id}?" in artifact["data"]
        assert f"/runs/flow-run/{cell.prefect_flow_run_id})" in artifact["data"]
    runs = post(
        f"{env['MLFLOW_TRACKING_URI']}/api/2.0/mlflow/runs/search",
        {"experiment_ids": [str(view.mlflow_experiment_url).split("/")[-2]]},
    )["runs"]
    assert len(runs) == 3 + 4 + 1  # a cell each, an agent of a cell each, the report
    assert {run["info"]["status"] for run in runs} == {"FINISHED"}

    started = time.monotonic()
    second = flow_run_of(submit(env, "hacpo-grid/hacpo-grid", "-p", grid))
    assert follow(env, second).returncode == 0
    assert time.monotonic() - started < 60
    again = sweep(env, "whole")
    assert again.prefect_flow_run_id == second
    assert [(c.attempts, c.ended) for c in again.cells] == [
        (c.attempts, c.ended) for c in view.cells
    ]


def test_killed_experiment_is_resubmitted_and_resumes(
    env: dict[str, str], write_grid: Callable[..., Path]
) -> None:
    grid = write_grid("killed", steps=60)
    flow_run = flow_run_of(submit(env, "hacpo-grid", "-p", f"config={grid}", "-p", "runs=1"))
    victim = wait_for_step(env, "killed", 5)
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    followed = follow(env, flow_run)
    assert followed.returncode == 0, followed.stdout + followed.stderr
    cells = {cell.key: cell for cell in sweep(env, "killed").cells}
    assert {cell.state for cell in cells.values()} == {"done"}
    assert cells[victim.key].attempts == 2
    assert cells[victim.key].prefect_flow_run_id != victim.prefect_flow_run_id


def test_failed_cell_is_named_and_stops_no_other(
    env: dict[str, str], write_grid: Callable[..., Path]
) -> None:
    damaged = write_grid("unused").parent / "b-damaged"
    damaged.mkdir()
    for path in (damaged.parent / "b").iterdir():
        content = path.read_bytes()
        weights = path.suffix == ".safetensors"
        (damaged / path.name).write_bytes(content[: len(content) // 2] if weights else content)
    agents = {"a": {"model": str(damaged.parent / "a")}, "b": {"model": str(damaged)}}
    grid = {"combinations": [["a", "b"]], "methods": ["gspo"], "seeds": [3]}
    path = write_grid("damaged", agents=agents, grid=grid)
    followed = follow(env, flow_run_of(submit(env, "hacpo-grid", "-p", f"config={path}")))
    assert followed.returncode == 1
    assert "1 of 2 cells: gspo b s3" in followed.stdout
    assert [cell.state for cell in sweep(env, "damaged").cells].count("done") == 1


def test_a_cancelled_grid_cancels_its_sweep_and_its_cells_keep_what_they_have(
    env: dict[str, str], write_grid: Callable[..., Path]
) -> None:
    grid = write_grid("cancelled", steps=5000)
    flow_run = flow_run_of(submit(env, "hacpo-grid", "-p", f"config={grid}"))
    wait_for_step(env, "cancelled", 2)
    prefect = str(Path(sys.executable).parent / "prefect")
    assert cli(env, prefect, "flow-run", "cancel", flow_run).returncode == 0
    wait_until_all_are(env, "cancelled", "cancelled")
    followed = follow(env, flow_run)
    assert followed.returncode == 1
    assert "Cancelled" in followed.stdout
    view = sweep(env, "cancelled")
    assert (view.state, max(cell.attempts for cell in view.cells)) == ("cancelled", 0)
    with Registry.open(f"sqlite:///{env['HACPO_HOME']}/registry.db") as registry:
        stopped = [registry.cell(cell.key) for cell in view.cells if cell.steps_done]
    for cell in stopped:  # at a step boundary, with a checkpoint of there
        assert [row.step for row in cell.checkpoints][-1] == cell.cell.steps_done


def test_a_sweep_from_the_command_line_is_worked_on_paused_and_resumed(
    env: dict[str, str], write_grid: Callable[..., Path]
) -> None:
    grid = write_grid("queued", steps=50)
    hacpo = [sys.executable, "-c", "from hacpo.cli import main; main()"]
    submitted = cli(env, *hacpo, "sweep", "submit", str(grid), "--owner", "ann")
    assert "queued: 3 cells: 3 new" in submitted.stdout, submitted.stderr
    wait_for_step(env, "queued", 3)
    assert "is paused" in cli(env, *hacpo, "sweep", "pause", "queued").stdout
    wait_until_all_are(env, "queued", "paused")
    assert "is queued" in cli(env, *hacpo, "sweep", "resume", "queued").stdout
    wait_until_all_are(env, "queued", "done")
    wait_until(lambda: report_of(env, "queued"), "the reconciler's report")
    assert {cell.attempts for cell in sweep(env, "queued").cells} == {1}


def test_stop_hands_cells_back_and_the_next_start_goes_on(
    tmp_path: Path, write_grid: Callable[..., Path]
) -> None:
    grid = write_grid("stopped", steps=30)
    with platform(tmp_path) as env:
        flow_run_of(submit(env, "hacpo-grid", "-p", f"config={grid}", "-p", "runs=1"))
        reached = wait_for_step(env, "stopped", 3)
    assert {cell.state for cell in sweep(env, "stopped").cells} <= {"queued", "done"}
    assert reached.pid is not None
    assert not Path(f"/proc/{reached.pid}").exists()
    with platform(tmp_path) as env:
        dead = {
            "flow_runs": {"state": {"type": {"any_": ["RUNNING", "PENDING", "CANCELLING"]}}},
            "flows": {"name": {"any_": ["hacpo-grid"]}},
        }
        assert post(f"{env['PREFECT_API_URL']}/flow_runs/filter", dead) == []
        flow_run = flow_run_of(submit(env, "hacpo-grid", "-p", f"config={grid}"))
        assert follow(env, flow_run).returncode == 0
    cells = {cell.key: cell for cell in sweep(env, "stopped").cells}
    assert cells[reached.key].attempts == 1  # a handed back attempt is not counted


def wait_until_all_are(env: dict[str, str], name: str, state: str) -> None:
    wait_until(
        lambda: {cell.state for cell in sweep(env, name).cells} == {state},
        f"all cells of {name} are {state}",
    )


def wait_until(holds: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 400
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def report_of(env: dict[str, str], name: str) -> Any:
    which = {"artifacts": {"key": {"any_": [f"report-{name}"]}}, "sort": "CREATED_DESC"}
    return post(f"{env['PREFECT_API_URL']}/artifacts/filter", which)


def wait_for_step(env: dict[str, str], name: str, step: int) -> CellView:
    """A cell of the sweep that has come to this step."""
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline:
        with Registry.open(f"sqlite:///{env['HACPO_HOME']}/registry.db") as registry:
            if name in {row.name for row in registry.sweeps()}:
                for cell in registry.sweep(name).cells:
                    if cell.state == "running" and cell.steps_done >= step:
                        return cell
        time.sleep(0.1)
    raise AssertionError(f"no cell of {name} came to step {step}")
