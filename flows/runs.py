"""Experiment runs as Prefect knows them: submit, list, cancel."""

from typing import Any
from uuid import uuid4

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterParentFlowRunId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.deployments import run_deployment
from prefect.states import Cancelled, Cancelling

EXPERIMENT = "hacpo-experiment/hacpo-experiment"
_LIVE = [StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING]


def runs_to_submit(*, queued: int, idle: int, alive: int, runs: int) -> int:
    """How many experiment runs to add.

    Args:
        queued: cells that nobody holds.
        idle: live runs without a cell, each of which will take one.
        alive: live runs.
        runs: wanted at the same time, at most.
    """
    return max(0, min(runs - alive, queued - idle))


def submit_run(sweep: str, *, limit: int, offline: bool) -> str:
    """Queue an experiment run as a subflow of the grid; returns its id."""
    run = run_deployment(
        EXPERIMENT,
        parameters={"sweep": sweep, "limit": limit, "offline": offline},
        timeout=0,
        tags=[_tag(sweep)],
        idempotency_key=uuid4().hex,  # the client repeats a request that got no answer
    )
    assert isinstance(run, FlowRun)  # a coroutine only within an event loop
    return str(run.id)


def live_runs(sweep: str) -> dict[str, FlowRun]:
    """The sweep's runs that work or will, by id, whoever submitted them."""
    return {str(run.id): run for run in _live(tags=FlowRunFilterTags(all_=[_tag(sweep)]))}


def is_waiting(run: FlowRun) -> bool:
    return run.state_type == StateType.SCHEDULED


def cancel_waiting(sweep: str) -> None:
    """Cancel runs that no worker has taken yet, when no cell is left for them."""
    for run in live_runs(sweep).values():
        if is_waiting(run):
            _cancel(run, "no cell is left")


def cancel_experiments(flow: Any, flow_run: FlowRun, state: State[Any]) -> None:
    """Hook of a cancelled grid: its experiments end too, and hand their cells back.

    The server would see to it within 20 s, but gives up when its SQLite database is busy.
    """
    parent = FlowRunFilterParentFlowRunId(any_=[flow_run.id])
    for run in _live(parent_flow_run_id=parent):
        _cancel(run, "its grid was cancelled")


def _live(**which: Any) -> list[FlowRun]:
    state = FlowRunFilterState(type=FlowRunFilterStateType(any_=_LIVE))
    with get_client(sync_client=True) as client:
        return client.read_flow_runs(flow_run_filter=FlowRunFilter(state=state, **which))


def _cancel(run: FlowRun, why: str) -> None:
    end = Cancelled if is_waiting(run) else Cancelling  # what runs is ended by its worker
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(run.id, end(message=why))


def _tag(sweep: str) -> str:
    return f"sweep:{sweep}"
