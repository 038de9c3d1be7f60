"""A cell's runs in MLflow: one parent, one child for each agent, found by tags or created."""

from pathlib import Path
from typing import Any, NamedTuple

from hacpo.tracking.spool import Event


class Runs(NamedTuple):
    """MLflow's ids."""

    experiment: str
    parent: str
    agents: dict[str, str]
    created: bool
    """Whether any of them is new."""


def open_runs(client: Any, start: Event, uri: str) -> Runs:
    """The runs that a start event names.

    They are looked up even if their ids were known: a crash may have come between creating a run
    and writing its id down, and the server may have lost or never had them.

    Args:
        client: an MlflowClient.
        start: the start event.
        uri: the client's address.
    """
    experiment = experiment_id(client, start["experiment"], uri)
    tags = start["tags"]
    of_cell = _runs_of_cell(client, experiment, tags)
    found = _of_this_run(of_cell, tags)
    known = {
        (run.data.tags.get("mlflow.parentRunId"), run.data.tags.get("hacpo.agent")): run.info.run_id
        for run in reversed(found)  # of several, the oldest
    }
    created = False

    def identify(name: str, agent: str | None, parent: str | None, own: dict[str, str]) -> str:
        nonlocal created
        run_id = known.get((parent, agent))
        if run_id is None:
            created = True
            time = start["time"]
            run = client.create_run(experiment, start_time=time, tags=own, run_name=name)
            run_id = run.info.run_id
        return str(run_id)

    parent = identify(start["run_name"], None, None, tags)
    if created:  # what `--fresh` replaced stays, and says so
        for run in of_cell:
            if run not in found and "hacpo.superseded_by" not in run.data.tags:
                client.set_tag(run.info.run_id, "hacpo.superseded_by", parent)
    agents = {
        agent: identify(
            child["run_name"],
            agent,
            parent,
            {**tags, **child["tags"], "mlflow.parentRunId": parent},
        )
        for agent, child in start["agents"].items()
    }
    if created:  # a request whose answer came too late was sent twice, and so created two
        found = _of_this_run(_runs_of_cell(client, experiment, tags), tags)
    for run in found:
        if run.info.run_id not in (parent, *agents.values()):
            client.delete_run(run.info.run_id)
    return Runs(experiment, parent, agents, created)


def _of_this_run(runs: list[Any], tags: dict[str, str]) -> list[Any]:
    """Without those of a folder that was forgotten and begun again."""
    return [run for run in runs if run.data.tags.get("hacpo.run") == tags["hacpo.run"]]


def _runs_of_cell(client: Any, experiment: str, tags: dict[str, str]) -> list[Any]:
    """A cell's runs for a sweep, of every attempt, the oldest first."""
    return [
        run
        for run in client.search_runs(
            [experiment],
            filter_string=f"tags.`hacpo.cell` = '{tags['hacpo.cell']}'",
            order_by=["attributes.start_time ASC"],
        )
        if run.data.tags.get("hacpo.sweep") == tags.get("hacpo.sweep")
    ]


def experiment_id(client: Any, name: str, uri: str) -> str:
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            return str(client.create_experiment(name, **_artifacts_of(uri, name)))
        except MlflowException:  # another process was faster, or it is a real error
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                raise
    return str(experiment.experiment_id)


def _artifacts_of(uri: str, experiment: str) -> dict[str, str]:
    """Beside a sqlite file; MLflow would take the working directory."""
    if not uri.startswith("sqlite:///"):
        return {}
    folder = Path(uri.removeprefix("sqlite:///")).absolute().parent
    return {"artifact_location": (folder / "mlartifacts" / experiment).as_uri()}
