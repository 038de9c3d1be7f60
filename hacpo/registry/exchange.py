"""Carrying a sweep with its results from one registry to another, as JSON data.

Steps, evaluations with every problem's scores and costs go along; files (rollouts, checkpoints) and
MLflow's runs stay where they are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select, update

from hacpo.errors import DataError
from hacpo.registry import states
from hacpo.registry.base import DONE, RUNNING
from hacpo.registry.cells import Known, cell_ids, insert_cells, known_cells
from hacpo.registry.database import Database
from hacpo.registry.models import (
    Cell,
    CellAgent,
    Combination,
    Cost,
    EvaluationProblem,
    EvaluationRecord,
    Step,
    Sweep,
    SweepCell,
)
from hacpo.registry.submit import forget_cells, list_cells, put_sweep
from hacpo.types import CellSpec

FORMAT, VERSION = "hacpo sweep", 1
_MAX_ATTEMPTS = 3
_STEP = ("step", "agent", "reward_mean", "capability", "rollouts", "tokens", "seconds")
_COST = ("agent", "rollouts_generated", "rollouts_consumed", "tokens", "device_seconds")
_EVALUATION = ("agent", "step", "task", "protocol", "mean", "counts", "identity_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCounts:
    """What an import did, in distinct cells."""

    taken: int
    """Results that this registry did not have."""
    kept: int
    """Done here, too, with the same evaluations."""
    differing: tuple[str, ...]
    """Labels of cells done here and there with other evaluations; this registry's stay."""
    queued: int
    """Without results there; queued here if they were not known."""


class Exchange:
    """Export and import of sweeps."""

    _database: Database

    def export_sweep(self, sweep: str) -> dict[str, Any]:
        """A sweep, its cells and the results of those that are done."""
        with self._database.reading() as connection:
            now = self._database.now(connection)
            found = states.sweep_id(connection, sweep)
            columns = (Sweep.name, Sweep.owner, Sweep.config, Sweep.priority)
            row = connection.execute(select(*columns).where(Sweep.id == found)).one()
            return {
                "format": FORMAT,
                "version": VERSION,
                "sweep": dict(row._mapping),
                "cells": [
                    _export_cell(connection, cell) for cell in _cells(connection, found, now)
                ],
            }

    def import_sweep(self, data: Any, *, name: str | None = None) -> ImportCounts:
        """Take over an exported sweep; what is done here stays, what is done there is added.

        Args:
            data: from `export_sweep`.
            name: of the sweep here; default: its name there.
        Raises:
            DataError: not an export, or a newer one.
        """
        sweep, cells = _checked(data)
        specs = {cell["key"]: _spec(cell) for cell in cells}
        with self._database.writing() as connection:
            self._database.one_writer(connection)
            now = self._database.now(connection)
            known = known_cells(connection, specs, now)
            new = [spec for key, spec in specs.items() if key not in known]
            insert_cells(connection, new, _MAX_ATTEMPTS, now)
            ids = cell_ids(connection, list(specs))
            taken, kept, differing, queued = 0, 0, [], 0
            for cell in {cell["key"]: cell for cell in cells}.values():
                here = known.get(cell["key"])
                if cell["state"] != DONE:
                    queued += here is None
                elif here is not None and here.state == DONE:
                    same = _evaluations(connection, here.id) == _sorted(cell["evaluations"])
                    kept += same
                    differing += [] if same else [cell["label"]]
                elif here is None or _is_free(here):
                    _take_results(connection, ids[cell["key"]], cell, now)
                    taken += 1
            asked = {"owner": sweep["owner"], "config": sweep["config"]}
            row = put_sweep(connection, name or sweep["name"], asked, now, change=False)
            list_cells(connection, row, [_spec(cell) for cell in cells], replace=False)
        return ImportCounts(taken=taken, kept=kept, differing=tuple(differing), queued=queued)


def _is_free(cell: Known) -> bool:
    return cell.state != RUNNING


