"""Text files of a whole experiment, such as a sweep's report, in a run of their own."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from hacpo.errors import ServiceError
from hacpo.tracking.runs import experiment_id
from hacpo.tracking.sender import connect
from hacpo.tracking.server import check_server, public

_TAG = "hacpo.files"


def log_files(uri: str, *, experiment: str, run_name: str, files: Mapping[str, str]) -> str:
    """Put files into an experiment's run of this name, which is made if there is none.

    Returns:
        The run's id.
    Raises:
        ConfigError: neither an http(s):// nor a sqlite:/// address.
        ServiceError: MLflow does not answer, or refuses.
    """
    check_server(uri)
    client = connect(uri)
    from mlflow.exceptions import MlflowException

    assert "'" not in run_name, run_name
    try:
        where = experiment_id(client, experiment, uri)
        found = client.search_runs([where], f"tags.`{_TAG}` = '{run_name}'", max_results=1)
        run = (
            found[0]
            if found
            else client.create_run(where, run_name=run_name, tags={_TAG: run_name})
        )
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = Path(folder) / name
                path.write_text(text, encoding="utf-8")
                client.log_artifact(run.info.run_id, str(path))
        if run.info.status == "RUNNING":
            client.set_terminated(run.info.run_id)
    except MlflowException as error:
        reason = str(error).partition("\n")[0]
        raise ServiceError(f"MLflow at {public(uri)} does not take the files: {reason}") from error
    return str(run.info.run_id)
