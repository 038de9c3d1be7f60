"""Executing: claims, leases, and how an attempt ends."""

import contextlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select, insert, select, update

from hacpo.errors import LeaseLostError
from hacpo.registry import states
from hacpo.registry.base import CANCELLED, DONE, FAILED, QUEUED, RUNNING, Claim
from hacpo.registry.database import Database
from hacpo.registry.models import Cell, CellAgent, Run, Sweep, SweepCell

_MESSAGE_LIMIT = 2000


class Execute:
    """What a process does with the cells that it works on."""

    _database: Database

    def claim(
        self,
        holder: str,
        *,
        host: str,
        pid: int,
        sweep: str | None = None,
        cell_key: str | None = None,
        lease_seconds: float = 60,
        code_version: str = "",
        prefect_flow_run_id: str | None = None,
    ) -> Claim | None:
        """Take the next cell that is queued or whose holder vanished; None if there is none now.

        Args:
            holder: who takes it, for people.
            host: machine of the process.
            pid: process.
            sweep: only its cells, in its order; otherwise every sweep's, by priority and age.
            cell_key: only this cell.
            lease_seconds: how long the claim is good without a write or a heartbeat.
            code_version: recorded beside the run.
            prefect_flow_run_id: of the flow that works on it.
        Raises:
            RegistryError: no such sweep or cell.
        """
        with self._database.writing() as connection:
            now = self._database.now(connection)
            states.fail_exhausted(connection, now)
            row = connection.execute(
                update(Cell)
                .where(Cell.id == _next_cell(sweep, cell_key, now).scalar_subquery())
                .values(
                    state=RUNNING,
                    attempts=Cell.attempts + 1,
                    lease_holder=holder,
                    lease_token=Cell.lease_token + 1,
                    lease_until=now + timedelta(seconds=lease_seconds),
                    activity="",
                    error=None,
                    error_kind=None,
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
            mlflow_run_id=row.mlflow_run_id,
            mlflow_agent_run_ids={a.agent: a.mlflow_run_id for a in agents if a.mlflow_run_id},
        )

    def heartbeat(
        self, claim: Claim, *, activity: str | None = None, steps_done: int | None = None
    ) -> bool:
        """Renew the lease, and tell what goes on; False if the cell is no longer this claim's."""
        told = {"activity": activity, "steps_done": steps_done}
        values = {column: value for column, value in told.items() if value is not None}
        with self._database.writing() as connection:
            return renew(connection, claim, self._database.now(connection), **values)

    def start_step_total(
        self, claim: Claim, steps_total: int, *, device: str | None = None
    ) -> None:
        """Tell how many steps the run has, and on which device."""
        with self._holding(claim) as (connection, _):
            set_cell(connection, claim, steps_total=steps_total)
            if device is not None:
                connection.execute(
                    update(Run).where(Run.id == claim.run_db_id).values(device=device)
                )

    def finish(self, claim: Claim) -> None:
        """The cell is done."""
        with self._holding(claim) as (connection, now):
            _end(connection, claim, now, {"state": DONE, "finished": now}, {"state": DONE})

    def fail(self, claim: Claim, kind: str, message: str, *, requeue: bool) -> bool:
        """This attempt failed.

        Args:
            claim: the attempt.
            kind: short class of the reason, e.g. `oom`, `config`.
            message: for people, one line.
            requeue: let another attempt try, if the cell has any left.
        Returns:
            Whether the cell is queued again.
        """
        reason = {"error_kind": kind, "error": message.replace("\x00", "")[:_MESSAGE_LIMIT]}
        with self._holding(claim) as (connection, now):
            left = select(Cell.attempts < Cell.max_attempts).where(Cell.id == claim.cell_id)
            again = requeue and connection.execute(left).scalar_one()
            after = {"state": QUEUED} if again else {"state": FAILED, "finished": now}
            _end(connection, claim, now, {**after, **reason}, {"state": FAILED, **reason})
        return again

    def release(self, claim: Claim) -> None:
        """Give the cell back unfinished, without counting the attempt (the process was stopped)."""
        with self._holding(claim) as (connection, now):
            back = {"state": QUEUED, "attempts": Cell.attempts - 1}
            _end(connection, claim, now, back, {"state": CANCELLED})

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

    @contextlib.contextmanager
    def _holding(self, claim: Claim) -> Iterator[tuple[Connection, datetime]]:
        """A transaction of the claim's holder, and its time; the lease is renewed by it.

        On PostgreSQL the renewal locks the cell's row, so the writes of one cell never overlap.

        Raises:
            LeaseLostError: the cell is no longer this claim's; nothing is written.
        """
        with self._database.writing() as connection:
            now = self._database.now(connection)
            if not renew(connection, claim, now):
                raise LeaseLostError(
                    f"cell {claim.label!r} is no longer held by {claim.holder}: its lease passed "
                    "and it was given away, cleared or failed"
                )
            yield connection, now


def renew(connection: Connection, claim: Claim, now: datetime, **values: Any) -> bool:
    """Push the lease on and set columns of the cell, if the claim still holds it."""
    renewed = connection.execute(
        update(Cell)
        .where(Cell.id == claim.cell_id, Cell.lease_token == claim.token, Cell.state == RUNNING)
        .values(lease_until=now + timedelta(seconds=claim.lease_seconds), **values)
    )
    if renewed.rowcount != 1:
        return False
    connection.execute(update(Run).where(Run.id == claim.run_db_id).values(heartbeat=now))
    return True


def set_cell(connection: Connection, claim: Claim, **values: Any) -> None:
    """Set columns of a cell within `_holding`."""
    connection.execute(update(Cell).where(Cell.id == claim.cell_id).values(**values))


def _next_cell(sweep: str | None, cell_key: str | None, now: datetime) -> Select[int]:
    """Locks its row on PostgreSQL and passes over rows that others have locked."""
    query = select(Cell.id).where(states.is_claimable(now))
    if cell_key is not None:
        query = query.where(Cell.key == cell_key)
    if sweep is not None or cell_key is None:
        query = query.join(SweepCell, SweepCell.cell_id == Cell.id)
        query = query.join(Sweep, Sweep.id == SweepCell.sweep_id)
        query = query.order_by(Sweep.priority.desc(), Sweep.id, SweepCell.position)
    if sweep is not None:
        query = query.where(Sweep.name == sweep)
    return query.limit(1).with_for_update(of=Cell, skip_locked=True)


def _check_names(connection: Connection, sweep: str | None, cell_key: str | None) -> None:
    if sweep is not None:
        states.sweep_id(connection, sweep)
    if cell_key is not None:
        states.cell_id(connection, cell_key)


def _end(
    connection: Connection,
    claim: Claim,
    now: datetime,
    cell: dict[str, Any],
    run: dict[str, Any],
) -> None:
    free = {"lease_holder": None, "lease_until": None, "activity": ""}
    set_cell(connection, claim, **free, **cell)
    connection.execute(update(Run).where(Run.id == claim.run_db_id).values(ended=now, **run))
