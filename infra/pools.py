"""`python infra/pools.py`: makes the work pools at PREFECT_API_URL, or brings them up to date.

A pool's runs start by `python -m flows.slots`, in the `python` that the worker finds on its PATH.
The rest is the template of Prefect's process worker.
"""

from typing import Any

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.exceptions import ObjectNotFound
from prefect.workers.process import ProcessWorker

# Grids hold no slot, but outlive a restart of their worker like their experiments.
GPUS = {"hacpo-control": 0, "hacpo-cells": 1}


def template(gpus: int) -> dict[str, Any]:
    """The process worker's, with our command and how many GPUs (else CPU slots) a run gets."""
    stock = ProcessWorker.get_default_base_job_template()
    stock["job_configuration"]["command"] = (
        "python -m flows.slots {{ gpus }} -- python -m prefect.engine"
    )
    variables = stock["variables"]["properties"]
    del variables["command"]  # a run with another one would take GPUs that are not its own
    variables["gpus"] = {
        "type": "integer",
        "title": "GPUs",
        "description": "GPUs (on a machine without: CPU slots) that a run has to itself.",
        "default": gpus,
        "minimum": 0,
    }
    return stock


def main() -> None:
    with get_client(sync_client=True) as client:
        for name, gpus in GPUS.items():
            wanted = template(gpus)
            try:
                found = client.read_work_pool(name).base_job_template
            except ObjectNotFound:
                client.create_work_pool(
                    WorkPoolCreate(name=name, type="process", base_job_template=wanted)
                )
                continue
            if found != wanted:
                client.update_work_pool(name, WorkPoolUpdate(base_job_template=wanted))


if __name__ == "__main__":
    main()
