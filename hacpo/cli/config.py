"""`hacpo config`: what can be set, and what a file comes to."""

from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from rich.text import Text

from hacpo.cli.errors import examples
from hacpo.cli.output import Json, Settings, console, plain_table, print_json

EXAMPLES = examples(
    "hacpo config                                  # every key, its default and meaning",
    "hacpo config configs/embedded/pair.yaml       # a file with all that it extends",
)


def config(
    file: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG]", help="A YAML file; default: explain keys.")
    ] = None,
    set_: Settings = None,
    json: Json = False,
) -> None:
    """Explain every key of a config, or show what a file resolves to."""
    import yaml

    from hacpo.config import GridConfig, RunConfig
    from hacpo.presets import load_run

    if file is not None:
        resolved = load_run(file, set_ or []).model_dump(mode="json")
        if json:
            print_json(resolved)
        else:
            print(yaml.safe_dump(resolved, sort_keys=False), end="")
        return
    keys = {key: facts for model in (RunConfig, GridConfig) for key, *facts in _keys(model)}
    if json:
        rows = keys.items()
        print_json([{"key": k, "type": t, "default": d, "meaning": m} for k, (t, d, m) in rows])
        return
    table = plain_table("key", "type", "default", "meaning")
    for key, facts in keys.items():
        table.add_row(*map(Text, (key, *facts)))
    console().print(table)


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """(dotted key, type, default, meaning) of every field, sections opened."""
    for name, field in model.model_fields.items():
        section, is_named = _section(field.annotation)
        if section is not None:
            if field.default is None:  # off unless it is there
                yield f"{prefix}{name}", "section", "null", _meaning(field.description)
            yield from _keys(section, f"{prefix}{name}.{'NAME.' if is_named else ''}")
            continue
        default = "required" if field.default is PydanticUndefined else _shown(field.default)
        kind = _type_name(field.annotation)
        yield f"{prefix}{name}", kind, default, _meaning(field.description)


def _meaning(description: str | None) -> str:
    return " ".join((description or "").split())


def _section(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model below a field, and whether people name its instances (`agents.NAME.model`)."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    if get_origin(annotation) is dict:
        return _section(get_args(annotation)[1])[0], True
    if get_origin(annotation) in (Union, UnionType):
        found = (_section(each)[0] for each in get_args(annotation))
        return next((section for section in found if section), None), False
    return None, False


def _type_name(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " | ".join(arguments)
    if origin in (Union, UnionType):
        return " | ".join(map(_type_name, arguments))
    if origin is Annotated:
        return _type_name(arguments[0])
    if annotation is Ellipsis:
        return "..."
    if annotation is type(None):
        return "null"
    inner = f"[{', '.join(map(_type_name, arguments))}]" if arguments else ""
    return f"{(origin or annotation).__name__}{inner}"


def _shown(default: Any) -> str:
    match default:
        case None:
            return "null"
        case bool():
            return str(default).lower()
        case _:
            return str(default)
