"""A sweep's report as a Prefect artifact and in MLflow, whose page is a link in the registry."""

import os
from typing import Any

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
    key, page = artifact_key("report", view.name), f"{report}\n\n{cells}"
    if _newest(key) != [page]:  # the grid's own run may have published it
        create_markdown_artifact(key=key, markdown=page)
    address = uri or os.environ.get("MLFLOW_TRACKING_URI")
    if address and not view.offline and view.counts.done:
        try:
            publish(registry, view.name, address)
        except HacpoError as error:
            log.warning("the report is not in MLflow: %s", error)


def _newest(key: str) -> list[Any]:
    """What the newest artifact of a key says, if there is one."""
    which = ArtifactFilter(key=ArtifactFilterKey(any_=[key]))
    with get_client(sync_client=True) as client:
        found = client.read_artifacts(
            artifact_filter=which, sort=ArtifactSort.CREATED_DESC, limit=1
        )
    return [artifact.data for artifact in found]


def link_mlflow(registry: Registry, view: SweepRow, uri: str | None) -> None:
    """Note the experiment's page as soon as MLflow has it."""
    if view.mlflow_experiment_url is None and (view.counts.running or view.counts.done):
        url = mlflow_experiment_url(view.name, uri)
        if url is not None:
            registry.link_sweep(view.name, mlflow_experiment_url=url)
