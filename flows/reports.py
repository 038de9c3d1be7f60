"""A sweep's report as a Prefect artifact and in MLflow, whose page is a link in the registry."""

import os

from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.client.schemas.sorting import ArtifactSort

from flows.links import artifact_key, cell_table, mlflow_experiment_url
from flows.log import Log
from hacpo.errors import HacpoError
from hacpo.registry import Registry, SweepRow, SweepView


def publish_report(
    registry: Registry,
    view: SweepView,
    uri: str | None,
    log: Log,
) -> None:
    """The tables with every cell's links in Prefect; the whole page as a file in MLflow.

    Args:
        registry: open.
        view: the sweep.
        uri: MLflow's address; default: MLFLOW_TRACKING_URI.
        log: told if MLflow did not take it.
    """
    from hacpo.report import sweep_report  # not free to load
    from hacpo.report.publish import publish

    report = sweep_report(registry, view.name).markdown()
    cells = cell_table(view, registry.shared_curves(view.name))
    create_markdown_artifact(key=artifact_key("report", view.name), markdown=f"{report}\n\n{cells}")
    address = uri or os.environ.get("MLFLOW_TRACKING_URI")
    if address and not view.offline and view.counts.done:
        try:
            publish(registry, view.name, address)
        except HacpoError as error:
            log.warning("the report is not in MLflow: %s", error)


def is_reported(view: SweepView) -> bool:
    """Whether Prefect has a report on all that the sweep has come to."""
    key = ArtifactFilterKey(any_=[artifact_key("report", view.name)])
    with get_client(sync_client=True) as client:
        found = client.read_artifacts(
            artifact_filter=ArtifactFilter(key=key), sort=ArtifactSort.CREATED_DESC, limit=1
        )
    latest = max([view.submitted, *(cell.ended for cell in view.cells if cell.ended)])
    return any(report.created is not None and report.created > latest for report in found)


def link_mlflow(registry: Registry, view: SweepRow, uri: str | None) -> None:
    """Note the experiment's page as soon as MLflow has it."""
    if view.mlflow_experiment_url is None and (view.counts.running or view.counts.done):
        url = mlflow_experiment_url(view.name, uri)
        if url is not None:
            registry.link_sweep(view.name, mlflow_experiment_url=url)
