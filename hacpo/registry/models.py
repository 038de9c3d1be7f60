"""The tables; the schema of a database changes only through `migrations/`."""

import json
import math
from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

SCHEMA = "0002"
"""The newest migration; opening a registry compares it before Alembic is imported."""


class UtcDateTime(TypeDecorator[datetime]):
    """An aware datetime in UTC; SQLite would give back naive ones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone; use datetime.now(UTC)")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Measure(TypeDecorator[float]):
    """A float whose NaN (nothing was graded) is NULL, which SQL leaves out of means."""

    impl = Float
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        return None if value is None or math.isnan(value) else value

    def process_result_value(self, value: float | None, dialect: Dialect) -> float:
        return math.nan if value is None else value


class JsonData(TypeDecorator[Any]):
    """JSON that every reader can read: no NaN, nothing but what JSON has."""

    impl = JSON
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        json.dumps(value, allow_nan=False)  # the drivers differ in what they let pass
        return value


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        datetime: UtcDateTime,
        float: Measure,
        str: String,
        dict[str, Any]: JsonData,
        list[Any]: JsonData,
    }


def _cell_id(*, primary_key: bool = True) -> Mapped[int]:
    return mapped_column(ForeignKey("cell.id", ondelete="CASCADE"), primary_key=primary_key)


class Sweep(Base):
    __tablename__ = "sweep"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    owner: Mapped[str]
    created: Mapped[datetime]
    submitted: Mapped[datetime]
    config: Mapped[dict[str, Any]]
    priority: Mapped[int]
    prefect_flow_run_id: Mapped[str | None]
    mlflow_experiment_url: Mapped[str | None]
    wanted: Mapped[str]
    """run, pause or cancel."""
    offline: Mapped[bool]
    max_running: Mapped[int | None]
    told: Mapped[str | None]
    """The latest news that people were told: failing, done, failed, cancelled."""


class Combination(Base):
    """A set of models that learn together, whatever the sweeps call them."""

    __tablename__ = "combination"

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(unique=True)
    """The sorted identities, joined by `+`."""
    label: Mapped[str]
    members: Mapped[dict[str, Any]]
    """agent -> {model, identity}."""


class Cell(Base):
    __tablename__ = "cell"
    __table_args__ = (Index(None, "state", "lease_until"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(unique=True)
    label: Mapped[str] = mapped_column(index=True)
    method: Mapped[str]
    seed: Mapped[int] = mapped_column(BigInteger)
    combination_id: Mapped[int] = mapped_column(ForeignKey("combination.id"), index=True)
    config: Mapped[dict[str, Any]]
    rollouts_planned: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str]
    attempts: Mapped[int]
    max_attempts: Mapped[int]
    lease_holder: Mapped[str | None]
    lease_token: Mapped[int]
    """Raised by each claim, never lowered."""
    lease_until: Mapped[datetime | None]
    lease_sweep_id: Mapped[int | None]
    """For which it was claimed."""
    not_before: Mapped[datetime | None]
    """A failed attempt is not repeated earlier."""
    gpus: Mapped[int]
    steps_done: Mapped[int]
    steps_total: Mapped[int]
    rollouts_done: Mapped[int] = mapped_column(BigInteger)
    activity: Mapped[str]
    mlflow_run_id: Mapped[str | None]
    error: Mapped[str | None]
    error_kind: Mapped[str | None]
    created: Mapped[datetime]
    finished: Mapped[datetime | None]


class CellAgent(Base):
    __tablename__ = "cell_agent"

    cell_id: Mapped[int] = _cell_id()
    agent: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int]
    model: Mapped[str]
    identity: Mapped[str] = mapped_column(index=True)
    mlflow_run_id: Mapped[str | None]


class SweepCell(Base):
    __tablename__ = "sweep_cell"

    sweep_id: Mapped[int] = mapped_column(
        ForeignKey("sweep.id", ondelete="CASCADE"), primary_key=True
    )
    position: Mapped[int] = mapped_column(primary_key=True)
    cell_id: Mapped[int] = mapped_column(ForeignKey("cell.id"), index=True)
    label: Mapped[str] = mapped_column(index=True)
    method: Mapped[str]
    combination: Mapped[str]


class Run(Base):
    """One attempt at a cell."""

    __tablename__ = "run"
    __table_args__ = (UniqueConstraint("cell_id", "token"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    cell_id: Mapped[int] = _cell_id(primary_key=False)
    token: Mapped[int]
    attempt: Mapped[int]
    state: Mapped[str]
    wanted: Mapped[str]
    """run, or stop: this attempt alone is to hand its cell back."""
    holder: Mapped[str]
    host: Mapped[str]
    pid: Mapped[int]
    device: Mapped[str | None]
    code_version: Mapped[str]
    prefect_flow_run_id: Mapped[str | None] = mapped_column(index=True)
    mlflow_run_id: Mapped[str | None]
    started: Mapped[datetime]
    heartbeat: Mapped[datetime]
    ended: Mapped[datetime | None]
    error: Mapped[str | None]
    error_kind: Mapped[str | None]


class Step(Base):
    __tablename__ = "step_summary"

    cell_id: Mapped[int] = _cell_id()
    step: Mapped[int] = mapped_column(Integer, primary_key=True)
    agent: Mapped[str] = mapped_column(primary_key=True)
    reward_mean: Mapped[float | None]
    capability: Mapped[float | None]
    rollouts: Mapped[int] = mapped_column(BigInteger)
    tokens: Mapped[int] = mapped_column(BigInteger)
    seconds: Mapped[float | None]


class Checkpoint(Base):
    """A row exists only for a checkpoint that is complete on disk."""

    __tablename__ = "checkpoint"

    cell_id: Mapped[int] = _cell_id()
    step: Mapped[int] = mapped_column(Integer, primary_key=True)
    path: Mapped[str]
    bytes: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str]
    created: Mapped[datetime]


class EvaluationRecord(Base):
    __tablename__ = "evaluation"
    __table_args__ = (UniqueConstraint("cell_id", "agent", "step", "task", "protocol"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    cell_id: Mapped[int] = _cell_id(primary_key=False)
    agent: Mapped[str]
    step: Mapped[int]
    task: Mapped[str]
    protocol: Mapped[str]
    mean: Mapped[float | None]
    counts: Mapped[dict[str, Any]]
    identity_key: Mapped[str | None] = mapped_column(index=True)
    created: Mapped[datetime]


class EvaluationProblem(Base):
    __tablename__ = "evaluation_problem"

    evaluation_id: Mapped[int] = mapped_column(
        ForeignKey("evaluation.id", ondelete="CASCADE"), primary_key=True
    )
    position: Mapped[int] = mapped_column(primary_key=True)
    problem_id: Mapped[str]
    scores: Mapped[list[Any]]
    """null where ungraded: JSON has no NaN."""


class Cost(Base):
    __tablename__ = "cost"

    cell_id: Mapped[int] = _cell_id()
    agent: Mapped[str] = mapped_column(primary_key=True)
    rollouts_generated: Mapped[int] = mapped_column(BigInteger)
    rollouts_consumed: Mapped[int] = mapped_column(BigInteger)
    tokens: Mapped[int] = mapped_column(BigInteger)
    device_seconds: Mapped[float | None]
