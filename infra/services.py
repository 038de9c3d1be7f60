"""Starts, stops and shows the four services of one machine: Prefect, MLflow and two workers.

    python infra/services.py start | stop | status

Standard library only. State, logs and process ids lie under HACPO_HOME (.hacpo); everything listens
on loopback. HACPO_PREFECT_PORT (4200), HACPO_MLFLOW_PORT (5000), HACPO_SLOTS (one a core; a machine
with GPUs has one a GPU).
"""

import base64
import fcntl
import hashlib
import importlib.metadata
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import end_group, in_use, started_at, wait_until
from runs import HacpoError, end_runs, live_runs, machine_slots

CHECKOUT = Path(__file__).resolve().parent.parent
HOME = Path(os.environ.get("HACPO_HOME") or CHECKOUT / ".hacpo").absolute()
BIN = Path(sys.executable).parent
START_SECONDS = 120
THREADS = ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB_MAXIMUM")
FLOWS = ("hacpo-grid", "hacpo-experiment", "hacpo-reconcile")
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
BUSY_TRIES = 20
"""Prefect answers 503 while somebody else writes to its SQLite database; seconds between."""
LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ServiceError(Exception):
    """One line for a person."""


def number(variable: str, default: int) -> int:
    text = os.environ.get(variable) or str(default)
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ServiceError(f"{variable}={text} is not a number that can be used")
    return int(text)


