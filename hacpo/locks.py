"""Files that one process holds at a time; the lock ends with the process, however that ends."""

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

_PAUSE = 0.1  # seconds between two attempts


@contextlib.contextmanager
def locked(
    path: Path, *, patience: float = 0.0, stop: Callable[[], bool] = lambda: False
) -> Iterator[bool]:
    """Hold a lock file; yields False if somebody else has it.

    Args:
        path: made if it is not there; its folder must be.
        patience: how many seconds to wait for whoever has it.
        stop: ends the waiting when it says True.
    Raises:
        OSError: the file cannot be opened.
    """
    deadline = time.monotonic() + patience
    with path.open("w") as file:
        while not (held := _take(file)) and time.monotonic() < deadline and not stop():
            time.sleep(_PAUSE)
        yield held


def _take(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
