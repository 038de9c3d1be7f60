"""The processes below this one: none of them outlives a run. Linux; elsewhere as far as `ps` sees.

Standard library only.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

LINUX = sys.platform == "linux"
POLL_SECONDS = 0.05
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_prctl = ctypes.CDLL(None).prctl if LINUX else None


def adopt_orphans() -> None:
    """Children whose parent died come to this process, not to init."""
    if _prctl is not None and _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError("prctl: cannot adopt orphans")


def end_with(parent: int) -> None:
    """In a new child: be asked to end (SIGTERM) when `parent`, its only thread, is gone."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)


def descendants() -> set[int]:
    """The living processes below this one; zombies are not among them."""
    children: dict[int, list[int]] = {}
    dead = set()
    for pid, parent, state in _processes():
        children.setdefault(parent, []).append(pid)
        if state in "ZX":
            dead.add(pid)
    found: set[int] = set()
    below = [os.getpid()]
    while below:
        new = children.get(below.pop(), [])
        found.update(new)
        below += new
    return found - dead


def _processes() -> list[tuple[int, int, str]]:
    """Process, parent, state."""
    if not LINUX:
        listed = subprocess.Popen(["ps", "-axo", "pid=,ppid=,stat="], stdout=subprocess.PIPE)
        assert listed.stdout is not None
        rows = [line.split() for line in listed.stdout.read().decode().splitlines()]
        listed.wait()
        every = [(int(pid), int(parent), state[0]) for pid, parent, state, *_ in rows]
        return [row for row in every if row[0] != listed.pid]
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):  # it has ended
                state, parent = (
                    Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[:2]
                )
                found.append((int(name), int(parent), state))
    return found


def end_descendants(grace: float, *, ask: bool = True) -> int:
    """Return when nothing lives below this process; says how many had to be killed or asked.

    Args:
        grace: seconds until what is left is killed.
        ask: with SIGTERM before; without, they have been asked already.
    """
    ended: set[int] = set()
    deadline = time.monotonic() + grace
    while left := descendants():
        late = time.monotonic() > deadline
        for pid in left if late else left - ended if ask else ():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        ended |= left
        time.sleep(POLL_SECONDS)
        collect()
    collect()
    return len(ended)


def collect(keep: int | None = None) -> None:
    """Take the exit status of adopted children, but not that of `keep`."""
    with contextlib.suppress(ChildProcessError):
        while keep is None:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        if hasattr(os, "waitid"):
            # A look first: waitpid(-1) would take the status of `keep`, too.
            look = os.WEXITED | os.WNOHANG | os.WNOWAIT
            while (found := os.waitid(os.P_ALL, 0, look)) and found.si_pid != keep:
                os.waitpid(found.si_pid, 0)
