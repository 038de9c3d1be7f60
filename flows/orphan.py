"""A run whose worker is gone: what its guard asks and tells Prefect in the worker's place.

A worker that is asked to end kills the relays of its runs first, and takes that for the end of the
runs: if the rest of its exit is slow, it still reports them as crashed. They are not.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from flows import prefect_http

ASK_SECONDS = 5.0
LAST_WORD_SECONDS, LAST_WORD_ASK_SECONDS = 120.0, 1.0
"""For so long the worker's last word is looked for, and so often."""
LAST_WORD = "exited with non-zero status code -9"
"""Of Prefect's worker and its runner, on a killed relay. No engine says so of itself."""
STOPPED = {"CANCELLING", "CANCELLED"}


@dataclass(slots=True)
class Orphan:
    """Such a run, from the moment its guard notices."""

    flow_run_id: str
    say: Callable[[str], None]
    since: float = field(default_factory=time.monotonic)
    taken_back: bool = False

    @property
    def pause(self) -> float:
        """Seconds between two questions."""
        return LAST_WORD_ASK_SECONDS if self._is_new else ASK_SECONDS

    @property
    def _is_new(self) -> bool:
        return time.monotonic() - self.since < LAST_WORD_SECONDS

    def look(self) -> bool:
        """Whether somebody has cancelled the run; its worker's last word is taken back.

        A run of a deployment with a limit (hacpo-reconcile) has lost its place by that word: the
        next may begin beside it.
        """
        is_new = self._is_new
        kind, message = prefect_http.state_of(self.flow_run_id, tries=1)
        if is_new and kind == "CRASHED" and LAST_WORD in message:
            why = "its worker is gone; it goes on"
            if prefect_http.set_state(self.flow_run_id, "RUNNING", why, tries=1):
                self.taken_back = True
                self.say("its worker reported it as crashed: taken back")
        return kind in STOPPED

    def report(self, code: int) -> None:
        """Tell Prefect of its end, unless it could itself."""
        kind, _ = prefect_http.state_of(self.flow_run_id)
        if kind == "CANCELLING":
            why = "cancelled; its worker was gone"
            prefect_http.set_state(self.flow_run_id, "CANCELLED", why)
        elif code and kind in ("PENDING", "RUNNING"):
            why = f"its process ended with {code}"
            prefect_http.set_state(self.flow_run_id, "CRASHED", why)
        elif self.taken_back and kind == "RUNNING":  # it ended between our question and our word
            prefect_http.set_state(self.flow_run_id, "COMPLETED", "its worker was gone")
