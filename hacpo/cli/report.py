"""`hacpo report`: the table of a sweep."""

from pathlib import Path
from typing import Annotated

import typer

from hacpo.cli.errors import examples
from hacpo.cli.output import Json, console, print_json
from hacpo.cli.stored import open_registry
from hacpo.errors import ConfigError

EXAMPLES = examples(
    "hacpo report embedded",
    "hacpo report embedded --protocol greedy",
    "hacpo report embedded --markdown >> notes.md",
    "hacpo report embedded --curves curves.svg",
    "hacpo report embedded --csv > points.csv   # one line per method, agent, seed and protocol",
)


def report(
    sweep: Annotated[
        str, typer.Argument(metavar="SWEEP", help="Its name, as `hacpo status` lists it.")
    ],
    protocol: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="avg@8, greedy, ...; default: avg@k if measured."),
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print the raw points as CSV.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    curves: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw training curves into an .svg, .png or .pdf."),
    ] = None,
    json: Json = False,
) -> None:
    """Compare a sweep's methods: held-out accuracy, gain over gspo_xN, rollouts.

    Cells that are not done are listed under the table and enter no mean.
    """
    if csv + markdown + json > 1:
        raise ConfigError("choose one of --csv, --markdown and --json")
    from hacpo.report import sweep_report

    if curves is not None:
        from hacpo.report.curves import draw_curves, sweep_curves

        with open_registry() as registry:
            draw_curves(sweep_curves(registry, sweep), curves)
    with open_registry() as registry:
        found = sweep_report(registry, sweep, protocol)
    if json:
        print_json(found.to_json())
    elif csv:
        print(found.csv(), end="")
    elif markdown:
        print(found.markdown(), end="")
    else:
        console().print(found.rich_table())
