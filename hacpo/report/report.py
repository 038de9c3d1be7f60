"""A sweep's report: read from the registry and the runs' files, computed by pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hacpo.errors import ConfigError
from hacpo.registry import DONE, Registry
from hacpo.report import raw, show_inside, show_results
from hacpo.report.asked import Wanted, wanted_by_cells, wanted_by_grid
from hacpo.report.beside import Beside, beside_paper, paper_section
from hacpo.report.compare import Comparison, Scores, compare
from hacpo.report.cost import Cost, costs_of
from hacpo.report.diagnostics import Diagnostics, diagnose
from hacpo.report.latex import latex
from hacpo.report.markdown import markdown
from hacpo.report.names import identities
from hacpo.report.points import HELD_OUT, Facts, Point
from hacpo.report.scores import read_scores
from hacpo.report.section import Section
from hacpo.report.table import ReportRow, rows_of

if TYPE_CHECKING:
    from rich.console import Group


@dataclass(frozen=True, kw_only=True)
class Report:
    """Accuracy, gain and cost of every method and agent of a sweep, and what is missing."""

    sweep: str
    tasks: Mapping[str, str]
    """Benchmark -> protocol of `rows`; the protocol is empty if nothing is evaluated."""
    protocols: Sequence[str]
    """That the sweep has or asks for."""
    rows: list[ReportRow]
    points: list[Point]
    """Raw numbers, of every protocol unless one was asked for."""
    scores: Scores = field(repr=False, default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    """Agent -> model, as the sweep's config names it."""
    diagnostics: Diagnostics = field(repr=False, default_factory=Diagnostics)

    @property
    def protocol(self) -> str:
        """Of the table, for people."""
        return ", ".join(dict.fromkeys(self.tasks.values()))

    @property
    def finished(self) -> bool:
        """Whether any cell is done."""
        return any(point.state == DONE for point in self.points)

    @cached_property
    def shown(self) -> list[Point]:
        """The points behind `rows`."""
        return [point for point in self.points if self.tasks.get(point.task) == point.protocol]

    @property
    def missing(self) -> list[str]:
        """One line for each cell whose numbers are not in the table."""
        return list(dict.fromkeys(f"{p.cell}: {p.missing}" for p in self.shown if p.missing))

    @cached_property
    def comparisons(self) -> list[Comparison]:
        return compare(self.rows, self.shown, self.scores)

    @cached_property
    def costs(self) -> list[Cost]:
        return costs_of(self.rows, self.shown, self.diagnostics.counted)

    @cached_property
    def beside(self) -> list[Beside]:
        return beside_paper(self.rows, self.shown, self.scores, self.models)

    def sections(self) -> list[Section]:
        """All of it, the most important first."""
        compared, inside = self.comparisons, self.diagnostics.inside
        sections = [show_results.accuracy(self.rows, self.tasks)]
        if compared:
            sections.insert(0, show_results.headline(compared, self.costs))
            sections += [show_results.tests(compared), show_results.power(compared)]
        if any(cost.seeds for cost in self.costs):
            sections.append(show_inside.cost(self.costs))
        sections.append(paper_section(self.beside))
        if inside:
            sections.append(show_inside.ratios(inside))
            sections.append(show_inside.clips(inside))
            if any(one.sources for one in inside):
                sections.append(show_inside.sources(inside))
        if self.missing:
            sections.append(show_inside.missing(self.missing))
        if self.diagnostics.absent:
            sections.append(show_inside.unread(self.diagnostics.absent))
        return sections

    def markdown(self) -> str:
        return markdown(self.sections())

    def latex(self) -> str:
        return latex(self.sweep, self.sections())

    def rich_table(self) -> "Group":
        """The most important of it."""
        from hacpo.report.terminal import terminal

        kept = ("headline", "accuracy", "tests", "missing")
        return terminal(self.sweep, [s for s in self.sections() if s.key in kept])

    def csv(self) -> str:
        return raw.points_csv(self.sweep, self.points)

    def to_json(self) -> dict[str, Any]:
        """Accuracies as fractions, null where there is none."""
        data: dict[str, Any] = raw.plain(
            {
                "sweep": self.sweep,
                "protocol": self.protocol,
                "protocols": self.protocols,
                "tasks": self.tasks,
                "rows": self.rows,
                "comparisons": self.comparisons,
                "costs": self.costs,
                "inside": self.diagnostics.inside,
                "paper": self.beside,
                "missing": self.missing,
                "absent": self.diagnostics.absent,
            }
        )
        return data


