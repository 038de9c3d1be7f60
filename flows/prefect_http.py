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


def state_of(flow_run_id: str, tries: int = TRIES) -> tuple[str, str]:
    """RUNNING, CANCELLING, ..., and its message; empty if Prefect doesn't say."""
    answer = _ask(f"flow_runs/{flow_run_id}", tries=tries)
    if not isinstance(answer, dict):
        return "", ""
    state = answer.get("state")
    message = state.get("message") if isinstance(state, dict) else None
    return str(answer.get("state_type") or ""), str(message or "")


def set_state(flow_run_id: str, kind: str, message: str, tries: int = TRIES) -> bool:
    """Whether Prefect has it."""
    state = {"type": kind, "message": message}
    body = {"state": state, "force": True}
    return _ask(f"flow_runs/{flow_run_id}/set_state", body, tries=tries) is not None


def log(flow_run_id: str, message: str, level: int = logging.ERROR, tries: int = TRIES) -> bool:
    """A line in the run's log; whether Prefect has it."""
    entry = {"name": "hacpo.slots", "level": level, "message": message, "flow_run_id": flow_run_id}
    body = [entry | {"timestamp": datetime.now(UTC).isoformat()}]
    return _ask("logs/", body, tries=tries) is not None


def _ask(path: str, body: Any = None, *, tries: int = TRIES) -> Any:
    """The answer, {} for an empty one, None for none."""
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
                return json.loads(reply.read() or b"{}")
        except (OSError, ValueError, http.client.HTTPException) as error:
            # Busy: somebody else writes to its SQLite database.
            if getattr(error, "code", None) == 503 and attempt + 1 < tries:
                time.sleep(1)
                continue
            with contextlib.suppress(OSError):  # a full disk
                print(f"Prefect, {path}: {error}", file=sys.stderr, flush=True)
            return None
