"""Process groups and ports, with the standard library alone."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

PROC = Path("/proc")
LINUX = (PROC / "self" / "stat").exists()
POLITE_SECONDS = 15


def in_use(port: int) -> bool:
    """Whether somebody listens there on loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def started_at(pid: int) -> str | None:
    """Distinguishes a process from a later one with its number; None if it is gone."""
    if LINUX:
        fields = _fields(PROC / str(pid))
        return fields[19] if fields and fields[0] != "Z" else None
    found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True)
    return found.stdout.strip().replace(" ", "_") or None


def _fields(folder: Path) -> list[str]:
    """Linux: /proc/PID/stat behind the name (which may hold anything): state, parent, group, ..."""
    try:
        return (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def group(leader: int) -> set[int]:
    """The living processes of a group; a zombie that nobody collects is not one."""
    if LINUX:
        found = {int(folder.name): _fields(folder) for folder in PROC.glob("[0-9]*")}
        return {pid for pid, f in found.items() if f and f[2] == str(leader) and f[0] != "Z"}
    listed = subprocess.run(["ps", "-axo", "pid=,pgid=,stat="], capture_output=True, text=True)
    rows = [line.split() for line in listed.stdout.splitlines()]
    return {int(pid) for pid, of, state, *_ in rows if of == str(leader) and state[0] != "Z"}


def end_group(leader: int, *, members_first: bool) -> None:
    """End a group, politely first; with `members_first` its leader after all others."""
    if members_first:
        for member in group(leader) - {leader}:
            _send(os.kill, member, signal.SIGTERM)
        wait_until(lambda: group(leader) <= {leader}, POLITE_SECONDS)
    _send(os.killpg, leader, signal.SIGTERM)
    if not wait_until(lambda: not group(leader), POLITE_SECONDS):
        _send(os.killpg, leader, signal.SIGKILL)
        wait_until(lambda: not group(leader), POLITE_SECONDS)


def _send(kill: Callable[[int, int], None], pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        kill(pid, number)


def wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether it held within that time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
