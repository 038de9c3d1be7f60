"""What a run's guard asks and tells Prefect, with the standard library alone: it must start fast.

Nothing here raises: without Prefect a run goes on.
"""

import base64
import contextlib
import json
import logging
import os
import sys
import time
from datetime import UTC, datetime
from typing import Any

SECONDS = 10
TRIES = 10


def state_of(flow_run_id: str, tries: int = TRIES) -> str:
    """RUNNING, CANCELLING, ...; empty if Prefect doesn't say."""
    answer = _ask(f"flow_runs/{flow_run_id}", tries=tries)
    return str(answer.get("state_type") or "") if isinstance(answer, dict) else ""


def set_state(flow_run_id: str, kind: str, message: str) -> None:
    state = {"type": kind, "message": message}
    _ask(f"flow_runs/{flow_run_id}/set_state", {"state": state, "force": True})


def log(flow_run_id: str, message: str, level: int = logging.ERROR, tries: int = TRIES) -> None:
    """A line in the run's log."""
    entry = {"name": "hacpo.slots", "level": level, "message": message, "flow_run_id": flow_run_id}
    _ask("logs/", [entry | {"timestamp": datetime.now(UTC).isoformat()}], tries=tries)


def _ask(path: str, body: Any = None, *, tries: int = TRIES) -> Any:
    api = os.environ.get("PREFECT_API_URL")
    if not api or not os.environ.get("PREFECT__FLOW_RUN_ID"):
        return None  # started by hand
    import http.client  # hardly ever needed, and not free to load
    import urllib.request

    headers = {"Content-Type": "application/json"}
    if secret := os.environ.get("PREFECT_API_AUTH_STRING"):
        headers["Authorization"] = f"Basic {base64.b64encode(secret.encode()).decode()}"
    elif secret := os.environ.get("PREFECT_API_KEY"):
        headers["Authorization"] = f"Bearer {secret}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{api.rstrip('/')}/{path}", data, headers)
    for attempt in range(tries):
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as reply:
                return json.loads(reply.read() or b"null")
        except (OSError, ValueError, http.client.HTTPException) as error:
            # Busy: somebody else writes to its SQLite database.
            if getattr(error, "code", None) == 503 and attempt + 1 < tries:
                time.sleep(1)
                continue
            with contextlib.suppress(OSError):  # a full disk
                print(f"Prefect, {path}: {error}", file=sys.stderr, flush=True)
            return None
