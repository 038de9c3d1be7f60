"""Events for MLflow that ended runs could not send: they wait in the runs' folders."""

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from hacpo.errors import HacpoError
from hacpo.ledger import read_json, storage_errors
from hacpo.places import run_folder

logger = logging.getLogger(__name__)

MARKER = "unsent"
"""In a run's folder from its start until MLflow has all its events."""


def mark_unsent(folder: Path) -> None:
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).touch()


def mark_sent(folder: Path) -> None:
    (folder / MARKER).unlink(missing_ok=True)


def deliver_waiting() -> int:
    """Send what waits in the folders of runs that no process works on.

    Returns:
        Folders whose events MLflow has now; the others are tried at the next call.
    """
    delivered = 0
    for marker in sorted(run_folder("").glob(f"*/{MARKER}")):
        with _nobody_works_in(marker.parent) as alone:
            if not alone:
                continue
            try:
                _send(marker.parent)
            except HacpoError as error:  # of a server that is down, most likely
                logger.warning("events wait in %s: %s", marker.parent, error)
                return delivered
            except Exception as error:  # what MLflow answers with
                reason = str(error).partition("\n")[0]
                logger.warning("events wait in %s: %s", marker.parent, reason)
                continue
            mark_sent(marker.parent)
            delivered += 1
    return delivered


def _send(folder: Path) -> None:
    from hacpo.tracking import sync  # loads MLflow, which is not free

    config = read_json(folder / "config.json")
    uri = config["tracking"]["uri"] or os.environ.get("MLFLOW_TRACKING_URI")
    if uri:
        sync(folder, uri)


@contextlib.contextmanager
def _nobody_works_in(folder: Path) -> Iterator[bool]:
    """Whether the folder's lock was free; it is held meanwhile."""
    try:
        lock = (folder / "lock").open("a")
    except OSError:
        yield False
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
