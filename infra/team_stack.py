"""The services of infra/team.py and their secrets.

Each server gets its own secrets only, through its environment; no URL or command line holds one.
"""

import os
import pwd
import secrets
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from processes import POLITE_SECONDS, wait_until
from service import BIN, HOME, Service, ServiceError, number, running
from stack import services, slot_count

DATA = HOME / "team" / "postgres"
AUTH_FILE = HOME / "team" / "mlflow-auth.ini"
KEPT = HOME / "team.env"
MADE = (
    "PREFECT_DB_PASSWORD",
    "MLFLOW_DB_PASSWORD",
    "PGPASSWORD",
    "PREFECT_API_AUTH_STRING",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_FLASK_SERVER_SECRET_KEY",
    "S3_SECRET_KEY",
)
"""Made if they are not given."""
CHOSEN = {"MLFLOW_TRACKING_USERNAME": "hacpo", "S3_ACCESS_KEY": "hacpo-s3", "S3_BUCKET": "hacpo"}
GIVEN = ("S3_ENDPOINT",)
CLIENTS = (
    "PGPASSWORD",
    "PREFECT_API_AUTH_STRING",
    "MLFLOW_TRACKING_USERNAME",
    "MLFLOW_TRACKING_PASSWORD",
)
"""What workers and people need; the rest is for servers."""

Settings = dict[str, str]


@dataclass(frozen=True)
class Postgres(Service):
    """Does not run as root, and waits for its clients unless it is stopped by SIGINT."""

    def healthy(self) -> bool:
        reach = ["-q", "-h", str(DATA.parent), "-p", str(self.port), "-d", "postgres"]
        asked = [*unprivileged(), postgres_program("pg_isready"), *reach]
        return self.pid() is not None and subprocess.run(asked).returncode == 0

    def stop(self) -> bool:
        pid = self.pid()
        if pid is not None:
            os.kill(pid, signal.SIGINT)
            wait_until(lambda: self.pid() is None, POLITE_SECONDS)
        super().stop()
        return pid is not None


def settings() -> Settings:
    """The team's: from the environment, else HOME/team.env, else made now.

    They leave this process's environment, which its children inherit, but for what clients need.
    """
    kept = KEPT.read_text().splitlines() if KEPT.exists() else []
    names = {*MADE, *CHOSEN, *GIVEN}
    given = {name: value for name in names if (value := os.environ.pop(name, ""))}
    if "S3_ENDPOINT" in given and "S3_SECRET_KEY" not in given:
        raise ServiceError("S3_ENDPOINT needs S3_ACCESS_KEY and S3_SECRET_KEY, too")
    made = {name: secrets.token_urlsafe(24) for name in MADE}
    made["PREFECT_API_AUTH_STRING"] = f"hacpo:{made['PREFECT_API_AUTH_STRING']}"
    held = made | CHOSEN | dict(line.split("=", 1) for line in kept if "=" in line) | given
    if ":" not in held["PREFECT_API_AUTH_STRING"]:
        raise ServiceError("PREFECT_API_AUTH_STRING must be USER:PASSWORD")
    os.environ.update(client(held))
    return held


def client(held: Settings) -> dict[str, str]:
    """What a worker or a person's shell needs, beside the addresses in `stack.environment()`."""
    at = f"127.0.0.1:{postgres_port()}"
    return {"HACPO_REGISTRY_URL": f"postgresql://hacpo@{at}/hacpo"} | {n: held[n] for n in CLIENTS}


def stack(held: Settings, workers: int) -> list[Service]:
    """In the order of their start."""
    usual = {service.name: service for service in services(slot_count())}
    cells = usual["worker-cells"]
    return [
        _postgres(),
        *([] if held.get("S3_ENDPOINT") else [_objects()]),
        _prefect(usual["prefect"], held),
        _mlflow(usual["mlflow"], held),
        usual["worker-control"],
        *(replace(cells, name=f"worker-cells-{index + 1}") for index in range(workers)),
    ]


def _postgres() -> Service:
    port = postgres_port()
    listen = ["-p", str(port), "-c", "listen_addresses=127.0.0.1", "-k", str(DATA.parent)]
    command = [*unprivileged(), postgres_program("postgres"), "-D", str(DATA), *listen]
    return Postgres("postgres", command, {}, port, "HACPO_POSTGRES_PORT")


def _objects() -> Service:
    port = _port("s3", "HACPO_S3_PORT", 9000)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    return Service("s3", command, {}, port, "HACPO_S3_PORT", "/moto-api/data.json")


def _prefect(service: Service, held: Settings) -> Service:
    database = f"postgresql+asyncpg://prefect@127.0.0.1:{postgres_port()}/prefect"
    own = {
        "PREFECT_LOGGING_ROOT_LEVEL": "WARNING",
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": database,
        "PREFECT_SERVER_API_AUTH_STRING": held["PREFECT_API_AUTH_STRING"],
        "PGPASSWORD": held["PREFECT_DB_PASSWORD"],
    }
    return replace(service, environment=service.environment | own)


def _mlflow(service: Service, held: Settings) -> Service:
    own = {
        "MLFLOW_AUTH_CONFIG_PATH": str(AUTH_FILE),
        "MLFLOW_AUTH_ADMIN_USERNAME": held["MLFLOW_TRACKING_USERNAME"],
        "MLFLOW_AUTH_ADMIN_PASSWORD": held["MLFLOW_TRACKING_PASSWORD"],
        "MLFLOW_FLASK_SERVER_SECRET_KEY": held["MLFLOW_FLASK_SERVER_SECRET_KEY"],
        "PGPASSWORD": held["MLFLOW_DB_PASSWORD"],
    }
    command = [
        *[str(BIN / "mlflow"), "server", "--app-name", "basic-auth", "--workers", "1"],
        *["--host", "127.0.0.1", "--port", str(service.port)],
        *["--backend-store-uri", mlflow_database()],
        *["--artifacts-destination", f"s3://{held['S3_BUCKET']}/mlflow"],
    ]
    environment = service.environment | own | storage(held)
    return replace(service, command=command, environment=environment)


def mlflow_database() -> str:
    return f"postgresql+psycopg://mlflow@127.0.0.1:{postgres_port()}/mlflow"


def storage(held: Settings) -> dict[str, str]:
    """Where MLflow's artifacts go, for boto3."""
    here = f"http://127.0.0.1:{_port('s3', 'HACPO_S3_PORT', 9000)}"
    return {
        "MLFLOW_S3_ENDPOINT_URL": held.get("S3_ENDPOINT") or here,
        "AWS_ACCESS_KEY_ID": held["S3_ACCESS_KEY"],
        "AWS_SECRET_ACCESS_KEY": held["S3_SECRET_KEY"],
        "S3_BUCKET": held["S3_BUCKET"],
    }


def unprivileged() -> list[str]:
    """What PostgreSQL's commands begin with: it does not run as root."""
    if os.getuid():
        return []
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        raise ServiceError("PostgreSQL does not run as root: a user `postgres` is needed") from None
    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
    return ["env", "--chdir=/", *user]  # root's folders are closed to it


def postgres_program(name: str) -> str:
    return str(Path(os.environ["HACPO_POSTGRES_BIN"]) / name)


def postgres_port() -> int:
    return _port("postgres", "HACPO_POSTGRES_PORT", 5432)


def _port(name: str, variable: str, usual: int) -> int:
    """As asked for, else as it runs, else the usual one."""
    return number(variable, (running(name) or (0, usual))[1])
