"""Keeps experiment runs coming while cells are queued. It remembers nothing that matters: any
number of grids and reconcilers may feed the same pool.

An experiment run claims its cells itself, from all sweeps and in the registry's order, so it does
not matter for whom it was submitted. Runs are created only as slots free up: as many as there are
slots while nothing runs, then one at a time, which waits for the next free slot.
"""

import os
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

from prefect.client.schemas.objects import FlowRun, StateType

from flows.log import Log
from flows.runs import (
    changed_at,
    end_run,
    ended_runs,
    gpus_of,
    is_waiting,
    live_runs,
    silent_seconds,
    submit_run,
)
from hacpo.errors import HacpoError
from hacpo.registry import Registry

LOST_SECONDS = 300.0
"""A run that began and has shown no sign in its cells for so long is not counted on."""
SILENT_SECONDS = 60.0
"""Without a worker that takes a run for so long, the log says so; again after ten times that."""
FRUITLESS = 3
"""Runs that ended lately without having taken a cell: no more are submitted for a while."""
FRUITLESS_SECONDS = 600.0


class NobodyTakesCellsError(HacpoError):
    """Experiment runs start and end, but cells stay queued."""


def slots() -> int:
    """Cells that this machine works on at the same time."""
    return int(os.environ.get("HACPO_SLOTS") or 2)


@dataclass(kw_only=True)
class Feeder:
    """Looks at registry and Prefect, and submits what is missing."""

    registry: Registry
    cells_per_run: int
    log: Log
    _quiet_until: float = field(default_factory=lambda: time.monotonic() + SILENT_SECONDS)

    def look(self) -> None:
        """One look; cheap if nothing is queued.

        Raises:
            NobodyTakesCellsError: the latest runs all ended without taking a cell.
            RegistryError, or of `flows.runs.AWAY`: ask again later.
        """
        queued = self.registry.queued_by_gpus()
        if not queued:
            return
        live = live_runs()
        held = {cell.prefect_flow_run_id for cell in self.registry.held()}
        busy = sum(str(run.id) in held for run in live)
        idle = Counter(gpus_of(run) for run in self._idle(live, held))
        for gpus, cells in queued.items():
            wanted = 1 if busy else slots()
            missing = min(wanted, cells) - idle[gpus]
            if missing > 0 and not busy:
                self._check_fruitful(sum(queued.values()))
            for _ in range(missing):
                submit_run(gpus, limit=self.cells_per_run)
        self._warn_without_worker(live)

    def cancel_waiting(self) -> None:
        """End runs that no worker has taken yet, when no cell is left for them."""
        if not self.registry.queued_by_gpus():
            for run in live_runs():
                if run.state_type == StateType.SCHEDULED:
                    end_run(run.id, why="no cell is left", cancelled=True)

    def _idle(self, live: list[FlowRun], held: set[str | None]) -> list[FlowRun]:
        """Live runs without a cell that will take one: not those whose process is gone."""
        free = [run for run in live if str(run.id) not in held]
        signs = self.registry.last_sign_of([str(run.id) for run in free])
        return [
            run
            for run in free
            if run.state_type != StateType.CANCELLING
            and (
                run.state_type == StateType.SCHEDULED
                or silent_seconds(run, signs.get(str(run.id)), limit=LOST_SECONDS) < LOST_SECONDS
            )
        ]

    def _check_fruitful(self, queued: int) -> None:
        latest = ended_runs(FRUITLESS)
        now = datetime.now(UTC)
        signs = self.registry.last_sign_of([str(run.id) for run in latest])
        fruitless = [
            run
            for run in latest
            if run.state_type != StateType.CANCELLED
            and str(run.id) not in signs
            and run.start_time is not None  # it began, but not for want of cells:
            and run.state_type != StateType.COMPLETED
            and (now - changed_at(run)).total_seconds() < FRUITLESS_SECONDS
        ]
        if len(fruitless) == FRUITLESS:
            raise NobodyTakesCellsError(
                f"the latest {FRUITLESS} experiment runs ended without taking one of the {queued} "
                f"queued cells ({fruitless[0].state_name}: {_message(fruitless[0])}); see their "
                "logs in Prefect"
            )

    def _warn_without_worker(self, live: list[FlowRun]) -> None:
        now = time.monotonic()
        if not live or not all(map(is_waiting, live)):
            self._quiet_until = now + SILENT_SECONDS
        elif now > self._quiet_until:
            self._quiet_until = now + 10 * SILENT_SECONDS
            self.log.warning(
                "no worker has taken an experiment run for %.0f s: start one with "
                "`prefect worker start --pool hacpo-cells`",
                SILENT_SECONDS,
            )


def _message(run: FlowRun) -> str:
    return (run.state.message if run.state else None) or "no message"
