"""What a cell's state means at a given time, and finding what a person names."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import (
    ColumnElement,
    Connection,
    String,
    and_,
    case,
    literal,
    or_,
    select,
    union_all,
    update,
)

from hacpo.errors import RegistryError
from hacpo.registry.base import (
    CANCEL,
    CANCELLED,
    FAILED,
    LOST,
    PAUSE,
    PAUSED,
    QUEUED,
    RUN,
    RUNNING,
)
from hacpo.registry.models import Cell, Run, Sweep, SweepCell

LOST_MESSAGE = "its process stopped renewing the lease (killed, or its machine went away)"


def is_stale(now: datetime) -> ColumnElement[bool]:
    """Running, but nobody holds it."""
    return and_(Cell.state == RUNNING, Cell.lease_until < now)


def is_claimable(now: datetime) -> ColumnElement[bool]:
    free = or_(Cell.state == QUEUED, is_stale(now))
    return and_(free, Cell.attempts < Cell.max_attempts)


def is_ready(now: datetime) -> ColumnElement[bool]:
    """Not waiting for its next attempt."""
    return or_(Cell.not_before.is_(None), Cell.not_before <= now)


def state_at(now: datetime) -> ColumnElement[str]:
    """The state that people see: a passed lease is a queued cell, or a failed one."""
    waiting = or_(Cell.state == QUEUED, and_(is_stale(now), Cell.attempts < Cell.max_attempts))
    return case(
        (and_(waiting, _in_sweep_that_is(PAUSE), ~_in_sweep_that_is(RUN)), literal(PAUSED, String)),
        (
            and_(waiting, _in_sweep_that_is(CANCEL), ~_in_sweep_that_is(RUN)),
            literal(CANCELLED, String),
        ),
        (waiting, literal(QUEUED, String)),
        (is_stale(now), literal(FAILED, String)),
        else_=Cell.state,
    )


def wanted_of(connection: Connection, cell: int) -> str:
    """What the holder of a cell is to do: run while any sweep wants it, or none is left."""
    query = select(Sweep.wanted).join(SweepCell, SweepCell.sweep_id == Sweep.id)
    found = set(connection.execute(query.where(SweepCell.cell_id == cell)).scalars())
    if not found or RUN in found:
        return RUN
    return PAUSE if PAUSE in found else CANCEL


def _in_sweep_that_is(wanted: str) -> ColumnElement[bool]:
    query = select(literal(1)).select_from(SweepCell).join(Sweep, Sweep.id == SweepCell.sweep_id)
    return query.where(SweepCell.cell_id == Cell.id, Sweep.wanted == wanted).exists()


def close_lost_runs(connection: Connection, cells: Collection[int], now: datetime) -> None:
    """End the runs of these cells that are still open; their holders are gone."""
    if cells:
        connection.execute(
            update(Run)
            .where(Run.cell_id.in_(cells), Run.state == RUNNING)
            .values(state=FAILED, error_kind=LOST, error=LOST_MESSAGE, ended=now)
        )


def fail_exhausted(connection: Connection, now: datetime) -> None:
    """Cells whose last attempt's lease passed are failed."""
    exhausted = (
        select(Cell.id)
        .where(is_stale(now), Cell.attempts >= Cell.max_attempts)
        .with_for_update(skip_locked=True)
    )
    failed = connection.execute(
        update(Cell)
        .where(Cell.id.in_(exhausted))
        .values(
            state=FAILED,
            error_kind=LOST,
            error=LOST_MESSAGE,
            finished=now,
            activity="",
            lease_holder=None,
            lease_until=None,
            lease_sweep_id=None,
        )
        .returning(Cell.id)
    )
    close_lost_runs(connection, list(failed.scalars()), now)


def sweep_id(connection: Connection, name: str) -> int:
    """
    Raises:
        RegistryError: no such sweep, with the known ones.
    """
    found = connection.execute(select(Sweep.id).where(Sweep.name == name)).scalar_one_or_none()
    if found is None:
        latest = select(Sweep.name).order_by(Sweep.submitted.desc()).limit(10)
        known = ", ".join(connection.execute(latest).scalars()) or "none yet"
        raise RegistryError(f"no sweep {name!r} in the registry; known: {known}")
    return found


def find_cell(connection: Connection, name: str) -> int | None:
    """The cell of a key, a label, or the start of a key.

    Raises:
        RegistryError: several.
    """
    columns = select(Cell.id, Cell.key)
    candidates = (
        columns.where(Cell.key == name),
        union_all(
            columns.where(Cell.label == name),
            columns.join(SweepCell).where(SweepCell.label == name),
        ),
        columns.where(Cell.key.startswith(name, autoescape=True)).limit(6),
    )
    for query in candidates if name else ():
        cells = {row.id: row.key for row in connection.execute(query)}
        if len(cells) > 1:
            length = max(12, len(name) + 4)
            keys = ", ".join(sorted(key[:length] for key in cells.values())[:5])
            raise RegistryError(f"{name!r} means several cells ({keys}): give more of the key")
        for found in cells:
            return int(found)
    return None


def cell_id(connection: Connection, name: str) -> int:
    """As `find_cell`.

    Raises:
        RegistryError: none, or several.
    """
    found = find_cell(connection, name)
    if found is None:
        raise RegistryError(f"no cell {name!r} in the registry: give a label, a key or its start")
    return found
