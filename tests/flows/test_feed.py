"""How many experiment runs are submitted, with a real registry and a stand-in for Prefect."""

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import StateType

from flows import feed, reconcile, runs
from flows.feed import FRUITLESS_SECONDS, LOST_SECONDS, Feeder, NobodyTakesCellsError
from flows.reconcile import CANCELLING_SECONDS, PENDING_SECONDS, end_dead_runs
from hacpo.registry import Claim, Registry
from tests.registry.helpers import spec, submit

LOG = logging.getLogger("test")


class Prefect:
    """Stands for the server: experiment runs by id, in the order of their submission."""

    def __init__(self) -> None:
        self.runs: dict[UUID, Any] = {}
        self.said: dict[UUID, datetime] = {}

    def add(self, kind: StateType, *, gpus: int = 1, age: float = 0.0) -> Any:
        run = SimpleNamespace(id=uuid4(), name="run", parameters={"gpus": gpus}, start_time=None)
        self.runs[run.id] = run
        self.move(run, kind, age=age)
        return run

    def move(self, run: Any, kind: StateType, *, age: float = 0.0) -> None:
        at = datetime.now(UTC) - timedelta(seconds=age)
        run.state = SimpleNamespace(timestamp=at, message="exit 1")
        run.state_type, run.state_name = kind, kind.value
        if kind not in (StateType.SCHEDULED, StateType.PENDING):
            run.start_time = at

    def submit_run(self, gpus: int, *, limit: int) -> Any:
        return self.add(StateType.SCHEDULED, gpus=gpus)

    def live_runs(self) -> list[Any]:
        over = (StateType.COMPLETED, StateType.FAILED, StateType.CRASHED, StateType.CANCELLED)
        return [run for run in self.runs.values() if run.state_type not in over]

    def ended_runs(self, limit: int) -> list[Any]:
        live = self.live_runs()
        return [run for run in self.runs.values() if run not in live][::-1][:limit]

    def end_run(self, run_id: UUID, *, why: str, cancelled: bool = False) -> None:
        kind = StateType.CANCELLED if cancelled else StateType.CRASHED
        self.move(self.runs[run_id], kind)

    def say(self, run: Any, *, age: float) -> None:
        self.said[run.id] = datetime.now(UTC) - timedelta(seconds=age)

    def last_words(self, run_id: UUID) -> list[datetime]:
        return [self.said[run_id]] if run_id in self.said else []

    def count(self, kind: StateType) -> int:
        return sum(run.state_type == kind for run in self.runs.values())


@pytest.fixture
def prefect(monkeypatch: pytest.MonkeyPatch) -> Prefect:
    server = Prefect()
    for module in (feed, reconcile):
        for name in ("live_runs", "ended_runs", "end_run", "submit_run"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(server, name))
    monkeypatch.setattr(runs, "_last_words", server.last_words)
    monkeypatch.setenv("HACPO_SLOTS", "2")
    return server


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with Registry.open(f"sqlite:///{tmp_path}/registry.db") as opened:
        yield opened


@pytest.fixture
def feeder(registry: Registry) -> Feeder:
    return Feeder(registry=registry, cells_per_run=12, log=LOG)


@pytest.fixture
def begin(registry: Registry, prefect: Prefect) -> Callable[..., Claim]:
    """A worker takes a run, and the run a cell."""

    def take(run: Any, **options: Any) -> Claim:
        prefect.move(run, StateType.RUNNING)
        claim = registry.claim("h", host="box", pid=1, prefect_flow_run_id=str(run.id), **options)
        assert claim is not None
        return claim

    return take


def test_as_many_runs_as_slots_and_then_one_that_waits(registry, prefect, feeder, begin) -> None:
    submit(registry, *"abcdef")
    feeder.look()
    feeder.look()
    first, second = prefect.live_runs()
    begin(first)
    feeder.look()  # the second is on its way
    assert len(prefect.runs) == 2
    begin(second)
    feeder.look()
    feeder.look()
    assert (len(prefect.runs), prefect.count(StateType.SCHEDULED)) == (3, 1)


def test_no_more_runs_than_cells_and_none_for_paused_ones(registry, prefect, feeder) -> None:
    submit(registry, "a")
    registry.want("sweep", "pause")
    feeder.look()
    assert not prefect.runs
    registry.want("sweep", "run")
    feeder.look()
    assert len(prefect.runs) == 1


def test_runs_are_submitted_for_each_number_of_devices(registry, prefect, feeder) -> None:
    cells = [spec("a"), spec("b", gpus=4)]
    registry.register_sweep("s", owner="", config={}, cells=cells)
    feeder.look()
    feeder.look()
    assert sorted(run.parameters["gpus"] for run in prefect.live_runs()) == [1, 4]


def test_a_killed_run_is_replaced(registry, prefect, feeder, begin) -> None:
    submit(registry, "a", "b")
    feeder.look()
    first, second = prefect.live_runs()
    begin(first)
    begin(second)
    prefect.move(first, StateType.CRASHED)
    feeder.look()  # its cell is leased for a while
    assert not prefect.count(StateType.SCHEDULED)
    registry.end_lease("a", "h")
    feeder.look()
    assert prefect.count(StateType.SCHEDULED) == 1


