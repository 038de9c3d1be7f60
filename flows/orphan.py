"""A run whose worker is gone: what its guard asks and tells Prefect in the worker's place.

A worker that is asked to end kills the relays of its runs first, and takes that for the end of the
runs: if the rest of its exit is slow, it still reports them as crashed. They are not.
"""

import contextlib
import sys
import time
from dataclasses import dataclass, field

from flows import prefect_http

ASK_SECONDS = 5.0
LAST_WORD_SECONDS, LAST_WORD_ASK_SECONDS = 60.0, 1.0
"""For so long after the worker's end "crashed" is its last word; asked so often meanwhile."""
STOPPED = {"CANCELLING", "CANCELLED"}


@dataclass(slots=True)
class Orphan:
    """Such a run, from the moment its relay is gone."""

    flow_run_id: str
    since: float = field(default_factory=time.monotonic)
    taken_back: bool = False

    @property
    def pause(self) -> float:
        """Seconds between two questions."""
        return LAST_WORD_ASK_SECONDS if self._is_new else ASK_SECONDS

    @property
    def _is_new(self) -> bool:
        return time.monotonic() - self.since < LAST_WORD_SECONDS

    def is_stopped(self) -> bool:
        """Whether somebody has cancelled it; its worker's last word is taken back."""
        state = prefect_http.state_of(self.flow_run_id)
        if state == "CRASHED" and self._is_new:
            self.taken_back = True
            with contextlib.suppress(OSError):  # a full disk
                print("its worker reported it as crashed: taken back", file=sys.stderr, flush=True)
            prefect_http.set_state(self.flow_run_id, "RUNNING", "its worker is gone; it goes on")
        return state in STOPPED

    def report(self, code: int) -> None:
        """Tell Prefect of its end, unless it could itself."""
        state = prefect_http.state_of(self.flow_run_id)
        if state == "CANCELLING":
            why = "cancelled; its worker was gone"
            prefect_http.set_state(self.flow_run_id, "CANCELLED", why)
        elif code and state in ("PENDING", "RUNNING"):
            why = f"its process ended with {code}"
            prefect_http.set_state(self.flow_run_id, "CRASHED", why)
        elif self.taken_back and state == "RUNNING":  # it ended between our question and our word
            prefect_http.set_state(self.flow_run_id, "COMPLETED", "its worker was gone")