def _checked(data: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise DataError("not an exported sweep: write one with `hacpo sweep export`")
    if data.get("version") != VERSION:
        raise DataError(
            f"exported by another version ({data.get('version')}; this code reads {VERSION}): "
            "export it again with the same hacpo"
        )
    from hacpo.registry.export_format import check_export  # loads pydantic

    check_export(data)
    return data["sweep"], data["cells"]


def _cells(connection: Connection, sweep: int, now: datetime) -> Sequence[Any]:
    return connection.execute(
        select(
            Cell.id,
            Cell.key,
            SweepCell.label,
            SweepCell.method,
            SweepCell.combination,
            Cell.seed,
            Cell.config,
            Cell.gpus,
            Cell.rollouts_planned.label("rollouts"),
            states.state_at(now).label("state"),
            Cell.steps_done,
            Cell.steps_total,
            Combination.members,
        )
        .join(SweepCell, SweepCell.cell_id == Cell.id)
        .join(Combination, Combination.id == Cell.combination_id)
        .where(SweepCell.sweep_id == sweep)
        .order_by(SweepCell.position)
    ).all()


def _export_cell(connection: Connection, row: Any) -> dict[str, Any]:
    agents = connection.execute(
        select(CellAgent.agent, CellAgent.model, CellAgent.identity)
        .where(CellAgent.cell_id == row.id)
        .order_by(CellAgent.position)
    )
    cell = {key: value for key, value in row._mapping.items() if key not in ("id", "members")}
    cell["agents"] = {a.agent: {"model": a.model, "identity": a.identity} for a in agents}
    if row.state == DONE:
        cell["steps"] = _rows(connection, Step, _STEP, row.id)
        cell["costs"] = _rows(connection, Cost, _COST, row.id)
        cell["evaluations"] = _evaluations(connection, row.id)
    return cell


def _rows(
    connection: Connection, table: type[Step] | type[Cost], names: tuple[str, ...], cell: int
) -> list[dict[str, Any]]:
    columns = [getattr(table, name) for name in names]
    found = connection.execute(select(*columns).where(table.cell_id == cell).order_by(*columns[:2]))
    return [_without_nan(row._mapping) for row in found]


def _evaluations(connection: Connection, cell: int) -> list[dict[str, Any]]:
    columns = [getattr(EvaluationRecord, name) for name in _EVALUATION]
    query = select(EvaluationRecord.id, *columns).where(EvaluationRecord.cell_id == cell)
    rows = []
    for row in connection.execute(query):
        facts = _without_nan(row._mapping)
        problems = connection.execute(
            select(EvaluationProblem.problem_id, EvaluationProblem.scores)
            .where(EvaluationProblem.evaluation_id == facts.pop("id"))
            .order_by(EvaluationProblem.position)
        )
        rows.append({**facts, "problems": [[p.problem_id, p.scores] for p in problems]})
    return _sorted(rows)


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda e: (e["agent"], e["step"], e["task"], e["protocol"]))


def _without_nan(row: Any) -> dict[str, Any]:
    """JSON has no NaN; the tables hold NULL for it, too."""
    return {
        key: None if isinstance(value, float) and math.isnan(value) else value
        for key, value in row.items()
    }


def _spec(cell: dict[str, Any]) -> CellSpec:
    return CellSpec(
        **{
            key: cell[key]
            for key in (
                *("key", "label", "method", "seed", "combination", "agents", "config"),
                *("rollouts", "gpus"),
            )
        }
    )


def _take_results(connection: Connection, cell: int, data: dict[str, Any], now: datetime) -> None:
    forget_cells(connection, [cell])
    for table, rows in ((Step, data["steps"]), (Cost, data["costs"])):
        if rows:
            connection.execute(insert(table), [{"cell_id": cell, **row} for row in rows])
    for evaluation in data["evaluations"]:
        facts = {key: value for key, value in evaluation.items() if key != "problems"}
        new = insert(EvaluationRecord).values(cell_id=cell, created=now, **facts)
        found = connection.execute(new.returning(EvaluationRecord.id)).scalar_one()
        problems = [
            {"evaluation_id": found, "position": i, "problem_id": problem, "scores": scores}
            for i, (problem, scores) in enumerate(evaluation["problems"])
        ]
        if problems:
            connection.execute(insert(EvaluationProblem), problems)
    connection.execute(
        update(Cell)
        .where(Cell.id == cell)
        .values(
            state=DONE,
            error=None,
            error_kind=None,
            lease_holder=None,
            lease_until=None,
            lease_sweep_id=None,
            not_before=None,
            finished=now,
            steps_done=data["steps_done"],
            steps_total=data["steps_total"],
            rollouts_done=sum(row["rollouts"] for row in data["steps"]),
        )
    )
