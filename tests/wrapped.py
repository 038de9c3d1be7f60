"""Commands under `python -m flows.slots`, for tests."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.servers import CHECKOUT

# Takes the place of flows/slots.py's `__main__`, with less patience.
IMPATIENT = """
import sys
from flows import guard, slots
guard.ENGINE_SECONDS = slots.ENGINE_SECONDS = guard.LEFTOVER_SECONDS = 0.5
guard.FIRST_SIGN_SECONDS = guard.SIGN_SECONDS = 0.3
sys.exit(slots.main(sys.argv[1:]))
"""


def environment(home: Path, **changes: str) -> dict[str, str]:
    """Of a machine with two CPU slots."""
    mine = {"HACPO_HOME": str(home), "HACPO_GPUS": "none", "HACPO_SLOTS": "2"}
    mine |= {"PYTHONPATH": str(CHECKOUT)}
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "HACPO"))}
    return kept | mine | changes


def wrapped(
    home: Path, count: int, *command: str, impatient: bool = False, **changes: str
) -> "subprocess.Popen[str]":
    """Start a command on slots."""
    start = ["-c", IMPATIENT] if impatient else ["-m", "flows.slots"]
    home.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, *start, str(count), "--", *command],
        cwd=home,
        env=environment(home, **changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def soon(holds: Callable[[], object], seconds: float = 15) -> bool:
    """Whether it came to hold."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def lives(pid: int) -> bool:
    """And is no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] not in "ZX"
