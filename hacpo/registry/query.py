"""Asking: sweeps, cells and results as plain data; nothing here writes."""

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, func, select

from hacpo.errors import RegistryError
from hacpo.registry import states
from hacpo.registry.base import (
    RUNNING,
    CellDetail,
    CheckpointRow,
    CostRow,
    EvaluationRow,
    HeldRow,
    RunView,
    SharedCurves,
    StateCounts,
    StepRow,
    SweepRow,
    SweepView,
)
from hacpo.registry.database import Database
from hacpo.registry.models import (
    Cell,
    CellAgent,
    Checkpoint,
    Combination,
    Cost,
    EvaluationRecord,
    Run,
    Step,
    Sweep,
    SweepCell,
)
from hacpo.registry.record import read_problems
from hacpo.registry.views import cell_views, sweep_rows
from hacpo.types import ProblemScore

_CHUNK = 500
"""Values in one statement; SQLite takes 32,766 at most."""


class Query:
    """What people and reports want to know.

    A cell may be named by its key, a label, or the start of its key.
    """

    _database: Database

    def sweeps(self) -> list[SweepRow]:
        """Every sweep, the latest submission first."""
        with self._database.reading() as connection:
            return sweep_rows(connection, self._database.now(connection))

    def sweep(self, name: str) -> SweepView:
        """A sweep and all its cells."""
        with self._database.reading() as connection:
            now = self._database.now(connection)
            sweep = states.sweep_id(connection, name)
            config = select(Sweep.config).where(Sweep.id == sweep)
            members = select(SweepCell.cell_id).where(SweepCell.sweep_id == sweep)
            listed = (
                select(SweepCell.label, SweepCell.method, SweepCell.combination)
                .join(Cell, Cell.id == SweepCell.cell_id)
                .where(SweepCell.sweep_id == sweep)
                .order_by(SweepCell.position)
            )
            row = sweep_rows(connection, now, Sweep.id == sweep)[0]
            return SweepView(
                **{field.name: getattr(row, field.name) for field in fields(row)},
                config=connection.execute(config).scalar_one(),
                cells=cell_views(connection, listed, Cell.id.in_(members), now),
            )

    def shared_curves(self, sweep: str) -> list[SharedCurves]:
        """Where the curves are of cells that another sweep had asked for: in its experiment."""
        with self._database.reading() as connection:
            members = select(SweepCell.cell_id).where(
                SweepCell.sweep_id == states.sweep_id(connection, sweep)
            )
            shared = (
                select(SweepCell.cell_id)
                .where(SweepCell.cell_id.in_(members))
                .group_by(SweepCell.cell_id)
                .having(func.count() > 1)
            )
            experiment = Cell.config["name"].as_string().label("experiment")
            counted = (
                select(experiment, func.count().label("cells"))
                .where(Cell.id.in_(shared))
                .group_by(experiment)
                .subquery()
            )
            rows = connection.execute(
                select(Sweep.name, Sweep.mlflow_experiment_url, counted.c.cells)
                .join(counted, counted.c.experiment == Sweep.name)
                .where(Sweep.name != sweep)
                .order_by(Sweep.id)
            )
            return [SharedCurves(row.name, row.cells, row.mlflow_experiment_url) for row in rows]

    def unfinished(self, sweep: str) -> StateCounts:
        """The sweep's cells by state; a running cell whose lease has passed counts as queued."""
        with self._database.reading() as connection:
            found = Sweep.id == states.sweep_id(connection, sweep)
            return sweep_rows(connection, self._database.now(connection), found)[0].counts

    def held(self) -> list[HeldRow]:
        """The cells that somebody works on now."""
        with self._database.reading() as connection:
            query = (
                select(
                    Cell.key,
                    Cell.label,
                    Run.holder,
                    Run.host,
                    Run.pid,
                    Run.prefect_flow_run_id,
                )
                .join(Run, (Run.cell_id == Cell.id) & (Run.token == Cell.lease_token))
                .where(Cell.state == RUNNING, Cell.lease_until >= self._database.now(connection))
            )
            return [HeldRow(**row._mapping) for row in connection.execute(query)]

    def last_sign_of(self, prefect_flow_run_ids: Sequence[str]) -> dict[str, datetime]:
        """Flow run -> when it last wrote to one of its cells; absent if it never had one."""
        with self._database.reading() as connection:
            query = select(
                Run.prefect_flow_run_id, func.max(func.coalesce(Run.ended, Run.heartbeat))
            )
            query = query.where(Run.prefect_flow_run_id.in_(prefect_flow_run_ids))
            found = connection.execute(query.group_by(Run.prefect_flow_run_id))
            return {str(row[0]): row[1] for row in found}

    def cell_states(self, keys: Sequence[str]) -> dict[str, str]:
        """Cell key -> state, of those that are registered."""
        found: dict[str, str] = {}
        with self._database.reading() as connection:
            now = self._database.now(connection)
            for start in range(0, len(keys), _CHUNK):
                some = Cell.key.in_(keys[start : start + _CHUNK])
                rows = connection.execute(select(Cell.key, states.state_at(now)).where(some))
                found |= {row[0]: row[1] for row in rows}
        return found

    def cell(self, cell: str) -> CellDetail:
        """One cell under its own label, with its attempts and checkpoints."""
        with self._database.reading() as connection:
            found = states.cell_id(connection, cell)
            listed = (
                select(Cell.label, Cell.method, Combination.label.label("combination"))
                .join(Combination, Combination.id == Cell.combination_id)
                .where(Cell.id == found)
            )
            now = self._database.now(connection)
            config = select(Cell.config).where(Cell.id == found)
            sweeps = (
                select(Sweep.name)
                .join(SweepCell)
                .where(SweepCell.cell_id == found)
                .distinct()
                .order_by(Sweep.name)
            )
            return CellDetail(
                cell=cell_views(connection, listed, Cell.id == found, now)[0],
                config=connection.execute(config).scalar_one(),
                sweeps=list(connection.execute(sweeps).scalars()),
                runs=_runs(connection, found),
                checkpoints=_checkpoints(connection, found),
            )

    def step_rows(self, cell: str) -> list[StepRow]:
        """Every agent's steps, in order."""
        with self._database.reading() as connection:
            rows = connection.execute(
                select(
                    Step.step,
                    Step.agent,
                    Step.reward_mean,
                    Step.capability,
                    Step.rollouts,
                    Step.tokens,
                    Step.seconds,
                )
                .where(Step.cell_id == states.cell_id(connection, cell))
                .order_by(Step.step, Step.agent)
            )
            return [StepRow(**row._mapping) for row in rows]

    def evaluations(self, sweep: str) -> list[EvaluationRow]:
        """Every evaluation of the sweep's cells, in the order of the sweep."""
        with self._database.reading() as connection:
            query = select(
                EvaluationRecord.agent,
                EvaluationRecord.step,
                EvaluationRecord.task,
                EvaluationRecord.protocol,
                EvaluationRecord.mean,
                EvaluationRecord.counts,
            ).order_by(
                SweepCell.position,
                EvaluationRecord.agent,
                EvaluationRecord.step,
                EvaluationRecord.task,
                EvaluationRecord.protocol,
            )
            named = _named(query, EvaluationRecord, states.sweep_id(connection, sweep))
            return [EvaluationRow(**row._mapping) for row in connection.execute(named)]

    def costs(self, sweep: str) -> list[CostRow]:
        """What every agent of the sweep's cells cost so far, in the order of the sweep.

        A cell that several rows of the table share is listed for each; count its key once.
        """
        with self._database.reading() as connection:
            query = select(
                Cost.agent,
                Cost.rollouts_generated,
                Cost.rollouts_consumed,
                Cost.tokens,
                Cost.device_seconds,
            ).order_by(SweepCell.position, Cost.agent)
            named = _named(query, Cost, states.sweep_id(connection, sweep))
            return [CostRow(**row._mapping) for row in connection.execute(named)]

    def problem_scores(
        self, cell: str, *, agent: str, step: int, task: str, protocol: str
    ) -> list[ProblemScore]:
        """Each problem's scores in one evaluation, for paired tests.

        Raises:
            RegistryError: there is no such evaluation.
        """
        with self._database.reading() as connection:
            found = connection.execute(
                select(EvaluationRecord.id).filter_by(
                    cell_id=states.cell_id(connection, cell),
                    agent=agent,
                    step=step,
                    task=task,
                    protocol=protocol,
                )
            ).scalar_one_or_none()
            if found is None:
                raise RegistryError(
                    f"cell {cell!r} has no evaluation of agent {agent!r} after {step} steps "
                    f"on {task} by {protocol}"
                )
            return read_problems(connection, found)


