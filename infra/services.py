"""Starts, stops and shows the four services of one machine: Prefect, MLflow and two workers.

    python infra/services.py start | stop | status

Standard library only. State, logs and process ids lie under HACPO_HOME (.hacpo); everything listens
on loopback. HACPO_PREFECT_PORT (4200), HACPO_MLFLOW_PORT (5000), HACPO_SLOTS (one a core; a machine
with GPUs has one a GPU).
"""

import fcntl
import json
import os
import signal
import subprocess
import sys

from prefect_server import deploy, reconcile, tidy_runs
from runs import HacpoError, end_runs, live_runs
from service import BIN, CHECKOUT, HOME, Service, ServiceError, bring_up
from stack import environment, services, slot_count, write_environment


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
                    tidy_runs()
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
