"""Submitting: sweeps and their cells come in, existing cells are shared."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, insert, or_, select, update

from hacpo.errors import RegistryError
from hacpo.registry import states
from hacpo.registry.base import (
    CANCELLED,
    DONE,
    FAILED,
    PAUSED,
    QUEUED,
    RUN,
    RUNNING,
    SubmitCounts,
)
from hacpo.registry.cells import CHUNK, Known, cell_ids, insert_cells, known_cells
from hacpo.registry.database import Database
from hacpo.registry.models import (
    Cell,
    CellAgent,
    Checkpoint,
    Cost,
    EvaluationRecord,
    Step,
    Sweep,
    SweepCell,
)
from hacpo.types import CellSpec


class Submit:
    """What people ask for."""

    _database: Database

    def register_sweep(
        self,
        name: str,
        *,
        owner: str,
        config: dict[str, Any],
        cells: Sequence[CellSpec],
        prefect_flow_run_id: str | None = None,
        priority: int | None = None,
        offline: bool = False,
        max_running: int | None = None,
        max_attempts: int = 3,
        replace: bool = True,
    ) -> SubmitCounts:
        """Queue a sweep, or submit it again with the cells it has now.

        Cells that exist already are shared: done ones are not repeated, running ones go on, failed
        ones are queued again with all their attempts. Failed and queued cells take the new config
        (the key is the same, so only settings that leave the result alone can differ), unless
        their agents have other names there, or another sweep waits for them too.

        Args:
            name: one sweep per name.
            owner: who asked.
            config: the grid or run as JSON data.
            cells: in the order in which they are to be claimed.
            prefect_flow_run_id: of the submitting flow.
            priority: among sweeps, larger is claimed first; None leaves it, 0 for a new one.
            offline: its cells do not contact MLflow.
            max_running: of its cells at the same time.
            max_attempts: of cells that are new.
            replace: the sweep's list becomes these cells, and it is wanted if it was paused or
                cancelled; False: they are added to it, and it stays as it was otherwise.
        Raises:
            RegistryError: no cells, or the sweep is another person's.
        """
        if not cells:
            raise RegistryError(f"sweep {name!r} has no cells: nothing was queued")
        distinct: dict[str, CellSpec] = {}
        for spec in cells:
            distinct.setdefault(spec.key, spec)
        with self._database.writing() as connection:
            self._database.one_writer(connection)
            now = self._database.now(connection)
            known = known_cells(connection, distinct, now)
            new = [spec for spec in distinct.values() if spec.key not in known]
            insert_cells(connection, new, max_attempts, now)
            asked: dict[str, Any] = {
                "owner": owner,
                "config": config,
                "wanted": RUN,
                "offline": offline,
                "max_running": max_running,
            }
            if priority is not None:
                asked["priority"] = priority
            sweep = put_sweep(connection, name, asked, now, change=replace)
            if prefect_flow_run_id is not None:
                _link(connection, sweep, prefect_flow_run_id=prefect_flow_run_id)
            _refresh(connection, sweep, distinct, known, now)
            list_cells(connection, sweep, cells, replace=replace)
        states_found = Counter(cell.state for cell in known.values())
        return SubmitCounts(
            new=len(new),
            queued=states_found[QUEUED] + states_found[PAUSED] + states_found[CANCELLED],
            running=states_found[RUNNING],
            done=states_found[DONE],
            failed=states_found[FAILED],
        )

    def link_sweep(
        self,
        name: str,
        *,
        prefect_flow_run_id: str | None = None,
        mlflow_experiment_url: str | None = None,
    ) -> None:
        """Note where else the sweep can be seen; None leaves what is there."""
        links = {
            "prefect_flow_run_id": prefect_flow_run_id,
            "mlflow_experiment_url": mlflow_experiment_url,
        }
        given = {column: value for column, value in links.items() if value is not None}
        with self._database.writing() as connection:
            sweep = states.sweep_id(connection, name)
            if given:
                _link(connection, sweep, **given)

    def clear_cell(self, cell: str) -> str | None:
        """Forget the results of a cell and queue it again, with all its attempts.

        Its past runs stay listed.

        Args:
            cell: key, label or start of a key.
        Returns:
            The key; None if there is no such cell, so that nothing is to be forgotten.
        Raises:
            RegistryError: a process holds it.
        """
        with self._database.writing() as connection:
            self._database.one_writer(connection)
            now = self._database.now(connection)
            found = states.find_cell(connection, cell)
            if found is None:
                return None
            row = connection.execute(
                select(Cell.key, Cell.label, Cell.lease_holder, states.state_at(now).label("state"))
                .where(Cell.id == found)
                .with_for_update()
            ).one()
            if row.state == RUNNING:
                raise RegistryError(
                    f"cell {row.label!r} is held by {row.lease_holder}: stop that run first"
                )
            forget_cells(connection, [found])
            queue_again(connection, [found], now)
            return str(row.key)


def forget_cells(connection: Connection, cells: list[int]) -> None:
    """Remove what was recorded of these cells; their runs stay listed."""
    for table in (Step, Checkpoint, EvaluationRecord, Cost):
        connection.execute(delete(table).where(table.cell_id.in_(cells)))
    connection.execute(
        update(CellAgent).where(CellAgent.cell_id.in_(cells)).values(mlflow_run_id=None)
    )
    connection.execute(
        update(Cell)
        .where(Cell.id.in_(cells))
        .values(steps_done=0, steps_total=0, rollouts_done=0, mlflow_run_id=None)
    )


def put_sweep(
    connection: Connection, name: str, asked: dict[str, Any], now: datetime, *, change: bool
) -> int:
    """The row of a sweep: a new one with these columns, or the one that is there, changed to them
    or left as it is but for the time."""
    if change:
        _check_owner(connection, name, asked["owner"])
    news = {"submitted": now, "told": None}
    values = {**asked, **news} if change else news
    updated = connection.execute(
        update(Sweep).where(Sweep.name == name).values(**values).returning(Sweep.id)
    ).scalar_one_or_none()
    if updated is not None:
        return updated
    first = {"priority": 0, "wanted": RUN, "offline": False, "created": now, **asked, **news}
    inserted = insert(Sweep).values(name=name, **first).returning(Sweep.id)
    return connection.execute(inserted).scalar_one()


def _check_owner(connection: Connection, name: str, owner: str) -> None:
    """Refuse to replace the cells of another person's sweep; nobody's may be taken over."""
    theirs = connection.execute(select(Sweep.owner).where(Sweep.name == name)).scalar_one_or_none()
    if theirs and owner not in ("", theirs):
        raise RegistryError(
            f"sweep {name!r} is {theirs}'s, and its cells would be replaced: choose another "
            f"name (--name), or submit it as theirs (--owner {theirs})"
        )


def _link(connection: Connection, sweep: int, **links: str) -> None:
    connection.execute(update(Sweep).where(Sweep.id == sweep).values(**links))


def _refresh(
    connection: Connection,
    sweep: int,
    specs: dict[str, CellSpec],
    known: dict[str, Known],
    now: datetime,
) -> None:
    """Queue failed cells again, and give new settings to those that nobody else waits for."""
    failed = [cell.id for cell in known.values() if cell.state == FAILED]
    queue_again(connection, failed, now)
    others = select(SweepCell.cell_id).where(SweepCell.sweep_id != sweep).distinct()
    elsewhere = set(connection.execute(others).scalars()) if known else set()
    for key, cell in known.items():
        spec = specs[key]
        identities = {agent: facts["identity"] for agent, facts in spec.agents.items()}
        waits = cell.state in (QUEUED, PAUSED, CANCELLED)
        mine = cell.state == FAILED or (waits and cell.id not in elsewhere)
        if mine and cell.agents == identities and cell.config != spec.config:
            free = Cell.state == QUEUED
            change = update(Cell).where(Cell.id == cell.id, free).values(config=spec.config)
            connection.execute(change)


def queue_again(connection: Connection, cells: list[int], now: datetime) -> None:
    """Cells that nobody holds start over with their attempts; what they recorded stays."""
    for start in range(0, len(cells), CHUNK):
        queued = connection.execute(
            update(Cell)
            .where(Cell.id.in_(cells[start : start + CHUNK]))
            .where(or_(Cell.state != RUNNING, states.is_stale(now)))
            .values(
                state=QUEUED,
                attempts=0,
                error=None,
                error_kind=None,
                activity="",
                lease_holder=None,
                lease_until=None,
                lease_sweep_id=None,
                not_before=None,
                finished=None,
            )
            .returning(Cell.id)
        )
        states.close_lost_runs(connection, list(queued.scalars()), now)


def list_cells(
    connection: Connection, sweep: int, cells: Sequence[CellSpec], *, replace: bool
) -> None:
    ids = cell_ids(connection, list({spec.key for spec in cells}))
    if replace:
        connection.execute(delete(SweepCell).where(SweepCell.sweep_id == sweep))
    listed = connection.execute(
        select(SweepCell.cell_id, SweepCell.label, SweepCell.position).where(
            SweepCell.sweep_id == sweep
        )
    ).all()
    present = {(row.cell_id, row.label) for row in listed}
    first = max((row.position for row in listed), default=-1) + 1
    rows = [
        {
            "sweep_id": sweep,
            "position": position,
            "cell_id": ids[spec.key],
            "label": spec.label,
            "method": spec.method,
            "combination": spec.combination,
        }
        for position, spec in enumerate(cells, first)
        if (ids[spec.key], spec.label) not in present
    ]
    if rows:
        connection.execute(insert(SweepCell), rows)