def test_a_run_without_a_sign_for_long_is_not_counted_on(registry, prefect, feeder) -> None:
    submit(registry, "a")
    prefect.add(StateType.RUNNING, age=LOST_SECONDS - 10)
    feeder.look()
    assert not prefect.count(StateType.SCHEDULED)
    prefect.runs.clear()
    prefect.add(StateType.RUNNING, age=LOST_SECONDS + 10)
    feeder.look()
    assert prefect.count(StateType.SCHEDULED) == 1


def test_waiting_runs_are_cancelled_when_no_cell_is_left(registry, prefect, feeder, begin) -> None:
    submit(registry, "a")
    feeder.look()
    (run,) = prefect.live_runs()
    waiting = prefect.add(StateType.SCHEDULED)
    feeder.cancel_waiting()
    assert waiting.state_type == StateType.SCHEDULED
    registry.finish(begin(run))
    feeder.cancel_waiting()
    assert (run.state_type, waiting.state_type) == (StateType.RUNNING, StateType.CANCELLED)


def test_gives_up_for_a_while_when_runs_end_without_taking_cells(registry, prefect, feeder) -> None:
    submit(registry, "a")
    for _ in range(3):
        feeder.look()
        (run,) = prefect.live_runs()
        prefect.move(run, StateType.CRASHED)
        run.start_time = run.state.timestamp
    with pytest.raises(NobodyTakesCellsError, match="without taking one of the 1 queued cells"):
        feeder.look()
    for run in prefect.runs.values():
        run.state.timestamp -= timedelta(seconds=FRUITLESS_SECONDS)
    feeder.look()
    assert prefect.count(StateType.SCHEDULED) == 1


def test_runs_that_came_too_late_for_a_cell_are_no_reason_to_give_up(
    registry, prefect, feeder
) -> None:
    submit(registry, "a")
    for _ in range(3):
        prefect.move(prefect.add(StateType.RUNNING), StateType.COMPLETED)
    feeder.look()
    assert prefect.count(StateType.SCHEDULED) == 1


def test_says_once_that_no_worker_takes_runs(
    registry, prefect, feeder, caplog: pytest.LogCaptureFixture
) -> None:
    submit(registry, "a")
    feeder.look()
    assert not caplog.records
    feeder._quiet_until = 0.0
    feeder.look()
    feeder.look()
    assert [record.message for record in caplog.records] == [
        "no worker has taken an experiment run for 60 s: start one with "
        "`prefect worker start --pool hacpo-cells`"
    ]


def test_a_run_that_waits_for_slots_is_counted_on(registry, prefect, feeder, begin) -> None:
    submit(registry, "a", "b")
    begin(prefect.add(StateType.PENDING))
    waiting = prefect.add(StateType.PENDING, age=10 * LOST_SECONDS)
    prefect.say(waiting, age=100)
    feeder.look()
    assert len(prefect.runs) == 2
    prefect.say(waiting, age=LOST_SECONDS + 10)
    feeder.look()
    assert len(prefect.runs) == 3


def test_dead_runs_are_ended_and_living_ones_left(registry, prefect, begin) -> None:
    submit(registry, "a")
    living = prefect.add(StateType.PENDING)
    begin(living)
    between = prefect.add(StateType.RUNNING, age=LOST_SECONDS - 10)
    zombie = prefect.add(StateType.RUNNING, age=LOST_SECONDS + 10)
    fresh = prefect.add(StateType.PENDING, age=PENDING_SECONDS - 10)
    stuck = prefect.add(StateType.PENDING, age=PENDING_SECONDS + 10)
    waiting = prefect.add(StateType.PENDING, age=PENDING_SECONDS + 10)
    prefect.say(waiting, age=100)
    scheduled = prefect.add(StateType.SCHEDULED, age=10 * PENDING_SECONDS)
    end_dead_runs(registry, LOG)
    assert [
        run.state_type for run in (living, between, zombie, fresh, stuck, waiting, scheduled)
    ] == [
        StateType.RUNNING,
        StateType.RUNNING,
        StateType.CRASHED,
        StateType.PENDING,
        StateType.CRASHED,
        StateType.PENDING,
        StateType.SCHEDULED,
    ]


def test_a_cancelled_run_that_nobody_ends_is_asked_through_the_registry(
    registry, prefect, begin
) -> None:
    submit(registry, "a")
    run = prefect.add(StateType.PENDING)
    claim = begin(run)
    prefect.move(run, StateType.CANCELLING)
    end_dead_runs(registry, LOG)
    assert registry.heartbeat(claim) == "run"  # its worker may do it
    prefect.move(run, StateType.CANCELLING, age=CANCELLING_SECONDS + 10)
    end_dead_runs(registry, LOG)
    assert registry.heartbeat(claim) == "stop"
    registry.release(claim)
    end_dead_runs(registry, LOG)
    assert run.state_type == StateType.CANCELLED
