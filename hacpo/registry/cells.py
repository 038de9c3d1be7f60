"""The rows of cells and combinations: finding those that exist, inserting those that do not."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select

from hacpo.registry import states
from hacpo.registry.base import QUEUED
from hacpo.registry.models import Cell, CellAgent, Combination
from hacpo.types import CellSpec

CHUNK = 5000
"""Values in one IN (...): below both databases' limits."""


@dataclass(frozen=True, slots=True)
class Known:
    """A cell as a submission finds it."""

    id: int
    state: str
    config: dict[str, Any]
    agents: dict[str, str]
    """agent -> identity."""


def known_cells(connection: Connection, keys: Iterable[str], now: datetime) -> dict[str, Known]:
    known: dict[str, Known] = {}
    wanted = list(keys)
    for start in range(0, len(wanted), CHUNK):
        some = Cell.key.in_(wanted[start : start + CHUNK])
        columns = (Cell.id, Cell.key, Cell.config, states.state_at(now).label("state"))
        by_id: dict[int, Known] = {}
        for row in connection.execute(select(*columns).where(some)):
            known[row.key] = by_id[row.id] = Known(row.id, row.state, row.config, {})
        agents = select(CellAgent.cell_id, CellAgent.agent, CellAgent.identity).join(Cell)
        for agent in connection.execute(agents.where(some)):
            by_id[agent.cell_id].agents[agent.agent] = agent.identity
    return known


def cell_ids(connection: Connection, keys: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for start in range(0, len(keys), CHUNK):
        some = Cell.key.in_(keys[start : start + CHUNK])
        found |= {
            row.key: row.id for row in connection.execute(select(Cell.key, Cell.id).where(some))
        }
    return found


def insert_cells(
    connection: Connection, specs: list[CellSpec], max_attempts: int, now: datetime
) -> None:
    if not specs:
        return
    combinations = _combination_ids(connection, specs)
    start = {
        "state": QUEUED,
        "attempts": 0,
        "max_attempts": max_attempts,
        "lease_token": 0,
        "steps_done": 0,
        "steps_total": 0,
        "rollouts_done": 0,
        "activity": "",
        "created": now,
    }
    rows = [
        {
            "key": spec.key,
            "label": spec.label,
            "method": spec.method,
            "seed": spec.seed,
            "combination_id": combinations[_combination_key(spec)],
            "config": spec.config,
            "rollouts_planned": spec.rollouts,
            "gpus": spec.gpus,
            **start,
        }
        for spec in specs
    ]
    connection.execute(insert(Cell), rows)
    ids = cell_ids(connection, [spec.key for spec in specs])
    agents = [
        {
            "cell_id": ids[spec.key],
            "agent": agent,
            "position": position,
            "model": facts["model"],
            "identity": facts["identity"],
        }
        for spec in specs
        for position, (agent, facts) in enumerate(spec.agents.items())
    ]
    connection.execute(insert(CellAgent), agents)


def _combination_key(spec: CellSpec) -> str:
    return "+".join(sorted(agent["identity"] for agent in spec.agents.values()))


def _combination_ids(connection: Connection, specs: list[CellSpec]) -> dict[str, int]:
    wanted = {_combination_key(spec): spec for spec in specs}
    every = select(Combination.key, Combination.id)
    found = {row.key: row.id for row in connection.execute(every)}
    missing = [
        {"key": key, "label": spec.combination, "members": spec.agents}
        for key, spec in wanted.items()
        if key not in found
    ]
    if missing:
        connection.execute(insert(Combination), missing)
        found = {row.key: row.id for row in connection.execute(every)}
    return found