def sweep_report(
    registry: Registry, sweep: str, protocol: str | None = None, against: str | None = None
) -> Report:
    """The report of a sweep, finished or not.

    Args:
        registry: open.
        sweep: its name.
        protocol: `avg@8`, `greedy`, ...; None takes avg@k where there is one.
        against: the method that the others are compared with; None takes gspo_xN.
    Raises:
        RegistryError: no such sweep.
        ConfigError: the sweep has no such protocol or method.
    """
    view = registry.sweep(sweep)
    evaluations = registry.evaluations(sweep)
    models = {name: str(a["model"]) for name, a in view.config.get("agents", {}).items()}
    known = identities(models, view.cells)
    is_grid = "grid" in view.config
    wanted = wanted_by_grid(view.config, view.cells) if is_grid else wanted_by_cells(view.cells)
    protocols: dict[str, set[str]] = {HELD_OUT: _asked(view.config)}
    for row in evaluations:
        protocols.setdefault(row.task, set()).add(row.protocol)
    facts = Facts(evaluations, registry.costs(sweep), known)
    report = build_report(sweep, wanted, facts, protocols, protocol, against)
    return replace(
        report,
        scores=read_scores(registry, report.shown),
        models=models,
        diagnostics=diagnose(wanted, known),
    )


def build_report(
    sweep: str,
    wanted: Sequence[Wanted],
    facts: Facts,
    protocols: Mapping[str, set[str]],
    protocol: str | None = None,
    against: str | None = None,
) -> Report:
    """A report from plain rows, without tests and diagnostics.

    Args:
        protocols: benchmark -> those that it is or will be measured by.
        protocol: asked for; benchmarks that are not measured by it are left out.
    """
    known = sorted(set().union(*protocols.values()), key=_preference)
    if protocol is not None and protocol not in known:
        raise ConfigError(
            f"sweep {sweep!r} has no evaluations by {protocol!r}; "
            f"it has {', '.join(known) or 'none'}"
        )
    methods = list(dict.fromkeys(row.method for row in wanted))
    if against is not None and against not in methods:
        raise ConfigError(f"sweep {sweep!r} has no method {against!r}; it has {', '.join(methods)}")
    measured = {task: sorted(found, key=_preference) for task, found in protocols.items()}
    tasks = {
        task: protocol or (found[0] if found else "")
        for task, found in measured.items()
        if (found or len(measured) == 1) and (protocol is None or protocol in found)
    }
    points = [
        facts.point(row, agent, seed, task, each)
        for row in wanted
        for agent in row.agents
        for seed in row.seeds
        for task in tasks
        for each in ([protocol] if protocol else measured[task] or [""])
    ]
    shown = [point for point in points if tasks[point.task] == point.protocol]
    rows = rows_of(wanted, shown, against or "")
    return Report(sweep=sweep, tasks=tasks, protocols=known, rows=rows, points=points)


def _asked(config: Mapping[str, Any]) -> set[str]:
    """Protocols of the held-out problems that the sweep asks for."""
    evaluate = config.get("evaluate", {})
    asked = {f"avg@{evaluate['samples']}"} if evaluate.get("samples") else set()
    return asked | ({"greedy"} if evaluate.get("greedy") else set())


def _preference(protocol: str) -> tuple[int, str]:
    """avg@k before greedy, more samples first."""
    name, _, samples = protocol.partition("@")
    return (-int(samples) if samples.isdigit() else 0, name)
