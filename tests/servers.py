"""Real servers on loopback, for tests; every process of theirs ends with the `with` block."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hacpo.errors import ServiceError
from hacpo.tracking import check_server

CHECKOUT = Path(__file__).resolve().parent.parent


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def mlflow_server(folder: Path, port: int | None = None) -> Iterator[str]:
    """A one-worker MLflow whose database and artifacts are in `folder`; yields its address."""
    port = port or free_port()
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    uri = f"http://127.0.0.1:{port}"
    with running(command, folder / "mlflow.log", os.environ | quiet) as process:
        wait_until_well(uri, process, folder / "mlflow.log")
        yield uri


@contextmanager
def running(
    command: list[str], log: Path, environment: dict[str, str]
) -> Iterator["subprocess.Popen[bytes]"]:
    """A process in a group of its own; the group is killed at the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=log.parent,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_until_well(
    uri: str, process: "subprocess.Popen[bytes]", log: Path, timeout: float = 90
) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            return check_server(uri, timeout=2)
        except ServiceError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no server at {uri}:\n{log.read_text()[-3000:]}") from error
            time.sleep(0.1)


@contextmanager
def platform(folder: Path, **environment: str) -> Iterator[dict[str, str]]:
    """Prefect, MLflow and both workers, as infra/quickstart.sh runs them; yields its environment.

    Args:
        folder: HACPO_HOME.
        environment: for the services, beside this process's.
    """
    settings = os.environ | {
        "HACPO_HOME": str(folder),
        "HACPO_PREFECT_PORT": str(free_port()),
        "HACPO_MLFLOW_PORT": str(free_port()),
        **environment,
    }
    services(settings, "start")
    try:
        lines = (folder / "env").read_text(encoding="utf-8").splitlines()
        exported = [line.removeprefix("export ").split("=", 1) for line in lines]
        yield settings | {name: value for name, value in exported if name != "PATH"}
    finally:
        services(settings, "stop")


def services(environment: dict[str, str], action: str) -> str:
    """Run infra/services.py; returns what it said."""
    done = subprocess.run(
        [sys.executable, "infra/services.py", action],
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"services.py {action}: {done.stdout}{done.stderr}")
    return done.stdout
