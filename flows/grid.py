"""`hacpo-grid`: expands a grid into cells, queues them, waits for them, reports."""

import time
from collections.abc import Iterator
from typing import Any

from prefect import flow, get_run_logger
from prefect.client.schemas.objects import FlowRun, State
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Failed

from flows.feed import Feeder, NobodyTakesCellsError
from flows.log import Log
from flows.parameters import AtLeastOne, Methods, Name, Override, Seeds, Text
from flows.reports import link_mlflow, publish_report
from flows.runs import AWAY, rename
from hacpo.cells import expand
from hacpo.errors import HacpoError, RegistryError
from hacpo.places import default_registry_url, home
from hacpo.preflight import check_grid, preflight, tracking_uri
from hacpo.presets import load_grid
from hacpo.registry import CANCEL, Registry, SweepView

LOOK_SECONDS = 1.5
RETRY_SECONDS = 3.0
PATIENCE_SECONDS = 900.0
"""How long registry and Prefect may be away."""


def cancel_sweep(flow: Any, flow_run: FlowRun, state: State[Any]) -> None:
    """Hook of a cancelled grid: its sweep is cancelled, as by `hacpo sweep cancel`."""
    with Registry.open(default_registry_url()) as registry:
        for sweep in registry.sweeps():
            if sweep.prefect_flow_run_id == str(flow_run.id):
                registry.want(sweep.name, CANCEL)


@flow(name="hacpo-grid", retries=0, persist_result=False, on_cancellation=[cancel_sweep])
def hacpo_grid(
    config: Text = "configs/embedded/grid.yaml",
    methods: Methods | None = None,
    seeds: Seeds | None = None,
    steps: AtLeastOne | None = None,
    overrides: list[Override] | None = None,
    name: Name | None = None,
    priority: int | None = None,
    owner: str = "",
    runs: AtLeastOne | None = None,
    cells_per_run: AtLeastOne = 12,
    offline: bool = False,
    many: bool = False,
) -> State[Any]:
    """Run a table of trainings; cells that the registry knows as done are not run again.

    Args:
        config: Grid file, relative to the checkout.
        methods: Instead of the file's: initial, grpo, gspo, gspo_x2 (gspo_xN), naive, hacpo.
        seeds: Instead of the file's.
        steps: Instead of the file's.
        overrides: Further settings, each dotted.key=value.
        name: Of the sweep, instead of the file's.
        priority: Sweeps of a larger one are served first; default 0.
        owner: Who asks; owners take turns.
        runs: Cells of this sweep that run at the same time, at most.
        cells_per_run: Cells that one experiment run works on, one after another.
        offline: Don't contact MLflow.
        many: Yes, more than 10,000 cells.
    """
    log = get_run_logger()
    changed = {"grid.methods": methods, "grid.seeds": seeds, "steps": steps, "name": name}
    changes = [f"{key}={value}" for key, value in changed.items() if value is not None]
    try:
        grid = load_grid(config, [*changes, *(overrides or [])])
        check_grid(grid, confirmed=many, how="the parameter many=true")
        cells = expand(grid, home())
        preflight(grid, home(), offline=offline)
        with Registry.open(default_registry_url()) as registry:
            counts = registry.register_sweep(
                grid.name,
                owner=owner,
                config=grid.model_dump(mode="json"),
                cells=cells,
                prefect_flow_run_id=flow_run.get_id(),
                priority=priority,
                offline=offline,
                max_running=runs,
            )
            log.info("sweep %s: %s", grid.name, counts)
            rename(flow_run.get_id(), f"sweep {grid.name}")
            feeder = Feeder(registry=registry, cells_per_run=cells_per_run, log=log)
            for view in _views(registry, grid.name, feeder, log):
                link_mlflow(registry, view, tracking_uri(grid))
            feeder.cancel_waiting()
            view = registry.sweep(grid.name)
            publish_report(registry, view, tracking_uri(grid), log)
            return _end(view)
    except HacpoError as error:
        log.error("%s", error)
        return Failed(message=str(error))


def _views(registry: Registry, sweep: str, feeder: Feeder, log: Log) -> Iterator[SweepView]:
    """The sweep at every look, the last time when it is finished."""
    registry.wait_for_database(PATIENCE_SECONDS)
    well = time.monotonic()
    while True:
        try:
            view = registry.sweep(sweep)
            if view.counts.unfinished:
                feeder.look()
            well = time.monotonic()
        except NobodyTakesCellsError:
            raise
        except (RegistryError, *AWAY) as error:
            if time.monotonic() - well > PATIENCE_SECONDS:
                raise
            log.warning("asking again in %.0f s: %s", RETRY_SECONDS, error)
            time.sleep(RETRY_SECONDS)
            continue
        yield view
        if not view.counts.unfinished:
            return
        time.sleep(LOOK_SECONDS)


def _end(view: SweepView) -> State[Any]:
    failed = [f"{cell.label} ({cell.error})" for cell in view.cells if cell.state == "failed"]
    if view.state == "cancelled":
        return Cancelled(message=f"cancelled with {view.counts.done} of {len(view.cells)} done")
    if failed:
        return Failed(message=f"{len(failed)} of {len(view.cells)} cells: {'; '.join(failed)}")
    return Completed(message=f"{len(view.cells)} cells done")
