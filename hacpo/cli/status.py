"""`hacpo status`: what is queued, running, done. Quick, so that it can be asked often."""

import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from hacpo.cli.errors import examples, say
from hacpo.cli.output import Json, console, plain_table, print_json, rewards_text
from hacpo.cli.stored import find_registry, open_registry
from hacpo.places import home
from hacpo.tracking import curves_url

if TYPE_CHECKING:
    from hacpo.registry import CellView, StateCounts, SweepRow, SweepView

EXAMPLES = examples(
    "hacpo status                    # every sweep",
    "hacpo status embedded           # the cells of one",
    "hacpo status embedded --watch   # until nothing is queued or running",
    "hacpo status embedded --json | jq '.cells[] | select(.state == \"failed\") | .error'",
)
STATES = ("done", "running", "queued", "paused", "cancelled", "failed")
REFRESH_SECONDS = 2.0


def status(
    sweep: Annotated[
        str | None, typer.Argument(metavar="[SWEEP]", help="Show this sweep's cells.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Refresh until nothing is queued or running.")
    ] = False,
    json: Json = False,
) -> None:
    """Show what is queued, running, done and failed."""
    if watch and not json:
        _watch(sweep)
    elif sweep is not None:
        show_sweep(sweep, json=json)
    else:
        sweeps = _sweeps()
        if json:
            print_json({"sweeps": sweeps})
        elif sweeps:
            console().print(list_table(sweeps))
        else:
            say(f"nothing is queued yet at {home()}: start with `hacpo run CONFIG`")


def _sweeps() -> "list[SweepRow]":
    registry = find_registry()
    if registry is None:
        return []
    with registry:
        return registry.sweeps()


def _watch(sweep: str | None) -> None:
    from rich.live import Live

    with open_registry() as registry, Live(console=console(), auto_refresh=False) as live:
        while True:
            if sweep is not None:
                view = registry.sweep(sweep)
                shown, unfinished = _cells(view), view.counts.unfinished
            else:
                sweeps = registry.sweeps()
                shown = list_table(sweeps)
                unfinished = sum(row.counts.unfinished for row in sweeps)
            live.update(shown, refresh=True)
            if not unfinished:
                return
            time.sleep(REFRESH_SECONDS)


def show_sweep(name: str, *, json: bool) -> None:
    """The cells of a sweep."""
    with open_registry() as registry:
        view, shared = registry.sweep(name), registry.shared_curves(name)
    if json:
        print_json(view)
        return
    console().print(_cells(view))
    for other in shared:
        if other.experiment_url:
            what = f"{other.cells} cells shared with {other.sweep}"
            console().print(_curves(f"Curves of {what}", other.experiment_url))


def list_table(sweeps: "list[SweepRow]") -> RenderableType:
    """A line for each sweep; a column for each state that some cell is in."""
    always = ("done", "running", "queued", "failed")
    shown = [s for s in STATES if s in always or any(getattr(r.counts, s) for r in sweeps)]
    numbers = ("cells", *shown, "priority")
    table = plain_table(
        "sweep", "state", "cells", *shown, "priority", "submitted", "by", numbers=numbers
    )
    for row in sweeps:
        counts = [str(getattr(row.counts, state) or "-") for state in shown]
        when = row.submitted.astimezone().strftime("%Y-%m-%d %H:%M")
        facts = [row.state, str(row.counts.total), *counts, str(row.priority), when]
        table.add_row(Text(row.name), *facts, Text(row.owner))
    return table


def _cells(view: "SweepView") -> RenderableType:
    table = plain_table("cell", "key", "state", "step", "reward", "now", numbers=("step",))
    for cell in view.cells:
        rewards = {name: agent.reward for name, agent in cell.agents.items()}
        known = any(reward is not None for reward in rewards.values())
        table.add_row(
            Text(cell.label),
            cell.key[:8],
            cell.state,
            f"{cell.steps_done}/{cell.steps_total}" if cell.steps_total else "-",
            Text(rewards_text(rewards) if known else "-"),
            Text(_now(cell)),
        )
    asked = f" ({view.state})" if view.state in ("paused", "cancelled") else ""
    shown: list[RenderableType] = [
        Text(f"{view.name}{asked}: {_counts(view.counts)}", style="bold"),
        table,
    ]
    if view.mlflow_experiment_url:
        shown.append(_curves("Curves", view.mlflow_experiment_url))
    return Group(*shown)


def _curves(what: str, experiment_url: str) -> Text:
    return Text(f"{what}: {curves_url(experiment_url)}", no_wrap=True, overflow="ignore")


def _now(cell: "CellView") -> str:
    if cell.state == "failed":
        return f"{cell.error_kind}: {cell.error}"
    if cell.stale:
        return f"its process on {cell.host} vanished; the next free one goes on"
    if cell.state == "running":
        pace = f"{cell.seconds_per_step:.1f} s/step" if cell.seconds_per_step else ""
        return ", ".join(part for part in (cell.activity, pace, f"on {cell.host}") if part)
    if not cell.error:
        return ""
    again = f", again at {cell.not_before.astimezone():%H:%M:%S}" if cell.not_before else ""
    return f"attempt {cell.attempts} failed ({cell.error_kind}){again}: {cell.error}"


def _counts(counts: "StateCounts") -> str:
    parts = [f"{getattr(counts, state)} {state}" for state in STATES if getattr(counts, state)]
    return f"{counts.total} cells: {', '.join(parts)}"
