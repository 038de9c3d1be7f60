"""Runs on slots under real Prefect workers that are restarted, killed and told to cancel."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.orphan import LAST_WORD
from flows.running import LiveRun, live_runs
from flows.runs import silent_seconds
from hacpo.slots import holders, machine_slots
from tests.servers import CHECKOUT, platform, running, services
from tests.wrapped import lives, soon

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
PATIENCE = 240.0  # of a machine that does other things, too

# Leaves a grandchild in a session of its own, and says where it runs; ends when it may.
FLOW = """
import json, os, subprocess, sys, time
from pathlib import Path
from prefect import flow

MIDDLE = '''
from subprocess import DEVNULL, Popen
print(Popen(["sleep", "600"], start_new_session=True, stdout=DEVNULL).pid)
'''

@flow
def hold(folder: str, name: str):
    here = Path(folder)
    alone = here / f"on-{os.environ.get('HACPO_SLOT')}"
    alone.mkdir()
    child = int(subprocess.check_output([sys.executable, "-c", MIDDLE]))
    (here / f"{name}.part").write_text(json.dumps([os.getpid(), child]))
    (here / f"{name}.part").rename(here / name)
    try:
        while not (here / f"{name}-go").exists():
            time.sleep(0.1)
    finally:
        alone.rmdir()
