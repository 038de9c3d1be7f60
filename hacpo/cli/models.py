"""`hacpo models`: pretrained models as folders that can be trained."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.text import Text

from hacpo.cli.errors import examples, say
from hacpo.cli.output import Json, console, plain_table, print_json

IMPORT_EXAMPLES = examples(
    "hacpo models import SmolLM2-135M-Instruct.Q4_1.gguf",
    "hacpo models import pypi:gemma3-270m       # from a package index, before first use",
    "hacpo models import org/name --revision main --to ./model",
)
LIST_EXAMPLES = examples("hacpo models list", "hacpo models list --json")


def import_(
    source: Annotated[
        str,
        typer.Argument(help="A .gguf file, a folder with one or its parts, pypi:NAME, hub id."),
    ],
    to: Annotated[
        Path | None, typer.Option(help="Folder to write; default: below HACPO_HOME/models.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name for tables; default: the file's.")] = None,
    revision: Annotated[str | None, typer.Option(help="Of a hub id.")] = None,
    dtype: Annotated[
        Literal["float32", "bfloat16"], typer.Option(help="Of the weights written.")
    ] = "float32",
    json: Json = False,
) -> None:
    """Turn a pretrained model into a folder of safetensors; a second time finds the first."""
    from hacpo.models.importing import import_model
    from hacpo.places import home

    folder, is_new = import_model(
        source, home(), name=name, to=to, revision=revision, dtype=dtype, progress=say
    )
    if json:
        print_json({"folder": folder, "new": is_new})
        return
    say("imported; in a config:" if is_new else "was there already; in a config:")
    console().print(f"model: {_spec(folder) or folder}", soft_wrap=True)


def list_models(json: Json = False) -> None:
    """List imported models, and the packaged ones that a config may name."""
    from hacpo.models.imported import list_imported, packaged_folder
    from hacpo.models.packaged import PACKAGES, PREFIX
    from hacpo.places import home

    rows = [
        {
            "name": note.name,
            "model": _spec(folder) or str(folder),
            "source": note.source,
            "dtype": note.dtype,
            "license": note.license,
            "imported": True,
            "folder": str(folder),
        }
        for folder, note in list_imported(home())
    ]
    there = {row["model"] for row in rows}
    for packaged_name, package in PACKAGES.items():
        model = PREFIX + packaged_name
        if model not in there:
            rows.append(
                {
                    "name": packaged_name,
                    "model": model,
                    "source": " ".join(package.requirements),
                    "dtype": "float32",
                    "license": package.license,
                    "imported": False,
                    "folder": str(packaged_folder(model, home())),
                }
            )
    if json:
        print_json({"models": rows})
        return
    table = plain_table("model", "dtype", "license", "folder")
    for row in rows:
        place = row["folder"] if row["imported"] else "not imported yet"
        cells = (row["model"], row["dtype"], row["license"], place)
        table.add_row(*(Text(str(cell)) for cell in cells))
    console().print(table)


def _spec(folder: Path) -> str | None:
    """`pypi:NAME` where that is what the folder holds."""
    from hacpo.models.imported import packaged_folder
    from hacpo.models.packaged import PACKAGES, PREFIX
    from hacpo.places import home

    names = (PREFIX + name for name in PACKAGES)
    return next((each for each in names if packaged_folder(each, home()) == folder), None)
