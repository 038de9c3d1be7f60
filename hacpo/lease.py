"""Holding a cell: its lease is renewed, and nobody else writes in its folder."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hacpo.errors import HacpoError, StorageError
from hacpo.ledger import storage_errors
from hacpo.locks import locked
from hacpo.registry import LOST, RUN, Claim, Registry

logger = logging.getLogger(__name__)

LEASE_SECONDS = float(os.environ.get("HACPO_LEASE_SECONDS", "60"))
LEAVING_SECONDS = 5.0
"""How long a process that is ending waits for the registry's database."""


@dataclass(slots=True)
class Lease:
    """What a cell's holder and the thread that renews its lease tell each other."""

    label: str
    activity: str = ""
    """What takes time now, for people."""
    wanted: str = RUN
    """As `Registry.heartbeat`."""

    def tell(self, activity: str) -> None:
        self.activity = activity
        if activity:
            logger.info("%s: %s", self.label, activity)


@contextlib.contextmanager
def hold_lease(registry: Registry, claim: Claim) -> Iterator[Lease]:
    """Renew the lease from a thread."""
    ended = threading.Event()
    lease = Lease(claim.label)

    def beat() -> None:
        due, sent = time.monotonic() + LEASE_SECONDS / 4, ""
        while not ended.wait(1.0):
            activity = lease.activity
            if activity == sent and time.monotonic() < due:
                continue
            try:
                lease.wanted = registry.heartbeat(claim, activity=activity)
                if lease.wanted == LOST:
                    logger.warning(
                        "%s: the lease is lost; this run stops at its next write", claim.label
                    )
                    return
                sent = activity
            except HacpoError as error:  # the step's own write decides; a beat may be missed
                logger.warning("lease not renewed: %s", error)
            due = time.monotonic() + LEASE_SECONDS / 4

    thread = threading.Thread(target=beat, name="lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        ended.set()
        thread.join(LEAVING_SECONDS)  # it may be waiting for a database that is away


@contextlib.contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Keep others out of a run's folder, such as an old holder that slept over its lease."""
    with contextlib.ExitStack() as held:
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            alone = held.enter_context(locked(folder / "lock", patience=LEASE_SECONDS))
        if not alone:
            raise StorageError(f"{folder}: another process still writes here")
        yield
