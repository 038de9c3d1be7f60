"""Experiment runs as Prefect knows them: submit, list, end."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
    LogFilter,
    LogFilterFlowRunId,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort, LogSort
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.states import Cancelled, Crashed, Scheduled

AWAY = (httpx.HTTPError, PrefectException, OSError, RuntimeError)
"""What Prefect's client raises when its server does not answer, or says no."""
FLOW = "hacpo-experiment"
DEPLOYMENT = f"{FLOW}/{FLOW}"
_LIVE = [StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
_ENDED = [StateType.COMPLETED, StateType.FAILED, StateType.CRASHED, StateType.CANCELLED]


def submit_run(gpus: int, *, limit: int) -> FlowRun:
    """Queue an experiment run, which will claim cells that want so many devices."""
    run = run_deployment(
        DEPLOYMENT,
        parameters={"limit": limit, "gpus": gpus},
        job_variables={"gpus": gpus},
        timeout=0,
        as_subflow=False,  # it works on the cells of any sweep
        idempotency_key=uuid4().hex,  # the client repeats a request that got no answer
    )
    assert isinstance(run, FlowRun)  # a coroutine only within an event loop
    return run


def live_runs() -> list[FlowRun]:
    """Experiment runs that work or will, whoever submitted them."""
    return _runs(_LIVE)


def pending_grids() -> list[FlowRun]:
    """Runs of hacpo-grid that a worker has taken and that have not begun."""
    return _runs([StateType.PENDING], flow="hacpo-grid")


def ended_runs(limit: int) -> list[FlowRun]:
    """The latest experiment runs that have ended."""
    return _runs(_ENDED, sort=FlowRunSort.END_TIME_DESC, limit=limit)


def drop_late(flow: str) -> int:
    """Delete the scheduled runs of a flow that nobody began in time, but the newest.

    Of a flow that runs one at a time they pile up on a machine that is slow or was away, and each
    asks its server for the slot again whenever a worker looks: a server with SQLite then stands
    still. Runs that a person asked for stay.

    Returns:
        How many were deleted.
    """
    before = FlowRunFilterExpectedStartTime(before_=datetime.now(UTC))
    latest = FlowRunSort.EXPECTED_START_TIME_DESC
    late = _runs([StateType.SCHEDULED], flow=flow, sort=latest, expected_start_time=before)
    piled = [run for run in late if run.auto_scheduled][1:]
    with get_client(sync_client=True) as client:
        for run in piled:
            with suppress(ObjectNotFound):  # begun or deleted meanwhile
                client.delete_flow_run(run.id)
    return len(piled)


def rename(flow_run_id: str | None, name: str) -> None:
    """So that Prefect's lists show what a run is about."""
    if flow_run_id:
        with get_client(sync_client=True) as client:
            client.update_flow_run(UUID(flow_run_id), name=name)


def is_running(flow_run_id: str | None) -> bool:
    """Whether a grid's run still waits for its sweep, and will report it itself."""
    if flow_run_id is None:
        return False
    with get_client(sync_client=True) as client:
        try:
            found = client.read_flow_run(UUID(flow_run_id))
        except ObjectNotFound:  # of another server, or deleted
            return False
    return found.state_type == StateType.RUNNING


def is_waiting(run: FlowRun) -> bool:
    """No worker has started it."""
    return run.state_type in (StateType.SCHEDULED, StateType.PENDING)


def gpus_of(run: FlowRun) -> int:
    """Those of the cells that it will take; one that takes any counts as one for a single GPU."""
    return int((run.parameters or {}).get("gpus") or 1)


def changed_at(run: FlowRun) -> datetime:
    """When it came to its present state."""
    assert run.state is not None
    return run.state.timestamp


def silent_seconds(run: FlowRun, sign: datetime | None, *, limit: float) -> float:
    """How long there has been no sign of a run.

    Args:
        run: with its state, whose time is a sign.
        sign: when it last wrote to a cell.
        limit: a longer silence matters: then its log is read, too, where a run says that it waits
            for slots (flows/guard.py).
    """
    now = datetime.now(UTC)
    latest = max(changed_at(run), sign or changed_at(run))
    if run.state_type == StateType.PENDING and (now - latest).total_seconds() > limit:
        latest = max([latest, *_last_words(run.id)])
    return (now - latest).total_seconds()


def _last_words(run_id: UUID) -> list[datetime]:
    """The time of the newest line of a run's log, if it has any."""
    lines = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run_id]))
    with get_client(sync_client=True) as client:
        return [
            line.timestamp for line in client.read_logs(lines, limit=1, sort=LogSort.TIMESTAMP_DESC)
        ]


def end_run(run_id: UUID, *, why: str, cancelled: bool = False) -> None:
    """Write down that a run has ended that will not say so itself."""
    state: Any = (Cancelled if cancelled else Crashed)(message=why)
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(run_id, state, force=True)


def reschedule(run_id: UUID) -> None:
    """Let a worker take a pending run once more; not one that went on meanwhile."""
    with get_client(sync_client=True) as client:
        if client.read_flow_run(run_id).state_type == StateType.PENDING:
            client.set_flow_run_state(run_id, Scheduled())


def _runs(
    states: list[StateType],
    *,
    flow: str = FLOW,
    sort: FlowRunSort | None = None,
    limit: int | None = None,
    **narrower: Any,
) -> list[FlowRun]:
    kind = FlowRunFilterState(type=FlowRunFilterStateType(any_=states))
    with get_client(sync_client=True) as client:
        return client.read_flow_runs(
            flow_filter=FlowFilter(name=FlowFilterName(any_=[flow])),
            flow_run_filter=FlowRunFilter(state=kind, **narrower),
            sort=sort,
            limit=limit,
        )
