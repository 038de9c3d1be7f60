"""A sweep's report: read from the registry, computed by pure functions, shown in four ways."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group

from hacpo.errors import ConfigError
from hacpo.registry import Registry
from hacpo.report import render
from hacpo.report.asked import Wanted, wanted_by_cells, wanted_by_grid
from hacpo.report.names import identities
from hacpo.report.points import Facts, Point
from hacpo.report.table import ReportRow, rows_of

TASK = "held_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Accuracy of every method and agent of a sweep, and what is missing."""

    sweep: str
    protocol: str
    """Of `rows`; empty if nothing is evaluated."""
    protocols: tuple[str, ...]
    """That the sweep has or asks for."""
    rows: list[ReportRow]
    points: list[Point]
    """Raw numbers, of every protocol unless one was asked for."""

    @property
    def missing(self) -> list[str]:
        """One line for each cell whose numbers are not in the table."""
        rows = [point for point in self.points if point.protocol == self.protocol]
        return list(dict.fromkeys(f"{p.cell}: {p.missing}" for p in rows if p.missing))

    def markdown(self) -> str:
        return render.markdown(self.rows, self.protocol, self.missing)

    def rich_table(self) -> Group:
        return render.rich_tables(self.sweep, self.rows, self.protocol, self.missing)

    def csv(self) -> str:
        return render.raw_csv(self.sweep, self.points)

    def to_json(self) -> dict[str, Any]:
        return render.json_data(self.sweep, self.protocol, self.protocols, self.rows, self.missing)


def sweep_report(registry: Registry, sweep: str, protocol: str | None = None) -> Report:
    """The report of a sweep, finished or not.

    Args:
        registry: open.
        sweep: its name.
        protocol: `avg@8`, `greedy`, ...; None takes avg@k where there is one.
    Raises:
        RegistryError: no such sweep.
        ConfigError: the sweep has no such protocol.
    """
    view = registry.sweep(sweep)
    evaluations = [row for row in registry.evaluations(sweep) if row.task == TASK]
    agents = view.config.get("agents", {})
    models = {name: str(agent["model"]) for name, agent in agents.items()}
    facts = Facts(evaluations, registry.costs(sweep), identities(models, view.cells))
    is_grid = "grid" in view.config
    wanted = wanted_by_grid(view.config, view.cells) if is_grid else wanted_by_cells(view.cells)
    known = _protocols(view.config, [row.protocol for row in evaluations])
    return build_report(sweep, wanted, facts, known, protocol)


def build_report(
    sweep: str, wanted: Sequence[Wanted], facts: Facts, known: Sequence[str], protocol: str | None
) -> Report:
    """A report from plain rows; `known` are the protocols, the preferred one first."""
    if protocol is not None and protocol not in known:
        raise ConfigError(
            f"sweep {sweep!r} has no evaluations by {protocol!r}; "
            f"it has {', '.join(known) or 'none'}"
        )
    chosen = protocol or (known[0] if known else "")
    points = [
        facts.point(row, agent, seed, each)
        for row in wanted
        for agent in row.agents
        for seed in row.seeds
        for each in ([protocol] if protocol else known or [chosen])
    ]
    return Report(
        sweep=sweep,
        protocol=chosen,
        protocols=tuple(known),
        rows=rows_of(wanted, [point for point in points if point.protocol == chosen]),
        points=points,
    )


def _protocols(config: dict[str, Any], found: list[str]) -> list[str]:
    """Those asked for and those found, avg@k before greedy, more samples first."""
    evaluate = config.get("evaluate", {})
    asked = [f"avg@{evaluate['samples']}"] if evaluate.get("samples") else []
    asked += ["greedy"] if evaluate.get("greedy") else []
    return sorted({*asked, *found}, key=_preference)


def _preference(protocol: str) -> tuple[int, str]:
    name, _, samples = protocol.partition("@")
    return (-int(samples) if samples.isdigit() else 0, name)
