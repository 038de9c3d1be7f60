"""`hacpo agents`: the embedded agents, built on first use or now."""

from typing import Annotated

import typer
from rich.text import Text

from hacpo.cli.errors import examples, say
from hacpo.cli.output import Json, console, plain_table, print_json

BUILD_EXAMPLES = examples("hacpo agents build       # all of them", "hacpo agents build a b")
LIST_EXAMPLES = examples("hacpo agents list", "hacpo agents list --json")


def build(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAMES]...", help="Default: all.")
    ] = None,
    json: Json = False,
) -> None:
    """Build embedded agents that are missing: about a minute of one core each, no download."""
    from hacpo.models.embedded import ensure
    from hacpo.models.recipes import EMBEDDED
    from hacpo.places import home

    wanted = [name.removeprefix("embedded:") for name in names or sorted(EMBEDDED)]
    folders = ensure(wanted, home(), say)
    if json:
        print_json({"agents": {name: str(folder) for name, folder in folders.items()}})
        return
    for name, folder in folders.items():
        console().print(f"{name}  {folder}")


def list_agents(json: Json = False) -> None:
    """List the embedded agents, and where they lie once they are built."""
    from hacpo.models.embedded import agent_folder
    from hacpo.models.recipes import EMBEDDED
    from hacpo.places import home

    rows = []
    for name, recipe in sorted(EMBEDDED.items()):
        folder = agent_folder(name, home())
        rows.append(
            {
                "name": name,
                "model": f"embedded:{name}",
                "architecture": recipe.architecture,
                "width": recipe.width,
                "layers": recipe.layers,
                "tokenizer": recipe.tokenizer,
                "built": folder.is_dir(),
                "folder": str(folder),
            }
        )
    if json:
        print_json({"agents": rows})
        return
    table = plain_table("model", "architecture", "width", "layers", "tokenizer", "folder")
    for row in rows:
        place = str(row["folder"]) if row["built"] else "not built yet"
        shown = [row[key] for key in ("model", "architecture", "width", "layers", "tokenizer")]
        table.add_row(*(Text(str(cell)) for cell in (*shown, place)))
    console().print(table)
