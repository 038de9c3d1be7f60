"""What commands print on stdout: tables for people, JSON for programs."""

import dataclasses
import json
import math
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

WIDTH = 120
"""Columns when stdout is not a terminal."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, nothing else.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a setting, e.g. --set steps=5; repeatable."
    ),
]


def console() -> Console:
    """For stdout; text from models and files is never read as markup."""
    width = None if sys.stdout.isatty() else WIDTH
    return Console(width=width, markup=False, emoji=False, highlight=False, soft_wrap=False)


def plain_table(*columns: str, numbers: tuple[str, ...] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for column in columns:
        right = column in numbers
        table.add_column(column, justify="right" if right else "left", no_wrap=right)
    return table


def print_json(data: Any) -> None:
    print(json.dumps(_jsonable(data), indent=1))


def _jsonable(data: Any) -> Any:
    """Dataclasses, dates and paths as JSON; NaN as null."""
    match data:
        case float():
            return data if math.isfinite(data) else None
        case dict():
            return {str(key): _jsonable(value) for key, value in data.items()}
        case list() | tuple():
            return [_jsonable(item) for item in data]
        case datetime():
            return data.isoformat()
        case Path():
            return str(data)
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return {f.name: _jsonable(getattr(data, f.name)) for f in dataclasses.fields(data)}
    return data


def rewards_text(rewards: dict[str, float | None]) -> str:
    """`a 0.52  b 0.41`."""
    return "  ".join(
        f"{agent} {'-' if value is None or math.isnan(value) else format(value, '.2f')}"
        for agent, value in rewards.items()
    )
