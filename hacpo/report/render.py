"""The table as Markdown, for a terminal, as CSV of raw points, as JSON."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, fields
from itertools import groupby
from typing import Any

from rich import box
from rich.console import Group, JustifyMethod
from rich.table import Table
from rich.text import Text

from hacpo.report.estimate import FEWEST_FOR_INTERVAL, Estimate
from hacpo.report.points import Point
from hacpo.report.table import MEAN, ReportRow

NOTHING = "-"


def markdown(rows: Sequence[ReportRow], protocol: str, missing: Sequence[str]) -> str:
    """One table for each combination, then what is missing."""
    several = len({row.combination for row in rows}) > 1
    parts = []
    for combination, group in _by_combination(rows):
        head = [name.replace("\n", " ") for name in _head(group[0], protocol)]
        lines = [head, ["---"] * len(head), *map(_cells, group)]
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        parts.append(f"**{combination}**\n\n{table}" if several else table)
    parts.append(legend(rows))
    if missing:
        parts.append("\n".join([_missing_title(missing), "", *(f"- {line}" for line in missing)]))
    return "\n\n".join(parts) + "\n"


def rich_tables(
    sweep: str, rows: Sequence[ReportRow], protocol: str, missing: Sequence[str]
) -> Group:
    """The same for a terminal of 120 columns."""
    parts: list[Table | Text] = []
    for combination, group in _by_combination(rows):
        title = Text(f"{sweep}: {combination}", style="bold")
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for name in _head(group[0], protocol):
            justify: JustifyMethod = "right" if name.startswith("rollouts") else "left"
            table.add_column(name, justify=justify, overflow="fold")
        for _, of_method in groupby(group, key=lambda row: row.method):
            for position, row in enumerate(of_method):
                method, *others = _cells(row)
                style = "bold" if row.agent == MEAN else ""
                table.add_row(Text("" if position else method), *map(Text, others), style=style)
            table.add_section()
        parts.append(table)
    parts.append(Text(legend(rows), style="dim"))
    if missing:
        parts.append(Text(_missing_title(missing), style="yellow"))
        parts += [Text(f"  {line}") for line in missing]
    return Group(*parts)


def raw_csv(sweep: str, points: Sequence[Point]) -> str:
    """One line for each combination, method, agent, seed and protocol; accuracies as fractions."""
    text = io.StringIO()
    names = ["sweep", *(field.name for field in fields(Point))]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({"sweep": sweep, **asdict(point)} for point in points)
    return text.getvalue()


def json_data(
    sweep: str,
    protocol: str,
    protocols: Sequence[str],
    rows: Sequence[ReportRow],
    missing: Sequence[str],
) -> dict[str, Any]:
    """Accuracies as fractions, null where there is none."""
    return {
        "sweep": sweep,
        "protocol": protocol,
        "protocols": list(protocols),
        "rows": [asdict(row) for row in rows],
        "missing": list(missing),
    }


def legend(rows: Sequence[ReportRow]) -> str:
    """How to read the table, as far as it goes."""
    most = max((len(row.after.points) for row in rows), default=0)
    what = (
        "mean [95% t interval] over seeds"
        if most >= FEWEST_FOR_INTERVAL
        else f"each seed's own value (an interval needs {FEWEST_FOR_INTERVAL} seeds)"
    )
    paired = " Gains are differences within seeds." if any(row.control for row in rows) else ""
    return (
        f"Accuracy and gain: {what}. Rollouts: per agent and seed, sampled by itself and consumed "
        f"by its training (its own and, under sharing, the others').{paired}"
    )


def _head(row: ReportRow, protocol: str) -> list[str]:
    """With line breaks where a terminal's narrow columns need them."""
    head = [
        "method",
        "agent",
        f"held-out accuracy,\n% ({protocol or 'not evaluated'})",
        "seeds",
        "rollouts\nsampled",
        "rollouts\nconsumed",
    ]
    return [*head, f"gain over {row.control},\npoints"] if row.control else head


def _cells(row: ReportRow) -> list[str]:
    cells = [
        row.method,
        row.agent,
        _accuracy(row),
        f"{len(row.after.points)} of {row.seeds}",
        _count(row.rollouts_generated),
        _count(row.rollouts_consumed),
    ]
    return [*cells, _gain(row)] if row.control else cells


def _accuracy(row: ReportRow) -> str:
    if row.after.mean is None:
        return NOTHING
    if not row.steps:
        return _percent(row.after)
    unchanging = len(set(row.before.points.values())) == 1
    before = _number(row.before.mean) if unchanging else _percent(row.before)
    return f"{before} -> {_percent(row.after)}"


def _gain(row: ReportRow) -> str:
    if row.method == row.control:
        return "control"
    if row.gain is None or row.gain.mean is None:
        return NOTHING
    fewer = len(row.gain.points) < len(row.after.points)
    return _percent(row.gain, "+") + (f" (n={len(row.gain.points)})" if fewer else "")


def _percent(value: Estimate, sign: str = "") -> str:
    if value.low is None:
        return ", ".join(_number(point, sign) for point in value.points.values())
    low, high = _number(value.low, sign), _number(value.high, sign)
    return f"{_number(value.mean, sign)} [{low}, {high}]"


def _number(value: float | None, sign: str = "") -> str:
    if value is None:
        return NOTHING
    return f"{round(100 * value, 1) + 0.0:{sign}.1f}"  # + 0.0: no "-0.0"


def _count(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def _missing_title(missing: Sequence[str]) -> str:
    return f"Missing, and in no mean above ({len(missing)}):"


def _by_combination(rows: Sequence[ReportRow]) -> list[tuple[str, list[ReportRow]]]:
    return [(name, list(group)) for name, group in groupby(rows, key=lambda row: row.combination)]
