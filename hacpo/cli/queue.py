"""`hacpo queue`: what runs, and what comes next."""

from typing import Annotated

import typer
from rich.text import Text

from hacpo.cli.errors import examples
from hacpo.cli.output import Json, console, plain_table, print_json
from hacpo.cli.stored import find_registry

EXAMPLES = examples("hacpo queue", "hacpo queue --limit 5 --json")


def queue(
    limit: Annotated[int, typer.Option(min=1, help="Cells to show, at most.")] = 20,
    json: Json = False,
) -> None:
    """Show the running cells, and the next ones in the order in which they will start."""
    registry = find_registry()
    held, rows = [], []
    if registry is not None:
        with registry:
            held, rows = registry.held(), registry.queue(limit)
    if json:
        print_json({"running": held, "queued": rows})
        return
    out = console()
    for cell in held:
        out.print(Text(f"running: {cell.label} ({cell.holder})"))
    if not rows:
        out.print("nothing is queued")
        return
    numbers = ("next", "priority", "gpus", "attempts")
    table = plain_table(
        "next", "cell", "sweep", "owner", "priority", "gpus", "attempts", numbers=numbers
    )
    for position, row in enumerate(rows, start=1):
        facts = (str(row.priority), str(row.gpus), str(row.attempts))
        table.add_row(str(position), Text(row.label), Text(row.sweep), Text(row.owner), *facts)
    out.print(table)
