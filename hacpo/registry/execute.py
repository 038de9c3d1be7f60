"""Executing: what the holder of a claim does with its lease, and how an attempt ends."""

import contextlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, select, update

from hacpo.errors import LeaseLostError
from hacpo.registry import states
from hacpo.registry.base import CANCELLED, DONE, FAILED, LOST, QUEUED, RUNNING, STOP, Claim
from hacpo.registry.database import Database
from hacpo.registry.models import Cell, Run

_MESSAGE_LIMIT = 2000
BACKOFF_SECONDS = 10.0
BACKOFF_MOST = 600.0
"""A failed attempt is repeated after the first, doubled with each, at most the second."""


class Execute:
    """What a process does with a cell that it has claimed."""

    _database: Database

    def heartbeat(
        self, claim: Claim, *, activity: str | None = None, steps_done: int | None = None
    ) -> str:
        """Renew the lease, and tell what goes on.

        Returns:
            `run`: go on; `pause`, `cancel` or `stop`: hand the cell back at the next step boundary;
            `lost`: the cell is no longer this claim's.
        """
        told = {"activity": activity, "steps_done": steps_done}
        values = {column: value for column, value in told.items() if value is not None}
        with self._database.writing() as connection:
            if not renew(connection, claim, self._database.now(connection), **values):
                return LOST
            return wanted_of(connection, claim)

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
            pause = timedelta(seconds=min(BACKOFF_SECONDS * 2 ** (claim.attempt - 1), BACKOFF_MOST))
            after: dict[str, Any] = {"state": QUEUED, "not_before": now + pause}
            if not again:
                after = {"state": FAILED, "finished": now}
            _end(connection, claim, now, {**after, **reason}, {"state": FAILED, **reason})
        return again

    def release(self, claim: Claim) -> None:
        """Give the cell back unfinished, without counting the attempt (the process was stopped)."""
        with self._holding(claim) as (connection, now):
            back = {"state": QUEUED, "attempts": Cell.attempts - 1}
            _end(connection, claim, now, back, {"state": CANCELLED})

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


def wanted_of(connection: Connection, claim: Claim) -> str:
    """What a holder is to do."""
    own = select(Run.wanted).where(Run.id == claim.run_db_id)
    if connection.execute(own).scalar_one() == STOP:
        return STOP
    return states.wanted_of(connection, claim.cell_id)


def set_cell(connection: Connection, claim: Claim, **values: Any) -> None:
    """Set columns of a cell within `_holding`."""
    connection.execute(update(Cell).where(Cell.id == claim.cell_id).values(**values))


def _end(
    connection: Connection,
    claim: Claim,
    now: datetime,
    cell: dict[str, Any],
    run: dict[str, Any],
) -> None:
    free = {"lease_holder": None, "lease_until": None, "lease_sweep_id": None, "activity": ""}
    set_cell(connection, claim, **free, **cell)
    connection.execute(update(Run).where(Run.id == claim.run_db_id).values(ended=now, **run))
