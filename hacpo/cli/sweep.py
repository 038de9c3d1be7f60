"""`hacpo sweep`: queue grids, and pause, resume, cancel, fill, reorder, export and import them."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from hacpo.cli.errors import examples
from hacpo.cli.output import Json, Settings, console, print_json
from hacpo.cli.status import list_table, show_sweep
from hacpo.cli.stored import open_registry

if TYPE_CHECKING:
    from hacpo.registry import SweepRow

EXAMPLES = {
    "submit": examples(
        "hacpo sweep submit configs/embedded/grid.yaml",
        "hacpo sweep submit grid.yaml --name urgent --priority 5 --owner ann --set steps=20",
        note="The hacpo-reconcile flow gives it to workers within seconds.",
    ),
    "list": examples("hacpo sweep list", "hacpo sweep list --owner ann --json"),
    "show": examples("hacpo sweep show embedded", "hacpo sweep show embedded --json"),
    "pause": examples("hacpo sweep pause embedded", note="Resume it with `hacpo sweep resume`."),
    "resume": examples("hacpo sweep resume embedded"),
    "cancel": examples(
        "hacpo sweep cancel embedded",
        note="Done cells stay; `hacpo sweep resume` or a new submission goes on with the others.",
    ),
    "fill": examples("hacpo sweep fill embedded", note="Done cells are never run again."),
    "priority": examples(
        "hacpo sweep priority embedded 5", note="A negative one: hacpo sweep priority -- x -5"
    ),
    "export": examples("hacpo sweep export embedded embedded.json.gz"),
    "import": examples("hacpo sweep import embedded.json.gz", note="Results that are here stay."),
}
Name = Annotated[str, typer.Argument(metavar="SWEEP", help="Name of a sweep.")]
RUNNING_NOTE = "running cells stop at their next step, with a checkpoint"


def submit(
    config: Annotated[Path, typer.Argument(metavar="FILE", help="A grid's YAML file.")],
    name: Annotated[str | None, typer.Option(help="Of the sweep, instead of the file's.")] = None,
    priority: Annotated[
        int | None, typer.Option(help="Larger is served first; 0 for a new sweep.")
    ] = None,
    owner: Annotated[
        str | None, typer.Option(help="Who asks; owners take turns.  [default: you]")
    ] = None,
    max_running: Annotated[
        int | None, typer.Option(min=1, help="Cells that run at the same time, at most.")
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Don't contact MLflow.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Yes, more than 10,000 cells.")] = False,
    set_: Settings = None,
    json: Json = False,
) -> None:
    """Queue a grid; what the registry knows as done is not run again."""
    import getpass

    from hacpo.cells import expand
    from hacpo.places import default_registry_url, home
    from hacpo.preflight import check_grid, preflight
    from hacpo.presets import load_grid
    from hacpo.registry import Registry

    named = [f"name={name}"] if name is not None else []
    grid = load_grid(config, [*(set_ or []), *named])
    check_grid(grid, confirmed=yes, how="--yes")
    cells = expand(grid, home())
    preflight(grid, home(), offline=offline)
    with Registry.open(default_registry_url()) as registry:
        counts = registry.register_sweep(
            grid.name,
            owner=getpass.getuser() if owner is None else owner,
            config=grid.model_dump(mode="json"),
            cells=cells,
            priority=priority,
            offline=offline,
            max_running=max_running,
        )
    if json:
        print_json({"name": grid.name, "cells": counts.total, "counts": counts})
    else:
        console().print(f"{grid.name}: {counts}")


def list_sweeps(
    owner: Annotated[str | None, typer.Option(help="Only the sweeps of this owner.")] = None,
    json: Json = False,
) -> None:
    """List sweeps, the latest first."""
    with open_registry() as registry:
        rows = registry.sweeps() if owner is None else registry.owned_by(owner)
    if json:
        print_json({"sweeps": [{**_facts(row), "state": row.state} for row in rows]})
    else:
        console().print(list_table(rows))


def show(name: Name, json: Json = False) -> None:
    """Show a sweep's cells: state, step, reward, and why some failed."""
    show_sweep(name, json=json)


def pause(name: Name, json: Json = False) -> None:
    """Take no more of its cells; running ones stop at their next step, with a checkpoint."""
    _want(name, "pause", json)


def resume(name: Name, json: Json = False) -> None:
    """Go on with a sweep that was paused or cancelled."""
    _want(name, "run", json)


def cancel(name: Name, json: Json = False) -> None:
    """End a sweep; running cells stop at their next step, with a checkpoint."""
    _want(name, "cancel", json)


def fill(name: Name, json: Json = False) -> None:
    """Run exactly the cells that are missing: failed ones again, waiting ones still."""
    with open_registry() as registry:
        failed = registry.fill(name)
        counts = registry.unfinished(name)
    if json:
        print_json({"name": name, "failed_queued_again": failed, "counts": counts})
        return
    told = f"{failed} failed cells queued again, {counts.queued - failed} waiting"
    console().print(f"{name}: {told}, {counts.running} running, {counts.done} done and left alone")


def priority(
    name: Name,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="Larger is served first.")],
    json: Json = False,
) -> None:
    """Change a sweep's priority; what runs is not interrupted."""
    with open_registry() as registry:
        registry.set_priority(name, number)
    if json:
        print_json({"name": name, "priority": number})
    else:
        console().print(f"{name}: priority {number}")


def export(
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help=".json or .json.gz to write.")],
    json: Json = False,
) -> None:
    """Write a sweep with its results, for `hacpo sweep import` elsewhere."""
    from hacpo.exchange_file import write_export

    with open_registry() as registry:
        data = registry.export_sweep(name)
    write_export(file, data)
    done = sum(cell["state"] == "done" for cell in data["cells"])
    if json:
        print_json({"file": file, "cells": len(data["cells"]), "with_results": done})
    else:
        console().print(f"{file}: {len(data['cells'])} cells, {done} with results")


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Written by `sweep export`.")],
    name: Annotated[str | None, typer.Option(help="Of the sweep here.")] = None,
    json: Json = False,
) -> None:
    """Add the results of an exported sweep; what is done here stays as it is."""
    from hacpo.exchange_file import read_export
    from hacpo.places import default_registry_url
    from hacpo.registry import Registry

    data = read_export(file)
    with Registry.open(default_registry_url()) as registry:
        counts = registry.import_sweep(data, name=name)
    if json:
        print_json(counts)
        return
    console().print(
        f"{counts.taken} results taken, {counts.kept} here already, {counts.queued} cells queued"
    )
    for label in counts.differing:
        console().print(Text(f"other results for {label} there than here: those here stay"))


def _want(name: str, wanted: str, json: bool) -> None:
    with open_registry() as registry:
        row = registry.want(name, wanted)
    if json:
        print_json({**_facts(row), "state": row.state})
        return
    counts = row.counts
    note = f"; {RUNNING_NOTE}" if wanted != "run" and counts.running else ""
    told = f"{counts.done} done, {counts.running} running, {counts.waiting} waiting"
    console().print(f"{name} is {row.state}: {told}{note}")


def _facts(row: "SweepRow") -> dict[str, object]:
    return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}


COMMANDS: dict[str, Callable[..., None]] = {
    "submit": submit,
    "list": list_sweeps,
    "show": show,
    "pause": pause,
    "resume": resume,
    "cancel": cancel,
    "fill": fill,
    "priority": priority,
    "export": export,
    "import": import_,
}
