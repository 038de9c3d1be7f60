"""Experiment runs as Prefect knows them: submit, list, cancel."""

from uuid import uuid4

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.deployments import run_deployment
from prefect.states import Cancelled

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
    """Queue an experiment run as a subflow, so that cancelling the grid cancels it too.

    Returns:
        Its id.
    """
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
    wanted = FlowRunFilter(
        tags=FlowRunFilterTags(all_=[_tag(sweep)]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=_LIVE)),
    )
    with get_client(sync_client=True) as client:
        return {str(run.id): run for run in client.read_flow_runs(flow_run_filter=wanted)}


def cancel_waiting(sweep: str) -> None:
    """Cancel runs that no worker has taken yet."""
    with get_client(sync_client=True) as client:
        for run in live_runs(sweep).values():
            if is_waiting(run):
                client.set_flow_run_state(run.id, Cancelled(message="no cell is left"))


def is_waiting(run: FlowRun) -> bool:
    return run.state_type == StateType.SCHEDULED


def _tag(sweep: str) -> str:
    return f"sweep:{sweep}"
