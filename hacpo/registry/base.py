"""The contract of the registry, and the plain data that it hands out.

**Work.** A sweep is a named list of cells; a cell is one training, known by its key. Equal keys are
one row, so sweeps share cells and no work is done twice. Each sweep keeps its own label, method
column and combination for a shared cell.

**States of a cell.** queued -> running -> done | failed. A running cell has a lease; once the lease
has passed, the cell counts as queued again (or as failed, kind `lost`, when no attempts are left),
in every view and for the next claim. Submitting a sweep again puts its failed cells back to queued.

**Pausing, cancelling.** A sweep is wanted (`run`), paused or cancelled. A cell is worked on while
any of its sweeps wants it; otherwise it is not claimed, and shows as paused or cancelled while it
waits. Nothing is written into cells, so resuming a sweep is one update. Who holds a cell that is no
longer wanted learns it from `heartbeat` and hands it back at its next step boundary.

**Order.** `claim` serves sweeps by priority (larger first), then the owner with the fewest running
cells, then age; within a sweep its own order. A failed attempt is repeated after a pause that
doubles with each.

**Attempts.** A claim takes one cell, raises its fencing token and opens a run. It is atomic: of any
number of processes exactly one gets the cell. What a claim's holder writes is accepted only while
its token is the cell's; otherwise `LeaseLostError`, and the holder must stop. Each accepted write
renews the lease, so a heartbeat is needed only between writes.

**Facts.** Steps, evaluations, checkpoints and costs belong to the cell, not to the attempt: a
replayed step overwrites itself. Steps are numbered from 0; after step 0 `steps_done` is 1.

**Transactions.** Every method is one transaction: it happens whole or not at all.

**Errors.** Database trouble is a `RegistryError` of one line that names the registry without its
password.

**Processes.** A Registry may be used by several threads. A spawned process opens its own; do not
carry one across fork.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

QUEUED = "queued"
RUNNING = "running"
DONE = "done"
FAILED = "failed"
CANCELLED = "cancelled"
"""Of a run that was released; its cell is queued again."""
LOST = "lost"
"""The error kind of an attempt whose lease passed."""

RUN = "run"
PAUSE = "pause"
CANCEL = "cancel"
STOP = "stop"
"""What a holder is asked for; the last is for its attempt alone, others may take the cell."""
PAUSED = "paused"
"""The state that people see of a queued cell that no sweep wants now; or CANCELLED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCounts:
    """Distinct cells by state."""

    queued: int = 0
    """Claimable, those with a passed lease included."""
    running: int = 0
    paused: int = 0
    cancelled: int = 0
    done: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        return self.waiting + self.running + self.done + self.failed

    @property
    def waiting(self) -> int:
        """Neither running nor ended, whether or not anybody wants them now."""
        return self.queued + self.paused + self.cancelled

    @property
    def unfinished(self) -> int:
        """What will still change, of itself or once the sweep is resumed."""
        return self.queued + self.running + self.paused


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitCounts:
    """What a submission found, in distinct cells."""

    new: int
    queued: int
    """Already waiting, paused and cancelled ones included."""
    running: int
    done: int
    failed: int
    """Had failed; now queued again with all their attempts."""

    @property
    def total(self) -> int:
        return self.new + self.queued + self.running + self.done + self.failed

    def __str__(self) -> str:
        """`12 cells: 3 new, 2 running, 7 done`."""
        told = {
            "new": self.new,
            "queued already": self.queued,
            "running": self.running,
            "done": self.done,
            "failed before and queued again": self.failed,
        }
        parts = ", ".join(f"{count} {what}" for what, count in told.items() if count)
        return f"{self.total} cells: {parts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to work on one cell; pass it to every write."""

    cell_key: str
    cell_id: int
    run_db_id: int
    attempt: int
    """From 1; a released attempt is not counted."""
    token: int
    """Rises at every claim of the cell."""
    holder: str
    lease_seconds: float
    label: str
    config: dict[str, Any]
    agents: dict[str, dict[str, str]]
    """agent -> {model, identity}, in the order of the submission."""
    sweep: str
    """For which it was claimed; empty if the cell was asked for by its key."""
    offline: bool
    """That sweep does not contact MLflow."""
    mlflow_run_id: str | None
    """Of an earlier attempt, to be continued."""
    mlflow_agent_run_ids: dict[str, str]
    """agent -> its MLflow child run of an earlier attempt; empty at first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One sweep in the list of sweeps."""

    name: str
    owner: str
    created: datetime
    submitted: datetime
    """The latest submission."""
    priority: int
    wanted: str
    """run, pause or cancel."""
    offline: bool
    prefect_flow_run_id: str | None
    mlflow_experiment_url: str | None
    counts: StateCounts

    @property
    def state(self) -> str:
        """Of the sweep as a whole: cancelled, paused, running, queued, failed or done."""
        counts = self.counts
        if self.wanted != RUN and counts.waiting + counts.running:
            return CANCELLED if self.wanted == CANCEL else PAUSED
        if counts.running:
            return RUNNING
        if counts.waiting:
            return QUEUED
        return FAILED if counts.failed else DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRow:
    """A cell with a lease that has not passed."""

    key: str
    label: str
    holder: str
    host: str
    pid: int
    prefect_flow_run_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A cell that waits for a process."""

    key: str
    label: str
    sweep: str
    """For which it would be claimed."""
    owner: str
    priority: int
    gpus: int
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentView:
    """Where one agent of a cell stands."""

    agent: str
    model: str
    identity: str
    mlflow_run_id: str | None
    reward: float | None
    """Mean reward of the latest step; None before the first, and if nothing was graded."""
    reward_recent: float | None
    """Over the last five steps."""
    capability: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellView:
    """Where a cell stands; label, method and combination are those of the sweep asked for."""

    key: str
    label: str
    method: str
    combination: str
    seed: int
    state: str
    stale: bool
    """Its lease passed and nobody has claimed it again: the holder vanished."""
    attempts: int
    max_attempts: int
    steps_done: int
    steps_total: int
    """0 until the run has told it."""
    activity: str
    rollouts: int
    """Sampled so far, over all agents."""
    rollouts_planned: int
    seconds_per_step: float | None
    """Over the last five steps."""
    agents: dict[str, AgentView]
    error: str | None
    error_kind: str | None
    holder: str | None
    """While it runs, and if stale."""
    gpus: int
    not_before: datetime | None
    """A failed attempt is not repeated earlier."""
    host: str | None
    """This and the following: of the latest attempt."""
    pid: int | None
    device: str | None
    code_version: str | None
    heartbeat_age: float | None
    """Seconds; while it runs, and if stale."""
    started: datetime | None
    ended: datetime | None
    prefect_flow_run_id: str | None
    mlflow_run_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepView(SweepRow):
    """A sweep with its cells, in the order of the submission."""

    config: dict[str, Any]
    cells: list[CellView]


class SharedCurves(NamedTuple):
    """Cells of a sweep whose curves are in the MLflow experiment of an earlier one."""

    sweep: str
    """The earlier one."""
    cells: int
    experiment_url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One attempt at a cell."""

    run_db_id: int
    attempt: int
    state: str
    """running, done, failed, or cancelled (released)."""
    holder: str
    host: str
    pid: int
    device: str | None
    code_version: str
    prefect_flow_run_id: str | None
    mlflow_run_id: str | None
    started: datetime
    heartbeat: datetime
    ended: datetime | None
    error: str | None
    error_kind: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRow:
    """A complete checkpoint."""

    step: int
    path: str
    bytes: int
    sha256: str
    created: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CellDetail:
    """Everything about one cell but its steps and scores."""

    cell: CellView
    config: dict[str, Any]
    sweeps: list[str]
    runs: list[RunView]
    checkpoints: list[CheckpointRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One agent's step."""

    step: int
    agent: str
    reward_mean: float
    capability: float
    rollouts: int
    tokens: int
    seconds: float
    """Of the whole step, all agents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRow:
    """One evaluation, named as the sweep names its cell."""

    cell_key: str
    label: str
    method: str
    seed: int
    combination: str
    agent: str
    identity: str
    model: str
    step: int
    task: str
    protocol: str
    mean: float
    counts: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """What one agent of a cell cost so far, named as the sweep names its cell."""

    cell_key: str
    label: str
    method: str
    seed: int
    combination: str
    agent: str
    identity: str
    model: str
    rollouts_generated: int
    rollouts_consumed: int
    tokens: int
    device_seconds: float
