"""`hacpo report`: the results of a sweep."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hacpo.cli.errors import examples, say
from hacpo.cli.output import Json, console, print_json
from hacpo.cli.stored import open_registry
from hacpo.errors import ConfigError, RegistryError

if TYPE_CHECKING:
    from hacpo.registry import Registry

EXAMPLES = examples(
    "hacpo report embedded",
    "hacpo report embedded --protocol greedy --against gspo",
    "hacpo report embedded --html report.html   # everything, in one page",
    "hacpo report embedded --markdown >> notes.md",
    "hacpo report embedded --latex > tables.tex",
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
    against: Annotated[
        str | None,
        typer.Option(metavar="METHOD", help="Compare with this method; default: gspo_xN."),
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print the raw points as CSV.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX tables.")] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all of it as one HTML page.")
    ] = None,
    curves: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw training curves into an .svg, .png or .pdf."),
    ] = None,
    json: Json = False,
) -> None:
    """Compare a sweep's methods: accuracy, paired gain over gspo_xN, rollouts, power.

    Cells that are not done are listed under the table and enter no mean.
    """
    if csv + markdown + latex + json > 1:
        raise ConfigError("choose one of --csv, --markdown, --latex and --json")
    from hacpo.report import sweep_report

    with open_registry() as registry:
        if curves is not None:
            from hacpo.report.curves import draw_curves, sweep_curves

            draw_curves(sweep_curves(registry, sweep), curves)
        found = sweep_report(registry, sweep, protocol, against)
        if not found.finished:
            raise RegistryError(_nothing(registry, sweep))
        if html is not None:
            from hacpo.report.publish import write_page

            write_page(registry, found, html)
            say(f"the report is in {html}")
    if json:
        print_json(found.to_json())
    elif csv:
        print(found.csv(), end="")
    elif markdown:
        print(found.markdown(), end="")
    elif latex:
        print(found.latex(), end="")
    elif html is None:
        console().print(found.rich_table())


def _nothing(registry: "Registry", sweep: str) -> str:
    states = Counter(cell.state for cell in registry.sweep(sweep).cells)
    parts = ", ".join(f"{number} {state}" for state, number in states.items()) or "no cells"
    return f"sweep {sweep!r} has no finished cell ({parts}): see `hacpo status {sweep}`"
