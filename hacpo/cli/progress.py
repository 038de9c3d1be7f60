"""Live progress of one cell, read from the registry while another thread or process trains it."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hacpo.cli.errors import say
from hacpo.cli.output import rewards_text
from hacpo.cli.stored import find_registry
from hacpo.errors import HacpoError

if TYPE_CHECKING:
    from hacpo.registry import CellView, Registry, StepRow

POLL_SECONDS = 0.3


class Lines:
    """For logs: one line for each step and for whatever takes time."""

    def begin(self, label: str) -> None:
        say(f"{label} begins")

    def activity(self, text: str) -> None:
        if text:
            say(text)

    def step(self, view: "CellView", rows: "list[StepRow]") -> None:
        rewards = rewards_text({row.agent: row.reward_mean for row in rows})
        say(f"step {rows[0].step + 1} of {view.steps_total}: reward {rewards}")


class Bar:
    """For a terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None, doing="loading torch")

    def begin(self, label: str) -> None:
        self._progress.update(self._task, description=label, doing="")

    def activity(self, text: str) -> None:
        self._progress.update(self._task, doing=text)

    def step(self, view: "CellView", rows: "list[StepRow]") -> None:
        rewards = rewards_text({row.agent: row.reward_mean for row in rows})
        done, total = rows[0].step + 1, view.steps_total
        self._progress.update(self._task, completed=done, total=total, doing=f"reward {rewards}")


class Watcher:
    """Polls a cell from a thread of its own and tells `shown` what is new."""

    def __init__(self, key: str, shown: "Lines | Bar", steps_done: int) -> None:
        self._key = key
        self._shown = shown
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)
        self._registry: Registry | None = None
        self._has_begun = False
        self._activity = ""
        self.steps_done = steps_done

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            self._poll()
        self._poll()
        if self._registry is not None:
            self._registry.close()

    def _poll(self) -> None:
        try:
            self._registry = self._registry or find_registry()
            if self._registry is not None:
                self._look(self._registry)
        except HacpoError:  # not registered yet, or briefly unreachable: training itself will tell
            pass

    def _look(self, registry: "Registry") -> None:
        view = registry.cell(self._key).cell
        if view.state == "running" and not self._has_begun:
            self._has_begun = True
            self._shown.begin(view.label)
        if view.activity != self._activity:
            self._activity = view.activity
            self._shown.activity(view.activity)
        if view.steps_done == self.steps_done:
            return
        if view.steps_done < self.steps_done:  # steps after the last checkpoint are replayed
            self.steps_done = max(view.steps_done - 1, 0)
        rows = registry.step_rows(self._key)
        for step in range(self.steps_done, view.steps_done):
            of_step = [row for row in rows if row.step == step]
            if of_step:
                self._shown.step(view, of_step)
        self.steps_done = view.steps_done


@contextlib.contextmanager
def watching(key: str, steps_done: int) -> Iterator[Watcher]:
    """Show a cell's progress on stderr while the body runs.

    Args:
        key: of the cell.
        steps_done: that an earlier attempt did; they are not shown again.
    """
    with contextlib.ExitStack() as stack:
        if sys.stderr.isatty():
            progress = stack.enter_context(
                Progress(
                    TextColumn("{task.description}", markup=False),
                    BarColumn(bar_width=24),
                    MofNCompleteColumn(),
                    TimeRemainingColumn(),
                    TextColumn("{task.fields[doing]}", markup=False),
                    console=Console(stderr=True, markup=False),
                    redirect_stdout=False,
                    transient=True,  # what stays is the result, or one line that says what is wrong
                )
            )
            watcher = Watcher(key, Bar(progress), steps_done)
        else:
            watcher = Watcher(key, Lines(), steps_done)
        watcher.start()
        stack.callback(watcher.stop)
        yield watcher