def _named(
    query: Select[*tuple[Any, ...]], table: type[EvaluationRecord] | type[Cost], sweep: int
) -> Select[*tuple[Any, ...]]:
    """Rows about a cell's agents, with the names that the sweep gives the cell."""
    return (
        query.add_columns(
            Cell.key.label("cell_key"),
            SweepCell.label,
            SweepCell.method,
            Cell.seed,
            SweepCell.combination,
            CellAgent.identity,
            CellAgent.model,
        )
        .join(Cell, Cell.id == table.cell_id)
        .join(SweepCell, SweepCell.cell_id == Cell.id)
        .join(CellAgent, (CellAgent.cell_id == Cell.id) & (CellAgent.agent == table.agent))
        .where(SweepCell.sweep_id == sweep)
    )


def _runs(connection: Connection, cell: int) -> list[RunView]:
    rows = connection.execute(
        select(
            Run.id.label("run_db_id"),
            Run.attempt,
            Run.state,
            Run.holder,
            Run.host,
            Run.pid,
            Run.device,
            Run.code_version,
            Run.prefect_flow_run_id,
            Run.mlflow_run_id,
            Run.started,
            Run.heartbeat,
            Run.ended,
            Run.error,
            Run.error_kind,
        )
        .where(Run.cell_id == cell)
        .order_by(Run.token)
    )
    return [RunView(**row._mapping) for row in rows]


def _checkpoints(connection: Connection, cell: int) -> list[CheckpointRow]:
    rows = connection.execute(
        select(
            Checkpoint.step,
            Checkpoint.path,
            Checkpoint.bytes,
            Checkpoint.sha256,
            Checkpoint.created,
        )
        .where(Checkpoint.cell_id == cell)
        .order_by(Checkpoint.step)
    )
    return [CheckpointRow(**row._mapping) for row in rows]
