"""The registry: every cell of every grid, who works on it, and what came out.

Read base.py for the contract, then submit.py, execute.py, record.py and query.py, which are what
people ask, what processes do, what they learn, and what is shown; claim.py says whose turn it is,
control.py pauses and resumes, exchange.py carries results from one registry to another.
"""

from types import TracebackType

from hacpo.registry.base import (
    CANCEL,
    CANCELLED,
    DONE,
    FAILED,
    LOST,
    PAUSE,
    PAUSED,
    QUEUED,
    RUN,
    RUNNING,
    STOP,
    AgentView,
    CellDetail,
    CellView,
    CheckpointRow,
    Claim,
    CostRow,
    EvaluationRow,
    HeldRow,
    QueueRow,
    RunView,
    SharedCurves,
    StateCounts,
    StepRow,
    SubmitCounts,
    SweepRow,
    SweepView,
)
from hacpo.registry.claim import Claiming
from hacpo.registry.control import Control, News
from hacpo.registry.database import Clock, Database
from hacpo.registry.exchange import Exchange
from hacpo.registry.query import Query
from hacpo.registry.record import Record
from hacpo.registry.submit import Submit


class Registry(Submit, Claiming, Control, Record, Query, Exchange):
    """One registry, open; `Registry.open` makes it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, url: str, *, clock: Clock | None = None) -> "Registry":
        """Open a registry, creating or upgrading its tables; any number may open it at once.

        Args:
            url: `sqlite:///folder/registry.db` or `postgresql://user@host/database`.
            clock: replaces the database's time, for tests.
        Raises:
            RegistryError: not reachable or writable, of a newer schema, or not a registry.
        """
        database = Database(url, clock)
        try:
            database.prepare()
        except BaseException:
            database.close()
            raise
        return cls(database)

    @property
    def name(self) -> str:
        """The URL without its password."""
        return self._database.name

    def wait_for_database(self, seconds: float) -> None:
        """From now on a transaction waits so long for a database that is away, before it fails."""
        self._database.patience = seconds

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> "Registry":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


__all__ = [
    "CANCEL",
    "CANCELLED",
    "DONE",
    "FAILED",
    "LOST",
    "PAUSE",
    "PAUSED",
    "QUEUED",
    "RUN",
    "RUNNING",
    "STOP",
    "AgentView",
    "CellDetail",
    "CellView",
    "CheckpointRow",
    "Claim",
    "CostRow",
    "EvaluationRow",
    "HeldRow",
    "News",
    "QueueRow",
    "Registry",
    "RunView",
    "SharedCurves",
    "StateCounts",
    "StepRow",
    "SubmitCounts",
    "SweepRow",
    "SweepView",
]
