"""How far a sweep is: pure functions from a registry's view to text and rich renderables."""

from statistics import median

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hacpo.registry import CellView, SweepView


def headline(view: SweepView, elapsed: float) -> str:
    """`embedded: 3 of 12 cells done, 2 running, 7 queued; 04:10, about 9 min left`."""
    counts = view.counts
    told = [f"{counts.done} of {counts.total} cells done"]
    for state in ("running", "queued", "paused", "cancelled", "failed"):
        if count := getattr(counts, state):
            told.append(f"{count} {state}")
    minutes, seconds = divmod(int(elapsed), 60)
    time = f"{minutes:02d}:{seconds:02d}"
    left = seconds_left(view)
    if (counts.running or counts.queued) and left is not None:
        time += f", about {left / 60:.0f} min left" if left > 90 else ", nearly done"
    return f"{view.name}: {', '.join(told)}; {time}"


def plain(view: SweepView, elapsed: float) -> str:
    """One line for a log."""
    cells = [f"[{cell.label}: {where(cell)}]" for cell in running(view)]
    return " ".join([headline(view, elapsed), *cells])


def live(view: SweepView, elapsed: float) -> RenderableType:
    """A few lines that replace themselves."""
    table = Table.grid(padding=(0, 2))
    for cell in running(view):
        table.add_row(Text(cell.label, style="bold"), Text(where(cell)))
    bar = Table.grid()  # a bar alone does not end its line
    bar.add_row(ProgressBar(total=1.0, completed=share_done(view), width=60))
    return Group(Text(headline(view, elapsed)), bar, table)


def where(cell: CellView) -> str:
    """`step 12/60, reward a 0.71 b 0.69`, or what takes time before and after the steps."""
    if cell.activity and not cell.steps_done:
        return cell.activity
    rewards = [
        f"{name} {agent.reward_recent:.2f}"
        for name, agent in cell.agents.items()
        if agent.reward_recent is not None
    ]
    told = [f"step {cell.steps_done}/{cell.steps_total}"] if cell.steps_total else []
    told += [f"reward {' '.join(rewards)}"] if rewards else []
    told += [cell.activity] if cell.activity else []
    return ", ".join(told) or "starting"


def running(view: SweepView) -> list[CellView]:
    return [cell for cell in view.cells if cell.state == "running"]


def share_done(view: SweepView) -> float:
    """Of the sweep's responses, those that need not be sampled any more."""
    planned = sum(cell.rollouts_planned for cell in view.cells)
    return sum(map(_rollouts_done, view.cells)) / planned if planned else 0.0


def seconds_left(view: SweepView) -> float | None:
    """From the cells that have a pace; None before the first.

    A cell's time is that of its steps, and what finished cells needed beside them (loading,
    evaluation; the fastest counts, since the first ones also build the agents).
    """
    paces, besides = [], []
    for cell in view.cells:
        if cell.seconds_per_step and cell.rollouts_planned and cell.steps_total:
            steps = cell.seconds_per_step * cell.steps_total
            paces.append(steps / cell.rollouts_planned)
            if cell.state == "done" and cell.started and cell.ended:
                besides.append((cell.ended - cell.started).total_seconds() - steps)
    if not paces:
        return None
    waiting = [cell for cell in view.cells if cell.state in ("queued", "running")]
    rollouts = sum(cell.rollouts_planned - _rollouts_done(cell) for cell in waiting)
    beside = max(0.0, min(besides, default=0.0)) * len(waiting)
    return (rollouts * median(paces) + beside) / max(1, view.counts.running)


def _rollouts_done(cell: CellView) -> int:
    finished = cell.state in ("done", "failed")
    return cell.rollouts_planned if finished else min(cell.rollouts, cell.rollouts_planned)
