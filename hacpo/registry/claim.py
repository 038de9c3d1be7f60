"""Claiming: which cell comes next, taken by exactly one of those who ask."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, Select, func, insert, select, update

from hacpo.config import RUNS
from hacpo.registry import states
from hacpo.registry.base import RUN, RUNNING, STOP, Claim
from hacpo.registry.database import Database
from hacpo.registry.models import Cell, CellAgent, Run, Sweep, SweepCell


class Claiming:
    """How cells come to processes, and are taken from those that died."""

    _database: Database

    def claim(
        self,
        holder: str,
        *,
        host: str,
        pid: int,
        sweep: str | None = None,
        cell_key: str | None = None,
        gpus: int | None = None,
        lease_seconds: float = 60,
        code_version: str = "",
        prefect_flow_run_id: str | None = None,
    ) -> Claim | None:
        """Take the next cell that is queued or whose holder vanished; None if there is none now.

        Args:
            holder: who takes it, for people.
            host: machine of the process.
            pid: process.
            sweep: only its cells.
            cell_key: this cell, even if its sweeps are paused or it waits for its next attempt.
            gpus: only cells that want so many.
            lease_seconds: how long the claim is good without a write or a heartbeat.
            code_version: recorded beside the run.
            prefect_flow_run_id: of the flow that works on it.
        Raises:
            RegistryError: no such sweep or cell.
        """
        with self._database.writing() as connection:
            now = self._database.now(connection)
            states.fail_exhausted(connection, now)
            lease = {"lease_holder": holder, "lease_until": now + timedelta(seconds=lease_seconds)}
            if cell_key is not None:
                asked = select(Cell.id).where(Cell.key == cell_key, states.is_claimable(now))
                row = _take(connection, asked, {**lease, "lease_sweep_id": None})
                served = Served()
            else:
                row, served = _take_next(connection, sweep, gpus, lease, now)
            if row is None:
                _check_names(connection, sweep, cell_key)
                return None
            states.close_lost_runs(connection, [row.id], now)
            run = connection.execute(
                insert(Run)
                .values(
                    cell_id=row.id,
                    token=row.lease_token,
                    attempt=row.attempts,
                    state=RUNNING,
                    wanted=RUN,
                    holder=holder,
                    host=host,
                    pid=pid,
                    code_version=code_version,
                    prefect_flow_run_id=prefect_flow_run_id,
                    started=now,
                    heartbeat=now,
                )
                .returning(Run.id)
            ).scalar_one()
            agents = connection.execute(
                select(
                    CellAgent.agent, CellAgent.model, CellAgent.identity, CellAgent.mlflow_run_id
                )
                .where(CellAgent.cell_id == row.id)
                .order_by(CellAgent.position)
            ).all()
        return Claim(
            cell_key=row.key,
            cell_id=row.id,
            run_db_id=run,
            attempt=row.attempts,
            token=row.lease_token,
            holder=holder,
            lease_seconds=lease_seconds,
            label=row.label,
            config=row.config,
            agents={a.agent: {"model": a.model, "identity": a.identity} for a in agents},
            sweep=served.name,
            offline=served.offline,
            mlflow_run_id=row.mlflow_run_id,
            mlflow_agent_run_ids={a.agent: a.mlflow_run_id for a in agents if a.mlflow_run_id},
        )

    def request_stop(self, prefect_flow_run_id: str) -> int:
        """Ask what a flow run works on to hand its cell back; others may take it then.

        Returns:
            How many attempts were asked.
        """
        with self._database.writing() as connection:
            asked = connection.execute(
                update(Run)
                .where(Run.prefect_flow_run_id == prefect_flow_run_id, Run.state == RUNNING)
                .values(wanted=STOP)
            )
        return int(asked.rowcount)

    def end_lease(self, cell_key: str, holder: str) -> bool:
        """Let a cell be claimed at once: its holder is known to be dead (its process is gone).

        Returns:
            Whether that holder still had it.
        """
        with self._database.writing() as connection:
            now = self._database.now(connection)
            ended = connection.execute(
                update(Cell)
                .where(Cell.key == cell_key, Cell.lease_holder == holder, Cell.state == RUNNING)
                .values(lease_until=now - timedelta(seconds=1))
            )
        return ended.rowcount == 1


@dataclass(frozen=True, slots=True)
class Served:
    """For which sweep a cell was claimed."""

    id: int = 0
    name: str = ""
    owner: str = ""
    offline: bool = False
    priority: int = 0


def _take_next(
    connection: Connection,
    sweep: str | None,
    gpus: int | None,
    lease: dict[str, Any],
    now: datetime,
) -> tuple[Row[*tuple[Any, ...]] | None, Served]:
    """The next cell of the sweep whose turn it is, or of the one after it, and so on."""
    for served in sweeps_in_turn(connection, now, sweep):
        query = next_cells(served.id, now)
        if gpus is not None:
            query = query.where(Cell.gpus == gpus)
        row = _take(connection, query, {**lease, "lease_sweep_id": served.id})
        if row is not None:
            return row, served
    return None, Served()


def sweeps_in_turn(connection: Connection, now: datetime, only: str | None = None) -> list[Served]:
    """Sweeps that are wanted: by priority, then fewest running cells of their owner, then age.

    One that has as many running cells as it may have is left out, and that of `hacpo run`: who
    interrupts a training does not mean that it goes on elsewhere.
    """
    held = select(Cell.lease_sweep_id, func.count()).group_by(Cell.lease_sweep_id)
    held = held.where(Cell.state == RUNNING, Cell.lease_until >= now)
    running = {row[0]: row[1] for row in connection.execute(held)}
    columns = (Sweep.id, Sweep.name, Sweep.owner, Sweep.offline, Sweep.priority, Sweep.max_running)
    wanted = select(*columns, Sweep.wanted).order_by(Sweep.priority.desc(), Sweep.id)
    sweeps = connection.execute(wanted).all()
    of_owner: Counter[str] = Counter()
    for sweep in sweeps:
        of_owner[sweep.owner] += running.get(sweep.id, 0)
    in_turn = [
        Served(sweep.id, sweep.name, sweep.owner, sweep.offline, sweep.priority)
        for sweep in sweeps
        if sweep.wanted == RUN
        and (only == sweep.name if only else sweep.name != RUNS)
        and (sweep.max_running is None or running.get(sweep.id, 0) < sweep.max_running)
    ]
    return sorted(in_turn, key=lambda s: (-s.priority, of_owner[s.owner], s.id))


def next_cells(sweep: int, now: datetime) -> Select[int]:
    """The cells of a sweep that may be claimed now, in its order."""
    return (
        select(Cell.id)
        .join(SweepCell, SweepCell.cell_id == Cell.id)
        .where(SweepCell.sweep_id == sweep, states.is_claimable(now), states.is_ready(now))
        .order_by(SweepCell.position)
    )


def _take(
    connection: Connection, candidates: Select[int], lease: dict[str, Any]
) -> Row[*tuple[Any, ...]] | None:
    """Claim the first of the candidates.

    Locks its row on PostgreSQL and passes over rows that others have locked.
    """
    first = candidates.limit(1)
    return connection.execute(
        update(Cell)
        .where(Cell.id == first.with_for_update(of=Cell, skip_locked=True).scalar_subquery())
        .values(
            state=RUNNING,
            attempts=Cell.attempts + 1,
            lease_token=Cell.lease_token + 1,
            not_before=None,
            activity="",
            error=None,
            error_kind=None,
            **lease,
        )
        .returning(
            Cell.id,
            Cell.key,
            Cell.label,
            Cell.config,
            Cell.attempts,
            Cell.lease_token,
            Cell.mlflow_run_id,
        )
    ).one_or_none()


def _check_names(connection: Connection, sweep: str | None, cell_key: str | None) -> None:
    if sweep is not None:
        states.sweep_id(connection, sweep)
    if cell_key is not None:
        states.cell_id(connection, cell_key)
