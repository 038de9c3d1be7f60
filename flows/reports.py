"""A sweep's report as a Prefect artifact, and its page in MLflow as a link in the registry."""

from prefect.artifacts import create_markdown_artifact

from flows.links import artifact_key, cell_table, mlflow_experiment_url
from hacpo.registry import Registry, SweepRow, SweepView


def publish_report(registry: Registry, view: SweepView) -> None:
    """The table of methods and agents, and every cell with its links."""
    from hacpo.report import sweep_report  # not free to load

    report = sweep_report(registry, view.name).markdown()
    create_markdown_artifact(
        key=artifact_key("report", view.name), markdown=f"{report}\n\n{cell_table(view)}"
    )


def link_mlflow(registry: Registry, view: SweepRow, uri: str | None) -> None:
    """Note the experiment's page as soon as MLflow has it."""
    if view.mlflow_experiment_url is None and (view.counts.running or view.counts.done):
        url = mlflow_experiment_url(view.name, uri)
        if url is not None:
            registry.link_sweep(view.name, mlflow_experiment_url=url)
