"""`hacpo data`: the problem files of the paper's benchmarks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from hacpo.cli.errors import FIXABLE, examples, say
from hacpo.cli.output import Json, console, plain_table, print_json

if TYPE_CHECKING:
    from hacpo.benchmarks.check import DataReport, SetReport

FETCH_EXAMPLES = examples(
    "hacpo data fetch math500",
    "hacpo data fetch all --into data",
    note="Files go to HACPO_DATA (default: data in HACPO_HOME): JSONL of id, problem and answer.",
)
CHECK_EXAMPLES = examples(
    "hacpo data check",
    "hacpo data check data --train train.jsonl   # does it hold problems of a benchmark?",
    note="Exit code 2 if a file that is there is not what its name says.",
)
SHOWN = 5
"""Ids that are listed of a finding; --json has them all."""


def fetch(
    name: Annotated[str, typer.Argument(help="A benchmark, math_train, gsm8k_train, or all.")],
    into: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder to write.")] = None,
    json: Json = False,
) -> None:
    """Download problem files from the Hugging Face hub; `all` gets what is missing."""
    from hacpo.benchmarks.catalogue import SETS, problem_set
    from hacpo.benchmarks.fetch import fetch as fetch_set
    from hacpo.places import data_folder

    folder = data_folder(into)
    wanted = [problem_set(name)] if name != "all" else list(SETS.values())
    paths = []
    for each in wanted:
        if name == "all" and (folder / each.file).is_file():
            say(f"{each.name}: is there already")
            continue
        if each.hub is not None:
            say(f"{each.name}: from the hub, {each.hub.id}")
        paths.append(fetch_set(each, folder))
    if json:
        print_json({"files": paths})
        return
    for path in paths:
        console().print(str(path), soft_wrap=True)


def check(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Default: HACPO_DATA.")
    ] = None,
    train: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Problems to train on, compared to the benchmarks."),
    ] = None,
    json: Json = False,
) -> None:
    """Counts, hashes, damaged texts, duplicates, and overlap of training with test problems."""
    from hacpo.benchmarks.check import check_data
    from hacpo.places import data_folder

    report = check_data(data_folder(folder), train or [])
    if json:
        print_json({"usable": report.is_usable, "report": report})
    else:
        _show(report)
    if not report.is_usable:
        bad = [each.name for each in report.sets if each.verdict in ("unknown", "unreadable")]
        say(f"error: {report.folder}: not what the name says: {', '.join(bad)}")
        raise typer.Exit(FIXABLE)


def _show(report: "DataReport") -> None:
    out = console()
    table = plain_table("set", "problems", "content", "hash", numbers=("problems",))
    for each in report.sets:
        count = str(each.count or "-")
        table.add_row(each.name, count, Text(_content(each)), each.digest[:12])
    out.print(table)
    for each in report.sets:
        if each.control_characters:
            out.print(f"{each.name}: {each.control_characters} problems with control characters")
        for what, found in (("damaged commands", each.damaged), ("repeated", each.duplicates)):
            if found:
                out.print(Text(f"{each.name}: {what}: {_some(found)}"))
    for overlap in report.overlaps:
        pairs = [f"{there} = {here}" for there, here in overlap.pairs]
        title = f"{overlap.train} holds {len(pairs)} problems of {overlap.benchmark}"
        out.print(Text(f"{title}: {_some(pairs)}"))


def _content(each: "SetReport") -> str:
    verdict = {"known": "known: ", "unknown": "NOT AS EXPECTED: ", "unreadable": "UNREADABLE: "}
    return verdict.get(each.verdict, "") + each.says


def _some(found: list[str]) -> str:
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more
