"""What we ask of Prefect's server: pools and deployments, dead runs, a look at the queue."""

import hashlib
import importlib.metadata
import json
import os
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from typing import Any

from runs import live_runs
from service import BIN, CHECKOUT, HOME, LOCAL, ServiceError, answers, credentials
from stack import environment

FLOWS = ("hacpo-grid", "hacpo-experiment", "hacpo-reconcile")
BUSY_TRIES = 20
"""Prefect answers 503 while somebody else writes to its SQLite database; seconds between."""


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


def tidy_runs() -> None:
    """Before workers start: nothing runs but what outlived them, and nothing old waits for them.

    Grids and experiments go on waiting.
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
    _drop_late_runs()


def _drop_late_runs() -> None:
    """Delete runs of the reconciler that nobody began in time, whoever asked for them.

    Each would ask for the one place at every look of a worker, and a server with SQLite stands
    still; `reconcile` asks for one that begins now, and one is enough.
    """
    late = {
        "state": {"type": {"any_": ["SCHEDULED"]}},
        "deployment_id": {"any_": _reconciler()},
        "expected_start_time": {"before_": datetime.now(UTC).isoformat()},
    }
    while post("flow_runs/bulk_delete", {"flow_runs": late})["deleted"]:
        pass


def reconcile() -> None:
    """Look at the queue now: the schedule's next run may be two minutes away."""
    for deployment in _reconciler():
        post(f"deployments/{deployment}/create_flow_run", {})


def _reconciler() -> list[str]:
    """The deployment's id."""
    named = {"deployments": {"name": {"any_": ["hacpo-reconcile"]}}}
    return [deployment["id"] for deployment in post("deployments/filter", named)]


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
