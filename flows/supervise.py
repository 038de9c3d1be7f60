"""Keeps enough experiment runs alive for a sweep, until every cell is done or has failed."""

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import httpx
from prefect.client.schemas.objects import FlowRun

from flows.runs import is_waiting, live_runs, runs_to_submit, submit_run
from hacpo.errors import RegistryError
from hacpo.registry import Registry, SweepView

POLL_SECONDS = 1.5
RETRY_SECONDS = 3.0
RETRIES = 40
SILENT_SECONDS = 60.0
"""Without a worker for so long, the log says so."""
LOST_SECONDS = 300.0
"""A run without a cell for so long is not counted on: its worker was killed with it."""
FRUITLESS = 3
"""Runs that end without having taken a cell, before the sweep is given up."""


class NobodyTakesCellsError(RuntimeError):
    """Experiment runs start and end, but the sweep's cells stay queued."""


@dataclass(kw_only=True)
class Supervisor:
    """Supervises one sweep. What it remembers only saves time: another may take over any moment."""

    registry: Registry
    sweep: str
    runs: int
    """Experiment runs at the same time, at most."""
    cells_per_run: int
    offline: bool
    log: "logging.Logger | logging.LoggerAdapter[logging.Logger]"
    _seen: dict[str, float] = field(default_factory=dict)
    """Live run -> when it last had a cell, or was first seen."""
    _fruitless: int = 0
    _taken: float = field(default_factory=time.monotonic)
    """When a worker last had one of the runs."""

    def views(self) -> Iterator[SweepView]:
        """The sweep at every look, the last time when it is finished."""
        failures = 0
        while True:
            try:
                view = self.registry.sweep(self.sweep)
                if view.counts.unfinished:
                    self._look(view, time.monotonic())
                failures = 0
            except (RegistryError, httpx.HTTPError) as error:
                failures += 1
                if failures == RETRIES:
                    raise
                self.log.warning("asking again in %.0f s: %s", RETRY_SECONDS, error)
                time.sleep(RETRY_SECONDS)
                continue
            yield view
            if not view.counts.unfinished:
                return
            time.sleep(POLL_SECONDS)

    def _look(self, view: SweepView, now: float) -> None:
        live = live_runs(self.sweep)
        holding = {cell.prefect_flow_run_id for cell in view.cells if cell.state == "running"}
        vanished = {cell.prefect_flow_run_id for cell in view.cells if cell.stale}
        took = {cell.prefect_flow_run_id for cell in view.cells}
        for ended in self._seen.keys() - live.keys():
            del self._seen[ended]
            self._fruitless = 0 if ended in took else self._fruitless + 1
        if self._fruitless >= FRUITLESS and not view.counts.running:
            raise NobodyTakesCellsError(
                f"{self._fruitless} experiment runs ended without taking one of the "
                f"{view.counts.queued} queued cells: see the logs of sweep {self.sweep}'s runs"
            )
        for run in live:
            busy = run in holding or is_waiting(live[run])
            self._seen[run] = now if busy else self._seen.get(run, now)
        alive = {r for r, at in self._seen.items() if r not in vanished and now - at < LOST_SECONDS}
        wanted = {"queued": view.counts.queued, "idle": len(alive - holding), "alive": len(alive)}
        for _ in range(runs_to_submit(**wanted, runs=self.runs)):
            run = submit_run(self.sweep, limit=self.cells_per_run, offline=self.offline)
            self._seen[run] = now
        self._warn_without_worker(live, now)

    def _warn_without_worker(self, live: Mapping[str, FlowRun], now: float) -> None:
        if not live or not all(map(is_waiting, live.values())):
            self._taken = now
        elif now - self._taken > SILENT_SECONDS:
            self._taken = now + 9 * SILENT_SECONDS  # say it again after ten times as long
            self.log.warning(
                "no worker has taken an experiment run for %.0f s: start one with "
                "`prefect worker start --pool hacpo-cells`",
                SILENT_SECONDS,
            )
