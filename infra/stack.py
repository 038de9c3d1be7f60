"""The services of one machine: what they are started with, and what their clients must know."""

import os
import shlex

from runs import machine_slots
from service import BIN, CHECKOUT, HOME, Service, number, running, write_private

THREADS = ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB_MAXIMUM")
PREFECT_SERVER = {
    # One write a task run is what most of the server's time goes into.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "2",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "100",
    # How soon hacpo-reconcile follows its predecessor.
    "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "5",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": (
        "prefect.server.concurrency.lease_storage.filesystem"
    ),
    # On SQLite some write is retried at every poll, each time with a traceback in the log.
    "PREFECT_LOGGING_ROOT_LEVEL": "CRITICAL",
}


def services(slots: int = 1) -> list[Service]:
    """In the order of their start; the workers need the servers."""
    prefect, mlflow = ports()
    shared = environment()
    local = ["--host", "127.0.0.1", "--port"]
    # Two processes with two threads each on two cores are many times slower than with one each.
    single = {f"{name}_NUM_THREADS": "1" for name in THREADS} | {"TOKENIZERS_PARALLELISM": "false"}
    working = shared | single
    working |= {"PREFECT_WORKER_QUERY_SECONDS": "2", "PREFECT_LOGGING_EXTRA_LOGGERS": "hacpo"}
    working |= {"PREFECT_CLIENT_MAX_RETRIES": "7"}  # an outage of its server of 4 minutes
    working |= {"HACPO_SLOTS": str(slots), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    # The pools' command is `python ...`, whoever's worker it is.
    working |= {"PATH": os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)])}
    # Under a name that is misspelt, Prefect would make a pool whose runs hold no slot.
    worker = [str(BIN / "prefect"), "worker", "start", "--no-create-pool-if-not-found"]
    worker += ["--type", "process", "--pool"]
    files = HOME / "mlflow"
    return [
        Service(
            "prefect",
            [str(BIN / "prefect"), "server", "start", *local, str(prefect)],
            shared | PREFECT_SERVER,
            prefect,
            "HACPO_PREFECT_PORT",
            "/api/health",
        ),
        Service(
            "mlflow",
            [
                *[str(BIN / "mlflow"), "server", "--workers", "1", *local, str(mlflow)],
                *["--backend-store-uri", f"sqlite:///{files}/mlflow.db"],
                *["--artifacts-destination", str(files / "artifacts")],
            ],
            shared | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            mlflow,
            "HACPO_MLFLOW_PORT",
            "/health",
        ),
        Service("worker-control", [*worker, "hacpo-control"], working),
        Service("worker-cells", [*worker, "hacpo-cells", "--limit", str(slots)], working),
    ]


def slot_count() -> int:
    """Runs at the same time: one a GPU, else HACPO_SLOTS."""
    asked = number("HACPO_SLOTS", os.cpu_count() or 1)
    found = machine_slots(HOME, os.environ)
    return len(found.names) if found.are_gpus else asked


def ports() -> tuple[int, int]:
    """Prefect's and MLflow's: as asked for, else as they run, else the usual ones."""
    asked = {"prefect": ("HACPO_PREFECT_PORT", 4200), "mlflow": ("HACPO_MLFLOW_PORT", 5000)}
    found = [
        number(variable, (running(name) or (0, usual))[1])
        for name, (variable, usual) in asked.items()
    ]
    return found[0], found[1]


def environment() -> dict[str, str]:
    """What clients of these services need, too; kept in HOME/env."""
    prefect, mlflow = ports()
    return {
        "HACPO_HOME": str(HOME),
        "HACPO_CHECKOUT": str(CHECKOUT),
        "HACPO_VENV": str(BIN.parent),
        "PREFECT_HOME": str(HOME / "prefect"),
        "PREFECT_API_URL": f"http://127.0.0.1:{prefect}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{mlflow}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
        "NO_PROXY": ",".join(filter(None, [os.environ.get("NO_PROXY"), "127.0.0.1"])),
    }


def write_environment(variables: dict[str, str]) -> None:
    """HOME/env: what a shell sources to be a client."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    lines.append(f'export PATH={shlex.quote(str(BIN))}:"$PATH"')
    write_private(HOME / "env", "\n".join([*lines, ""]))