@dataclass(frozen=True)
class Service:
    """One process group of ours; `pids/NAME` holds its leader, when that started, and its port."""

    name: str
    command: list[str]
    environment: dict[str, str]
    port: int | None = None
    port_variable: str = ""
    health: str = ""

    @property
    def log(self) -> Path:
        return HOME / "logs" / f"{self.name}.log"

    @property
    def pid_file(self) -> Path:
        return HOME / "pids" / self.name

    def pid(self) -> int | None:
        """The leader, if it is alive and the process that we started."""
        recorded = running(self.name)
        return recorded[0] if recorded else None

    def healthy(self) -> bool:
        if not self.health:
            return self.pid() is not None
        return answers(f"http://127.0.0.1:{self.port}{self.health}")

    def check_port(self) -> None:
        recorded = running(self.name)
        if recorded and recorded[1] != (self.port or 0):
            raise ServiceError(
                f"{self.name} already runs on port {recorded[1]}: "
                "`bash infra/quickstart.sh --stop` before moving it"
            )
        if self.port and not recorded and in_use(self.port):
            raise ServiceError(
                f"port {self.port} for {self.name} is in use by another program: "
                f"stop that one, or set {self.port_variable} to a free port"
            )

    def start(self) -> None:
        for folder in (self.log.parent, self.pid_file.parent):
            folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            # A session of its own outlives this script, and Ctrl-C in its terminal.
            process = subprocess.Popen(
                self.command,
                cwd=CHECKOUT,
                env=os.environ | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid_file.write_text(f"{process.pid} {started_at(process.pid)} {self.port or 0}\n")

    def wait(self) -> None:
        wait_until(lambda: self.healthy() or self.pid() is None, START_SECONDS)
        if not self.healthy():
            tail = self.log.read_text(errors="replace").strip().splitlines()[-15:]
            raise ServiceError("\n".join([*tail, f"{self.name} did not start: see {self.log}"]))

    def stop(self) -> bool:
        """True if there was something to stop."""
        pid = self.pid()
        if pid is not None:
            # A worker that ends kills its flows at once; asked before, they hand their cells back.
            end_group(pid, members_first=self.port is None)
        self.pid_file.unlink(missing_ok=True)
        return pid is not None


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
    worker = [str(BIN / "prefect"), "worker", "start", "--type", "process", "--pool"]
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


def start(every: list[Service]) -> None:
    """Start what does not run; if something cannot, stop what this call started."""
    if (HOME / "team.env").exists():
        raise ServiceError(f"{HOME} is a team's: use infra/team.sh, or set HACPO_HOME to another")
    (HOME / "mlflow").mkdir(parents=True, exist_ok=True)
    write_environment(environment())
    started: list[Service] = []
    servers, workers = every[:2], every[2:]
    try:
        for stage in (servers, workers):
            if stage is workers:
                deploy()
                if not any(worker.pid() for worker in workers):
                    close_dead_runs()
            bring_up(stage, started)
        if any(service in workers for service in started):
            reconcile()
    except BaseException:
        for service in reversed(started):
            service.stop()
        raise
    said = ", ".join(service.name for service in started)
    print(f"Services: {said} started" if said else "Services: all running")
    print(f"Prefect http://127.0.0.1:{servers[0].port}, MLflow http://127.0.0.1:{servers[1].port}")


def bring_up(stage: list[Service], started: list[Service]) -> None:
    """Start what does not run, and wait for all."""
    for service in stage:
        if service.pid() is None:
            started.append(service)
            service.start()
    for service in stage:
        service.wait()


def write_environment(variables: dict[str, str]) -> None:
    """HOME/env: what a shell sources to be a client."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    lines.append(f'export PATH={shlex.quote(str(BIN))}:"$PATH"')
    write_private(HOME / "env", "\n".join([*lines, ""]))


def write_private(path: Path, text: str) -> None:
    """For its owner alone: it may hold secrets."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def close_dead_runs() -> None:
    """Without workers only what outlived them runs, whatever Prefect was left with.

    What waits for a worker goes on waiting.
    """
    living = {run.id for run in live_runs(HOME)}
    unfinished = ["PENDING", "RUNNING", "CANCELLING"]
    crashed = {"type": "CRASHED", "message": "its worker was stopped"}
    for run in post("flow_runs/filter", {"flow_runs": {"state": {"type": {"any_": unfinished}}}}):
        if run["id"] not in living:
            # By Prefect's rules it gives its place up for others; where they object, without them.
            done = post(f"flow_runs/{run['id']}/set_state", {"state": crashed})
            if done["status"] != "ACCEPT":
                post(f"flow_runs/{run['id']}/set_state", {"state": crashed, "force": True})


def reconcile() -> None:
    """Look at the queue now: the schedule's next run may be two minutes away."""
    named = {"deployments": {"name": {"any_": ["hacpo-reconcile"]}}}
    for deployment in post("deployments/filter", named):
        post(f"deployments/{deployment['id']}/create_flow_run", {})


def deploy() -> None:
    """Make the pools and deploy the flows, unless this server has them as they are now."""
    api = environment()["PREFECT_API_URL"]
    mine = [CHECKOUT / "infra" / name for name in ("prefect.yaml", "pools.py")]
    files = sorted([*(CHECKOUT / "flows").glob("*.py"), *mine])
    content = b"".join(path.read_bytes() for path in files)
    content += f"{CHECKOUT} {importlib.metadata.version('prefect')}".encode()
    wanted, marker = hashlib.sha256(content).hexdigest(), HOME / "prefect" / "deployed"
    there = all(answers(f"{api}/deployments/name/{name}/{name}") for name in FLOWS)
    if there and marker.exists() and marker.read_text() == wanted:
        return
    prefect = [str(BIN / "prefect"), "--no-prompt", "deploy", "--all", "--prefect-file"]
    for command in ([sys.executable, "infra/pools.py"], [*prefect, "infra/prefect.yaml"]):
        done = subprocess.run(
            command,
            cwd=CHECKOUT,
            env=os.environ | environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            said = f"{done.stdout}{done.stderr}".rstrip()
            raise ServiceError(f"{said}\n{shlex.join(command)} failed")
    marker.write_text(wanted)


def stop(every: list[Service]) -> None:
    # Workers first: their flows hand cells back and tell the servers how they ended. Of these the
    # grids' first: a grid replaces experiments that end.
    prefect, mlflow, control, cells = every
    stopped = [control.name] if control.stop() else []
    ended = end_runs(HOME, grids_only=True)
    stopped += [cells.name] if cells.stop() else []
    ended += end_runs(HOME)
    stopped += [service.name for service in (prefect, mlflow) if service.stop()]
    if ended:
        stopped.append(f"runs without a worker ({ended})")
    print(f"Stopped: {', '.join(stopped)}" if stopped else "Nothing was running")


def status(every: list[Service]) -> None:
    for service in every:
        pid, where = service.pid(), f"http://127.0.0.1:{service.port}" if service.port else ""
        state = "stopped" if pid is None else "running" if service.healthy() else "not answering"
        shown = f"{service.name:<15} {state:<14} {f'pid {pid}' if pid else '':<12} {where}"
        print(shown.rstrip())
    for run in live_runs(HOME):
        where = ", ".join(run.slots) or ("waits for slots" if run.asked else "no slot")
        print(f"run {run.id} {where}")
    for sweep in sweeps():
        counts = ", ".join(f"{n} {state}" for state, n in sweep["counts"].items() if n)
        print(f"sweep {sweep['name']}: {counts}")


def sweeps() -> list[dict[str, dict[str, int]]]:
    """What `hacpo status` knows."""
    command = [str(BIN / "hacpo"), "status", "--json"]
    done = subprocess.run(
        command, env=os.environ | environment(), capture_output=True, text=True, cwd=CHECKOUT
    )
    return json.loads(done.stdout)["sweeps"] if done.returncode == 0 else []


def answers(url: str) -> bool:
    try:
        with LOCAL.open(urllib.request.Request(url, headers=credentials()), timeout=5):
            return True
    except urllib.error.HTTPError as error:
        if error.code == 401:
            raise ServiceError(f"{url} refuses us: check PREFECT_API_AUTH_STRING") from None
        return False
    except (OSError, ValueError):
        return False


def credentials() -> dict[str, str]:
    """For Prefect's API, where it wants some."""
    text = os.environ.get("PREFECT_API_AUTH_STRING")
    encoded = base64.b64encode((text or "").encode()).decode()
    return {"Authorization": f"Basic {encoded}"} if text else {}


def post(path: str, body: dict[str, Any]) -> Any:
    """Ask Prefect's API."""
    request = urllib.request.Request(
        f"{environment()['PREFECT_API_URL']}/{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"} | credentials(),
    )
    for attempt in range(BUSY_TRIES):
        try:
            with LOCAL.open(request, timeout=30) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            if error.code != 503 or attempt + 1 == BUSY_TRIES:
                reason = f"Prefect answers {error.code} to {path}"
                raise ServiceError(f"{reason}: see {HOME / 'logs' / 'prefect.log'}") from None
        time.sleep(1)
    raise AssertionError


def running(name: str) -> tuple[int, int] | None:
    """Process id and port of a service that is alive."""
    try:
        pid, started, port = (HOME / "pids" / name).read_text().split()
    except (OSError, ValueError):
        return None
    return (int(pid), int(port)) if started_at(int(pid)) == started else None


def main(action: str) -> None:
    # Ignored by a shell's background jobs, and so by what they start; workers end by it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    every = services(slot_count()) if action == "start" else services()
    if action == "status":
        return status(every)
    if action == "start":
        for service in every:
            service.check_port()
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        start(every) if action == "start" else stop(every)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (ServiceError, HacpoError) as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{error.filename or HOME}: {error.strerror}; set HACPO_HOME to a folder of yours")
