"""Events for MLflow that ended runs could not send: they wait in the runs' folders."""

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from hacpo.errors import HacpoError
from hacpo.ledger import read_json, storage_errors
from hacpo.locks import locked
from hacpo.places import run_folder

logger = logging.getLogger(__name__)

MARKER = "unsent"
"""In a run's folder from its start until MLflow has all its events."""
PAUSE_SECONDS = 30.0
"""Until a folder whose events were not taken is tried again."""
_again: dict[Path, float] = {}
"""Folder -> `time.monotonic()` before which it is left alone."""


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
    servers: dict[str, HacpoError | None] = {}
    for marker in sorted(run_folder("").glob(f"*/{MARKER}")):
        folder = marker.parent
        if time.monotonic() < _again.get(folder, 0.0) or not (folder / "config.json").is_file():
            continue  # without a config it has not begun: its next attempt sends
        with _nobody_works_in(folder) as alone:
            if not alone:
                continue
            try:
                _send(folder, servers)
            except Exception as error:  # of this folder; the others are none the worse
                reason = str(error).partition("\n")[0]
                logger.warning("events wait in %s: %s", folder, reason)
                _again[folder] = time.monotonic() + PAUSE_SECONDS
                continue
            mark_sent(folder)
            delivered += 1
    return delivered


def _send(folder: Path, servers: dict[str, HacpoError | None]) -> None:
    """Send what a folder holds.

    Args:
        folder: of the run.
        servers: what is wrong with each that was asked; one that is away is not waited for again.
    """
    from hacpo.tracking import check_server, sync  # loads MLflow, which is not free

    config = read_json(folder / "config.json")
    uri = config["tracking"]["uri"] or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        return
    if uri not in servers:
        servers[uri] = None
        try:
            check_server(uri)
        except HacpoError as error:
            servers[uri] = error
    if (wrong := servers[uri]) is not None:
        raise wrong
    sync(folder, uri)


@contextlib.contextmanager
def _nobody_works_in(folder: Path) -> Iterator[bool]:
    """Whether the folder's lock was free; it is held meanwhile."""
    with contextlib.ExitStack() as held:
        try:
            alone = held.enter_context(locked(folder / "lock"))
        except OSError:  # gone meanwhile, or another person's
            alone = False
        yield alone
