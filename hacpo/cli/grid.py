"""`hacpo grid plan`: what a grid would do, before it does it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from hacpo.cli.errors import examples
from hacpo.cli.output import Json, Settings, console, plain_table, print_json
from hacpo.cli.stored import find_registry

if TYPE_CHECKING:
    from hacpo.types import CellSpec

EXAMPLES = examples(
    "hacpo grid plan configs/embedded/grid.yaml",
    "hacpo grid plan configs/embedded/grid.yaml --set 'grid.seeds=[0,1,2]'",
    note="To run it: prefect deployment run hacpo-grid",
)
NEW = "new"


def plan(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A grid's YAML file.")],
    set_: Settings = None,
    json: Json = False,
) -> None:
    """List a grid's cells, which of them are new, and the rollouts that those will sample."""
    from hacpo.cells import expand
    from hacpo.places import home
    from hacpo.presets import load_grid

    grid = load_grid(config, set_ or [])
    cells = expand(grid, home())
    states = _states(cells)
    new = {cell.key: cell for cell in cells if states[cell.key] == NEW}.values()
    rollouts = sum(cell.rollouts for cell in new)
    if json:
        print_json(
            {
                "name": grid.name,
                "cells": [
                    {
                        "key": cell.key,
                        "label": cell.label,
                        "state": states[cell.key],
                        "method": cell.method,
                        "combination": cell.combination,
                        "agents": cell.agents,
                        "seed": cell.seed,
                        "steps": cell.config["steps"],
                        "rollouts": cell.rollouts,
                    }
                    for cell in cells
                ],
                "new": len(new),
                "rollouts_of_new": rollouts,
            }
        )
        return
    table = plain_table(
        "cell", "key", "method", "agents", "seed", "state", "rollouts", numbers=("seed", "rollouts")
    )
    for cell in cells:
        table.add_row(
            Text(cell.label),
            cell.key[:8],
            Text(cell.method),
            Text(", ".join(cell.agents)),
            str(cell.seed),
            states[cell.key],
            f"{cell.rollouts:,}",
        )
    out = console()
    out.print(table)
    out.print(f"{grid.name}: {len(states)} cells, {len(new)} new with {rollouts:,} rollouts")


def _states(cells: "list[CellSpec]") -> dict[str, str]:
    """Cell key -> its state in the registry, or `new`."""
    new = {cell.key: NEW for cell in cells}
    registry = find_registry()
    if registry is None:
        return new
    with registry:
        return new | registry.cell_states(list(new))
