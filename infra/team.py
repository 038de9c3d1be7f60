"""Starts, stops and shows the team's stack on one machine; infra/team.sh prepares what it needs.

    python infra/team.py start [--workers N] | stop | status

State lies under HACPO_HOME (.hacpo) like that of infra/services.py, the database in team/postgres,
secrets in team.env and, those of clients, in env.
"""

import argparse
import fcntl
import os
import pwd
import signal
import subprocess
import sys

from prefect_server import deploy, reconcile, tidy_runs
from runs import HacpoError, end_runs
from service import CHECKOUT, HOME, Service, ServiceError, bring_up, running, write_private
from services import status
from stack import environment, write_environment
from team_stack import (
    AUTH_FILE,
    DATA,
    KEPT,
    Settings,
    client,
    mlflow_database,
    postgres_port,
    postgres_program,
    settings,
    stack,
    storage,
    unprivileged,
)

SOCKET_LIMIT = 107
"""Bytes of a socket's path, of the operating system."""


def start(workers: int) -> None:
    if running("worker-cells"):
        raise ServiceError(f"{HOME} has services of quickstart: `bash infra/quickstart.sh --stop`")
    held = settings()
    every = stack(held, workers)
    for service in every:
        service.check_port()
    make_cluster()
    write_private(KEPT, "".join(f"{n}={v}\n" for n, v in sorted(held.items())))
    write_environment(environment() | client(held))
    write_auth_file()
    working = [service for service in every if service.port is None]
    started: list[Service] = []
    try:
        bring_up([s for s in every if s.name in ("postgres", "s3")], started)
        make_stores(held)
        bring_up([s for s in every if s.name in ("prefect", "mlflow")], started)
        deploy()
        if not any(worker.pid() for worker in working):
            tidy_runs()
        bring_up(working, started)
        reconcile()
    except BaseException:
        for service in reversed(started):
            service.stop()
        raise
    said = ", ".join(service.name for service in started)
    print(f"Services: {said} started" if said else "Services: all running")
    print(", ".join(f"{s.name} 127.0.0.1:{s.port}" for s in every if s.port))
    print(f"For prefect, hacpo and mlflow in your shell: source {HOME}/env")
    print(f"Secrets: {KEPT}; MLflow's user is {held['MLFLOW_TRACKING_USERNAME']}")


def make_cluster() -> None:
    """A new database folder: passwords over TCP, the operating system's user over the socket."""
    socket = DATA.parent / f".s.PGSQL.{postgres_port()}"
    if len(os.fsencode(socket)) > SOCKET_LIMIT:
        raise ServiceError(f"{socket} is too long for a socket: set HACPO_HOME to a shorter path")
    if (DATA / "PG_VERSION").exists():
        return
    DATA.mkdir(parents=True, exist_ok=True)
    if not os.getuid():
        for folder in (DATA.parent, DATA):
            os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
        if subprocess.run([*unprivileged(), "test", "-w", DATA]).returncode:
            raise ServiceError(
                f"{DATA}: the user postgres cannot get there; "
                "set HACPO_HOME to a folder below ones that all may enter"
            )
    initdb = [postgres_program("initdb"), "-D", str(DATA), "--encoding=UTF8"]
    ways = ["--auth-local=peer", "--auth-host=scram-sha-256"]
    run([*unprivileged(), *initdb, *ways], "initdb failed")


def make_stores(held: Settings) -> None:
    """Databases and MLflow's bucket."""
    reach = ["-qX", "-h", str(DATA.parent), "-p", str(postgres_port()), "-d", "postgres"]
    run(
        [*unprivileged(), postgres_program("psql"), *reach],
        "the databases cannot be made",
        (CHECKOUT / "infra" / "databases.sql").read_text(),
        PREFECT_DB_PASSWORD=held["PREFECT_DB_PASSWORD"],
        MLFLOW_DB_PASSWORD=held["MLFLOW_DB_PASSWORD"],
        HACPO_DB_PASSWORD=held["PGPASSWORD"],
    )
    script = str(CHECKOUT / "infra" / "bucket.py")
    run([sys.executable, script], "MLflow's artifacts have no place", **storage(held))


def run(command: list[str], failed: str, text: str = "", **environment: str) -> None:
    """Run to its end; ServiceError with what it said if that was bad."""
    done = subprocess.run(
        command, env=os.environ | environment, input=text, capture_output=True, text=True
    )
    if done.returncode:
        raise ServiceError(f"{done.stdout}{done.stderr}{failed}")


def write_auth_file() -> None:
    """infra/mlflow-auth.ini with this machine's database; there is no secret in it."""
    lines = (CHECKOUT / "infra" / "mlflow-auth.ini").read_text().splitlines()
    database = f"database_uri = {mlflow_database()}"
    told = [database if line.startswith("database_uri") else line for line in lines]
    AUTH_FILE.write_text("\n".join([*told, ""]))


def stop(every: list[Service]) -> None:
    """Grids first, which replace experiments that end; then their workers, then what they need."""
    control, *cells = [service for service in every if service.port is None]
    stopped = [control.name] if control.stop() else []
    ended = end_runs(HOME, grids_only=True)
    stopped += [service.name for service in cells if service.stop()]
    ended += end_runs(HOME)
    stopped += [service.name for service in reversed(every) if service.port and service.stop()]
    if ended:
        stopped.append(f"runs without a worker ({ended})")
    print(f"Stopped: {', '.join(stopped)}" if stopped else "Nothing was running")


def workers_there() -> int:
    """As many as were started."""
    names = [path.name for path in (HOME / "pids").glob("worker-cells-*")]
    return max((int(name.rpartition("-")[2]) for name in names), default=1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="infra/team.sh", allow_abbrev=False)
    parser.add_argument("action", choices=["start", "stop", "status"])
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="of hacpo-cells")
    asked = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as in services.py
    if asked.action != "start" and not KEPT.exists():
        return print("Nothing was ever started here")
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if asked.action == "start":
            return start(max(asked.workers, workers_there()))
        every = stack(settings(), workers_there())
        stop(every) if asked.action == "stop" else status(every)


if __name__ == "__main__":
    try:
        main()
    except (ServiceError, HacpoError) as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{error.filename or HOME}: {error.strerror}; set HACPO_HOME to a folder of yours")
