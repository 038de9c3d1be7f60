"""`hacpo-grid`: expands a grid into cells, queues them, supervises the experiments, reports."""

import os
from typing import Any

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from flows.links import artifact_key, cell_table, mlflow_experiment_url
from flows.parameters import AtLeastOne, Methods, Override, Seeds, Text
from flows.runs import cancel_experiments, cancel_waiting
from flows.supervise import NobodyTakesCellsError, Supervisor
from hacpo.cells import expand
from hacpo.errors import HacpoError
from hacpo.places import default_registry_url, home
from hacpo.preflight import preflight, tracking_uri
from hacpo.presets import load_grid
from hacpo.registry import Registry, SweepView


@flow(name="hacpo-grid", retries=0, persist_result=False, on_cancellation=[cancel_experiments])
def hacpo_grid(
    config: Text = "configs/embedded/grid.yaml",
    methods: Methods | None = None,
    seeds: Seeds | None = None,
    steps: AtLeastOne | None = None,
    overrides: list[Override] | None = None,
    runs: AtLeastOne | None = None,
    cells_per_run: AtLeastOne = 12,
    owner: str = "",
    offline: bool = False,
) -> State[Any]:
    """Run a table of trainings; cells that the registry knows as done are not run again.

    Args:
        config: Grid file, relative to the checkout.
        methods: Instead of the file's: initial, grpo, gspo, gspo_x2 (gspo_xN), naive, hacpo.
        seeds: Instead of the file's.
        steps: Instead of the file's.
        overrides: Further settings, each dotted.key=value.
        runs: Experiment runs at the same time; default: HACPO_SLOTS, else 2.
        cells_per_run: Cells that one experiment run works on, one after another.
        owner: Who asks; shown by `hacpo status`.
        offline: Don't contact MLflow.
    """
    log = get_run_logger()
    changed = {"grid.methods": methods, "grid.seeds": seeds, "steps": steps}
    changes = [f"{key}={value}" for key, value in changed.items() if value is not None]
    try:
        grid = load_grid(config, [*changes, *(overrides or [])])
        cells = expand(grid, home())
        preflight(grid, home(), offline=offline)
        with Registry.open(default_registry_url()) as registry:
            counts = registry.register_sweep(
                grid.name,
                owner=owner,
                config=grid.model_dump(mode="json"),
                cells=cells,
                prefect_flow_run_id=flow_run.get_id(),
            )
            log.info("sweep %s: %d cells, %d done", grid.name, counts.total, counts.done)
            supervisor = Supervisor(
                registry=registry,
                sweep=grid.name,
                runs=runs or int(os.environ.get("HACPO_SLOTS", 2)),
                cells_per_run=cells_per_run,
                offline=offline,
                log=log,
            )
            for view in supervisor.views():
                _link(registry, view, tracking_uri(grid))
            cancel_waiting(grid.name)
            return _report(registry, registry.sweep(grid.name))
    except (HacpoError, NobodyTakesCellsError) as error:
        log.error("%s", error)
        return Failed(message=str(error))


def _link(registry: Registry, view: SweepView, uri: str | None) -> None:
    """Note the experiment's page as soon as MLflow has it."""
    if view.mlflow_experiment_url is None and (view.counts.running or view.counts.done):
        url = mlflow_experiment_url(view.name, uri)
        if url is not None:
            registry.link_sweep(view.name, mlflow_experiment_url=url)


def _report(registry: Registry, view: SweepView) -> State[Any]:
    from hacpo.report import sweep_report  # not free to load

    report = sweep_report(registry, view.name).markdown()
    create_markdown_artifact(
        key=artifact_key("report", view.name), markdown=f"{report}\n\n{cell_table(view)}"
    )
    failed = [f"{cell.label} ({cell.error})" for cell in view.cells if cell.state == "failed"]
    if failed:
        return Failed(message=f"{len(failed)} of {len(view.cells)} cells: {'; '.join(failed)}")
    return Completed(message=f"{len(view.cells)} cells done")
