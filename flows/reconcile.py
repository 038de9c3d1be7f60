"""`hacpo-reconcile`: on a schedule, feeds the pool and repairs what Prefect leaves behind.

The registry's leases decide who works on what; Prefect's states are tidied to match. Sweeps without
a grid's run (`hacpo sweep submit`) get their experiment runs and their report here, and people are
told of sweeps that end or fail.
"""

import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from prefect import flow, get_run_logger
from prefect.client.schemas.objects import State, StateType
from prefect.events import emit_event
from prefect.states import Completed

from flows.feed import LOST_SECONDS, Feeder
from flows.log import Log
from flows.parameters import AtLeastOne
from flows.reports import link_mlflow, publish_report
from flows.running import live_runs as live_here
from flows.runs import (
    AWAY,
    changed_at,
    drop_late,
    end_run,
    is_running,
    live_runs,
    pending_grids,
    reschedule,
    silent_seconds,
)
from hacpo.deliver import deliver_waiting
from hacpo.errors import HacpoError, ServiceError
from hacpo.notify import notify
from hacpo.places import default_registry_url, home
from hacpo.registry import Registry, SweepView

LOOK_SECONDS = 5.0
LOOKS_BETWEEN_TIDYING = 12
PENDING_SECONDS = 600.0
"""A run that a worker took, without a sign of it for so long: the worker is gone, or never got to
know that it has it. Longer than a run's own patience with a server that is away."""
CANCELLING_SECONDS = 60.0
"""A cancelled run that its worker has not ended for so long is asked through the registry."""


@flow(name="hacpo-reconcile", retries=0, persist_result=False)
def hacpo_reconcile(seconds: AtLeastOne = 110, cells_per_run: AtLeastOne = 12) -> State[Any]:
    """Submit experiment runs for queued cells, end dead ones, tell people of sweeps that end.

    Args:
        seconds: Look for so long, every 5 seconds; the schedule starts the next run.
        cells_per_run: Cells that one experiment run works on, one after another.
    """
    log = get_run_logger()
    until = time.monotonic() + seconds
    looks, postponed = 0, set[str]()
    # Beside the looks: a large checkpoint on its way must not keep cells waiting.
    with Registry.open(default_registry_url()) as registry, ThreadPoolExecutor(1) as beside:
        feeder = Feeder(registry=registry, cells_per_run=cells_per_run, log=log)

        def deliver() -> Future[int]:
            return beside.submit(copy_context().run, deliver_waiting)

        delivery = deliver()
        while True:
            try:
                if looks % LOOKS_BETWEEN_TIDYING == 0:
                    drop_late("hacpo-reconcile")
                registry.repair()
                end_dead_runs(registry, log)
                reschedule_lost_grids(log)
                tell_news(registry, log, postponed)
                feeder.look()
            except (HacpoError, *AWAY) as error:
                log.warning("%s", error)
            if delivery.done():
                delivery.result()  # raises what it did not expect
                delivery = deliver()
            looks += 1
            if time.monotonic() + LOOK_SECONDS > until and _ended(delivery):
                delivery.result()
                return Completed(message=f"looked {looks} times")
            time.sleep(LOOK_SECONDS)


def _ended(delivery: "Future[int]") -> bool:
    """Whether a delivery is over, within the pause between two looks."""
    return not wait([delivery], LOOK_SECONDS).not_done


def end_dead_runs(registry: Registry, log: Log) -> None:
    """End experiment runs in Prefect whose process is gone, and stop those that were cancelled."""
    live = [run for run in live_runs() if run.state_type != StateType.SCHEDULED]
    if not live:
        return
    held = {cell.prefect_flow_run_id for cell in registry.held()}
    signs = registry.last_sign_of([str(run.id) for run in live])
    now = datetime.now(UTC)
    for run in live:
        run_id = str(run.id)
        age = (now - changed_at(run)).total_seconds()
        silent = silent_seconds(run, signs.get(run_id), limit=PENDING_SECONDS)
        match run.state_type:
            case StateType.CANCELLING if age > CANCELLING_SECONDS:
                if run_id in held:
                    registry.request_stop(run_id)
                else:
                    end_run(run.id, why="cancelled; its process has ended", cancelled=True)
            case StateType.PENDING if silent > PENDING_SECONDS:
                log.warning("run %s: taken, but no sign of it for %.0f s; ended", run.name, silent)
                end_run(run.id, why="its worker took it and never began it")
            case StateType.RUNNING if run_id not in held and silent > LOST_SECONDS:
                log.warning("run %s: no sign of it for %.0f s; ended", run.name, silent)
                end_run(run.id, why="its process is gone; its cell is queued again")


def reschedule_lost_grids(log: Log) -> None:
    """Start grids again that a worker took and never began: somebody follows them."""
    for run in pending_grids():
        silent = silent_seconds(run, None, limit=PENDING_SECONDS)
        if silent > PENDING_SECONDS and str(run.id) not in {it.id for it in live_here(home())}:
            log.warning("run %s: taken %.0f s ago and never begun; once more", run.name, silent)
            reschedule(run.id)


def tell_news(
    registry: Registry,
    log: Log,
    postponed: set[str],
) -> None:
    """Report sweeps that ended, and tell people of them and of first failures.

    Args:
        registry: open.
        log: the flow run's.
        postponed: sweeps whose news are left for later, since the webhook did not take them.
    """
    for sweep in registry.sweeps():
        if sweep.counts.unfinished and not sweep.offline:
            link_mlflow(registry, sweep, None)
    for news in registry.news():
        if news.sweep.name in postponed:
            continue
        view = registry.sweep(news.sweep.name)
        if not view.counts.unfinished and not is_running(view.prefect_flow_run_id):
            link_mlflow(registry, view, None)
            publish_report(registry, registry.sweep(view.name), None, log)
        emit_event(
            f"hacpo.sweep.{news.what}",
            resource={"prefect.resource.id": f"hacpo.sweep.{view.name}"},
            payload={"owner": view.owner, "failed": view.counts.failed, "done": view.counts.done},
            id=_event_id(view, news.what),
        )
        log.info("sweep %s: %s", view.name, news.what)
        try:
            notify(view, news.what)
        except ServiceError as error:
            log.warning("%s; again with the next run of hacpo-reconcile", error)
            postponed.add(view.name)
        else:
            registry.tell(news)


def _event_id(view: SweepView, what: str) -> UUID:
    """The same each time that these news are told, until the webhook takes them."""
    attempts = sum(cell.attempts for cell in view.cells)
    return uuid5(NAMESPACE_OID, f"{view.name} {what} {view.submitted.isoformat()} {attempts}")