"""


@dataclass
class Platform:
    """The services, and a deployment of the flow above on each pool."""

    home: Path
    folder: Path
    environment: dict[str, str]
    deployments: dict[str, str] = field(default_factory=dict)

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        request = urllib.request.Request(
            f"{self.environment['PREFECT_API_URL']}/{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        answer: list[Any] = []

        def answered() -> bool:
            try:
                with urllib.request.urlopen(request, timeout=30) as reply:
                    answer.append(json.loads(reply.read() or b"null"))
            except urllib.error.HTTPError as error:
                if error.code != 503:  # its SQLite database is being written to
                    raise
            return bool(answer)

        assert soon(answered, PATIENCE)
        return answer[0]

    def deploy(self) -> None:
        (self.folder / "hold.py").write_text(FLOW)
        step = {"directory": str(self.folder)}
        for pool in ("hacpo-cells", "hacpo-control"):
            flow = {"flow_id": self.ask("flows/", {"name": "hold"})["id"], "work_pool_name": pool}
            steps = [{"prefect.deployments.steps.set_working_directory": step}]
            code = {"name": pool, "entrypoint": "hold.py:hold", "pull_steps": steps}
            self.deployments[pool] = self.ask("deployments/", flow | code)["id"]

    def submit(self, name: str, pool: str = "hacpo-cells", **variables: Any) -> str:
        parameters = {"folder": str(self.folder), "name": name}
        body = {"parameters": parameters, "job_variables": variables, "name": name}
        body |= {"state": {"type": "SCHEDULED"}}
        return str(self.ask(f"deployments/{self.deployments[pool]}/create_flow_run", body)["id"])

    def start(self, name: str, pool: str = "hacpo-cells") -> tuple[str, list[int]]:
        """Submit a run and wait until it works; its id, its process and its grandchild."""
        run = self.submit(name, pool)
        assert soon((self.folder / name).exists, PATIENCE), self.log(run)
        return run, json.loads((self.folder / name).read_text())

    def let_go(self, name: str) -> None:
        (self.folder / f"{name}-go").touch()

    def state(self, run: str) -> str:
        return str(self.ask(f"flow_runs/{run}")["state_type"])

    def becomes(self, run: str, state: str) -> None:
        assert soon(lambda: self.state(run) == state, PATIENCE), (
            f"{self.state(run)} {self.log(run)}"
        )

    def cancel(self, run: str) -> None:
        self.ask(f"flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})

    def log(self, run: str) -> str:
        path = self.home / "logs" / "runs" / f"{run}.log"
        return path.read_text() if path.exists() else "no log"

    def said(self, run: str, words: str) -> list[datetime]:
        """When its log in Prefect did."""
        asked = {"logs": {"flow_run_id": {"any_": [run]}}}
        lines = [line for line in self.ask("logs/filter", asked) if line["message"] == words]
        return [datetime.fromisoformat(line["timestamp"]) for line in lines]

    def is_free(self) -> bool:
        return set(holders(machine_slots(self.home, self.environment)).values()) == {None}

    def worker(self, name: str) -> int:
        return int((self.home / "pids" / name).read_text().split()[0])

    def lose_worker(self, number: signal.Signals, name: str = "worker-cells") -> None:
        worker = self.worker(name)
        os.kill(worker, number)
        assert soon(lambda: not lives(worker), PATIENCE)

    def restart(self) -> None:
        assert "started" in services(self.environment, "start")


@pytest.fixture(scope="module")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """One slot."""
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("flow")
    with platform(home, HACPO_SLOTS="1", HACPO_GPUS="none", PYTHONPATH=str(CHECKOUT)) as found:
        it = Platform(home, folder, found)
        it.deploy()
        yield it


def holding(prefect: Platform) -> list[LiveRun]:
    """Live runs that hold or want a slot: not those of grids, and of the reconciler."""
    return [run for run in live_runs(prefect.home) if run.asked]


def test_a_cancelled_run_leaves_nothing(prefect: Platform) -> None:
    run, processes = prefect.start("cancelled")
    assert not prefect.is_free()
    prefect.cancel(run)
    prefect.becomes(run, "CANCELLED")
    assert not any(map(lives, processes))
    assert prefect.is_free()
    assert holding(prefect) == []


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name
)
def test_a_run_outlives_its_worker_and_the_next_waits_for_its_slot(
    prefect: Platform, number: signal.Signals
) -> None:
    run, processes = prefect.start(f"first-{number.name}")
    prefect.lose_worker(number)
    assert all(map(lives, processes))
    prefect.restart()
    second = prefect.submit(f"second-{number.name}")
    assert soon(lambda: len(holding(prefect)) == 2, PATIENCE)
    if number == signal.SIGTERM:
        assert soon(lambda: prefect.said(second, "waiting for 1 of 1 slots"), PATIENCE)
        with temporary_settings({PREFECT_API_URL: prefect.environment["PREFECT_API_URL"]}):
            with get_client(sync_client=True) as client:
                waiting = client.read_flow_run(UUID(second))
            said = prefect.said(second, "waiting for 1 of 1 slots")[-1]
            since = (datetime.now(UTC) - said).total_seconds()
            assert silent_seconds(waiting, None, limit=0) == pytest.approx(since, abs=2)
    else:
        time.sleep(3)
    assert not (prefect.folder / f"second-{number.name}").exists()
    prefect.becomes(run, "RUNNING")
    prefect.let_go(f"first-{number.name}")
    prefect.becomes(run, "COMPLETED")
    assert soon((prefect.folder / f"second-{number.name}").exists, PATIENCE)
    assert not any(map(lives, processes))
    prefect.let_go(f"second-{number.name}")
    prefect.becomes(second, "COMPLETED")
    assert soon(prefect.is_free, PATIENCE)


def test_a_run_whose_worker_was_restarted_can_be_cancelled(prefect: Platform) -> None:
    run, processes = prefect.start("late")
    prefect.lose_worker(signal.SIGTERM)
    prefect.restart()
    prefect.becomes(run, "RUNNING")
    prefect.cancel(run)
    prefect.becomes(run, "CANCELLED")
    assert not any(map(lives, processes))
    assert soon(prefect.is_free, PATIENCE)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_killed_process_is_a_crash_and_takes_its_children_along(
    prefect: Platform, restarted: bool
) -> None:
    run, processes = prefect.start(f"killed-{restarted}")
    if restarted:
        prefect.lose_worker(signal.SIGTERM)
        prefect.restart()
        prefect.becomes(run, "RUNNING")
    (prefect.folder / "on-cpu0").rmdir()  # it won't
    os.kill(processes[0], signal.SIGKILL)
    prefect.becomes(run, "CRASHED")
    assert not any(map(lives, processes))
    assert soon(prefect.is_free, PATIENCE)


def test_a_grid_outlives_its_worker_too(prefect: Platform) -> None:
    run, _ = prefect.start("grid", "hacpo-control")
    assert prefect.is_free()
    prefect.lose_worker(signal.SIGTERM, "worker-control")
    # What a worker says whose exit is slow: it has killed the relay, and takes it for the run.
    crashed = {"type": "CRASHED", "message": f"Flow run infrastructure {LAST_WORD}. ..."}
    prefect.ask(f"flow_runs/{run}/set_state", {"state": crashed, "force": True})
    prefect.restart()
    prefect.becomes(run, "RUNNING")
    prefect.let_go("grid")
    prefect.becomes(run, "COMPLETED")


def test_a_run_that_asks_for_too_much_says_so_in_its_log(prefect: Platform) -> None:
    run = prefect.submit("greedy", gpus=2)
    prefect.becomes(run, "CRASHED")
    told = {"logs": {"flow_run_id": {"any_": [run]}}}
    messages = [entry["message"] for entry in prefect.ask("logs/filter", told)]
    assert any("2 CPU slots are asked for, but this machine has 1" in m for m in messages)


def test_workers_of_one_machine_share_its_slots(prefect: Platform, tmp_path: Path) -> None:
    worker = [str(Path(sys.executable).parent / "prefect"), "worker", "start", "--type", "process"]
    worker += ["--pool", "hacpo-cells", "--limit", "4"]
    environment = prefect.environment | {"PREFECT_WORKER_QUERY_SECONDS": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with running(worker, tmp_path / "worker.log", environment):
        names = [f"many-{number}" for number in range(4)]
        runs = [prefect.submit(name) for name in names]
        assert soon(lambda: len(holding(prefect)) >= 3, PATIENCE)
        for name in names:
            prefect.let_go(name)
        for run in runs:  # two at once would both make the slot's folder: one would fail
            prefect.becomes(run, "COMPLETED")


def test_stop_ends_what_outlived_its_worker(prefect: Platform) -> None:
    run, processes = prefect.start("stopped")
    prefect.lose_worker(signal.SIGKILL)
    told = services(prefect.environment, "stop")
    assert "runs without a worker (" in told  # a run of the reconciler may be among them
    assert not any(map(lives, processes))
    left = subprocess.run(["pgrep", "-f", str(prefect.home)], capture_output=True, text=True)
    assert left.stdout == ""
    prefect.restart()
    assert prefect.state(run) == "CRASHED"


def test_what_the_schedule_left_behind_does_not_wait_for_the_workers(prefect: Platform) -> None:
    named = {"deployments": {"name": {"any_": ["hacpo-reconcile"]}}}
    (reconciler,) = prefect.ask("deployments/filter", named)
    for name in ("worker-control", "worker-cells"):
        prefect.lose_worker(signal.SIGKILL, name)
    wanted = prefect.submit("wanted", "hacpo-control")
    every_second = [{"schedule": {"interval": 1}, "active": True}]
    schedules = f"deployments/{reconciler['id']}/schedules"
    (added,) = prefect.ask(schedules, every_second)

    def late() -> set[str]:
        before = {"expected_start_time": {"before_": datetime.now(UTC).isoformat()}}
        asked = {"flow_runs": before | {"state": {"type": {"any_": ["SCHEDULED"]}}}}
        return {run["id"] for run in prefect.ask("flow_runs/filter", asked | named)}

    assert soon(lambda: len(late()) > 3, PATIENCE)
    before = late()
    prefect.restart()
    assert not before & late()
    prefect.ask(f"{schedules}/{added['id']}", method="DELETE")
    prefect.let_go("wanted")
    prefect.becomes(wanted, "COMPLETED")
