"""Building the views of sweeps and cells: a fixed number of statements, whatever their number."""

import math
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, case, func, select

from hacpo.registry import states
from hacpo.registry.base import (
    FAILED,
    LOST,
    QUEUED,
    RUNNING,
    AgentView,
    CellView,
    StateCounts,
    SweepRow,
)
from hacpo.registry.models import Cell, CellAgent, Run, Step, Sweep, SweepCell

RECENT_STEPS = 5


def sweep_rows(
    connection: Connection, now: datetime, only: ColumnElement[bool] | None = None
) -> list[SweepRow]:
    """The sweeps of a condition, the latest submission first."""
    state = states.state_at(now).label("state")
    counted = (
        select(SweepCell.sweep_id, state, func.count(Cell.id.distinct()).label("cells"))
        .join(Cell, Cell.id == SweepCell.cell_id)
        .join(Sweep, Sweep.id == SweepCell.sweep_id)
        .group_by(SweepCell.sweep_id, state)
    )
    sweeps = select(
        Sweep.id,
        Sweep.name,
        Sweep.owner,
        Sweep.created,
        Sweep.submitted,
        Sweep.priority,
        Sweep.wanted,
        Sweep.offline,
        Sweep.prefect_flow_run_id,
        Sweep.mlflow_experiment_url,
    ).order_by(Sweep.submitted.desc(), Sweep.id.desc())
    if only is not None:
        counted, sweeps = counted.where(only), sweeps.where(only)
    counts: dict[int, dict[str, int]] = {}
    for row in connection.execute(counted):
        counts.setdefault(row.sweep_id, {})[row.state] = row.cells
    rows = []
    for sweep in connection.execute(sweeps):
        facts = dict(sweep._mapping)
        counted_states = counts.get(facts.pop("id"), {})
        rows.append(SweepRow(**facts, counts=StateCounts(**counted_states)))
    return rows


def cell_views(
    connection: Connection,
    listed: Select[*tuple[Any, ...]],
    members: ColumnElement[bool],
    now: datetime,
) -> list[CellView]:
    """The views of some cells.

    Args:
        connection: of a transaction.
        listed: a select of label, method, combination from a join with Cell, in order.
        members: condition on Cell for the same cells.
        now: the time.
    """
    agents = _agent_views(connection, members)
    seconds = _seconds_per_step(connection, members)
    rows = connection.execute(
        listed.outerjoin(
            Run, and_(Run.cell_id == Cell.id, Run.token == Cell.lease_token)
        ).add_columns(
            Cell.id,
            Cell.key,
            Cell.seed,
            states.state_at(now).label("state"),
            Cell.state.label("stored_state"),
            Cell.attempts,
            Cell.max_attempts,
            Cell.steps_done,
            Cell.steps_total,
            Cell.activity,
            Cell.rollouts_done,
            Cell.rollouts_planned,
            Cell.error,
            Cell.error_kind,
            Cell.lease_holder,
            Cell.gpus,
            Cell.not_before,
            Cell.mlflow_run_id,
            Run.host,
            Run.pid,
            Run.device,
            Run.code_version,
            Run.heartbeat,
            Run.started,
            Run.ended,
            Run.prefect_flow_run_id,
        )
    )
    return [_cell_view(row, agents.get(row.id, {}), seconds.get(row.id), now) for row in rows]


def _cell_view(
    row: Row[*tuple[Any, ...]], agents: dict[str, AgentView], seconds: float | None, now: datetime
) -> CellView:
    held = row.stored_state == RUNNING
    lost = held and row.state == FAILED
    return CellView(
        key=row.key,
        label=row.label,
        method=row.method,
        combination=row.combination,
        seed=row.seed,
        state=row.state,
        stale=held and row.state != RUNNING,
        attempts=row.attempts,
        max_attempts=row.max_attempts,
        steps_done=row.steps_done,
        steps_total=row.steps_total,
        activity=row.activity,
        rollouts=row.rollouts_done,
        rollouts_planned=row.rollouts_planned,
        seconds_per_step=seconds,
        agents=agents,
        error=states.LOST_MESSAGE if lost else row.error,
        error_kind=LOST if lost else row.error_kind,
        holder=row.lease_holder,
        gpus=row.gpus,
        not_before=row.not_before if row.state == QUEUED else None,
        host=row.host,
        pid=row.pid,
        device=row.device,
        code_version=row.code_version,
        heartbeat_age=max(0.0, (now - row.heartbeat).total_seconds()) if held else None,
        started=row.started,
        ended=row.ended,
        prefect_flow_run_id=row.prefect_flow_run_id,
        mlflow_run_id=row.mlflow_run_id,
    )


def _recent() -> ColumnElement[bool]:
    """The latest steps of a cell; rows that a resumed run has yet to replay are left aside."""
    return and_(Step.step < Cell.steps_done, Step.step >= Cell.steps_done - RECENT_STEPS)


def _agent_views(
    connection: Connection, members: ColumnElement[bool]
) -> dict[int, dict[str, AgentView]]:
    latest = Step.step == Cell.steps_done - 1
    rows = connection.execute(
        select(
            CellAgent.cell_id,
            CellAgent.agent,
            CellAgent.model,
            CellAgent.identity,
            CellAgent.mlflow_run_id,
            func.max(case((latest, Step.reward_mean))).label("reward"),
            func.avg(Step.reward_mean).label("reward_recent"),
            func.max(case((latest, Step.capability))).label("capability"),
        )
        .join(Cell, Cell.id == CellAgent.cell_id)
        .outerjoin(Step, and_(Step.cell_id == Cell.id, Step.agent == CellAgent.agent, _recent()))
        .where(members)
        .group_by(
            CellAgent.cell_id,
            CellAgent.agent,
            CellAgent.position,
            CellAgent.model,
            CellAgent.identity,
            CellAgent.mlflow_run_id,
        )
        .order_by(CellAgent.cell_id, CellAgent.position)
    )
    views: dict[int, dict[str, AgentView]] = {}
    for row in rows:
        views.setdefault(row.cell_id, {})[row.agent] = AgentView(
            agent=row.agent,
            model=row.model,
            identity=row.identity,
            mlflow_run_id=row.mlflow_run_id,
            reward=_known(row.reward),
            reward_recent=_known(row.reward_recent),
            capability=_known(row.capability),
        )
    return views


def _seconds_per_step(connection: Connection, members: ColumnElement[bool]) -> dict[int, float]:
    rows = connection.execute(
        select(Step.cell_id, func.avg(Step.seconds).label("seconds"))
        .join(Cell, Cell.id == Step.cell_id)
        .where(members, _recent())
        .group_by(Step.cell_id)
    )
    return {row.cell_id: row.seconds for row in rows if _known(row.seconds) is not None}


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value
